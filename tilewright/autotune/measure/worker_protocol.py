"""What worker processes are asked to do, as data, and what they answer. All of it is small and travels by pickle."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tilewright.autotune.measure.inputs import Flavour
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.machine.target import Target


@dataclass(frozen=True)
class Subject:
    """The function that candidates schedule, as text, at given sizes. ``seed`` draws its inputs. ``streamed`` and
    ``footprint``: see :class:`~tilewright.autotune.base.task.Task`."""

    text: str
    target: Target
    dims: tuple[tuple[str, int], ...]
    seed: int = 0
    streamed: tuple[int, ...] = ()
    footprint: int = 0

    @cached_property
    def key(self) -> str:
        """Equal for equal subjects."""
        data = (self.text, self.target.key(), self.dims, self.seed, self.streamed, self.footprint)
        return hashlib.sha256(repr(data).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Build:
    """Machine code for ``subject`` under ``trace`` (text; None: the naive schedule)."""

    subject: Subject
    trace: str | None
    opt: int


@dataclass(frozen=True, slots=True)
class Built:
    """``workspaces``: element type and shape of the arguments after the parameters. ``seconds``: building took."""

    code: bytes
    workspaces: tuple[tuple[str, tuple[int, ...]], ...]
    parallel: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class MakeReference:
    """Run the naive schedule and keep its results under ``path``. Answer: the inputs' flavour."""

    subject: Subject
    naive: Built
    path: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Make the inputs and map the reference results, for the ``Time`` jobs that follow."""

    subject: Subject
    flavour: Flavour
    path: str


@dataclass(frozen=True, slots=True)
class Time:
    """Check and time one candidate of the prepared subject. ``limit``: seconds beyond which one sample is enough.
    ``again``: it was right before, and one check at the end will do."""

    built: Built
    config: EvaluatorConfig
    limit: float | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class Interleave:
    """Time several candidates of the prepared subject in turn, one sample each a round. Answer: a list."""

    built: tuple[Built, ...]
    config: EvaluatorConfig
    rounds: int


@dataclass(frozen=True, slots=True)
class Timed:
    """``waited``: seconds for which the machine was disturbed, and of samples that were taken again for that."""

    samples: tuple[float, ...]
    error: float
    waited: float = 0.0


Job: TypeAlias = Build | MakeReference | Prepare | Time | Interleave
