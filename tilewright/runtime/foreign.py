"""What stands in the place of an executor where this machine cannot execute the code of a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from tilewright.core.errors import TargetError


@dataclass(frozen=True, slots=True)
class Foreign:
    """Refuses to run, with the reason."""

    reason: str

    def run(
        self,
        inputs: Sequence[object],
        times: object = None,
        seen: object = None,
        given: object = None,
        threads: int = 0,
    ) -> NoReturn:
        """Raises TargetError."""
        raise TargetError(self.reason)

    def symbols(self, inputs: Sequence[object]) -> NoReturn:
        """Raises TargetError."""
        raise TargetError(self.reason)
