"""Who answers when a schedule rule asks for a decision: the default, a random draw, or a given assignment.

A rule asks through the ``sample_*`` methods of :class:`tilewright.schedule.schedule.Schedule`; the answer is recorded
in the trace, so that a trace holds its decisions (in the way of MetaSchedule's probabilistic programs, Shao et al.,
2022).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np

Choice: TypeAlias = "int | str | tuple[int, ...]"


class Decider(Protocol):
    """Chooses one of ``candidates`` for the decision called ``label``; ``default`` is the rule's own choice."""

    def choose(self, label: str, candidates: Sequence[Choice], default: Choice) -> Choice: ...


@dataclass(frozen=True, slots=True)
class DefaultDecider:
    """The rule's own choice, always."""

    def choose(self, label: str, candidates: Sequence[Choice], default: Choice) -> Choice:
        return default


@dataclass(frozen=True, slots=True, eq=False)
class RandomDecider:
    """A uniform draw."""

    rng: np.random.Generator

    def choose(self, label: str, candidates: Sequence[Choice], default: Choice) -> Choice:
        return candidates[int(self.rng.integers(len(candidates)))]


@dataclass(frozen=True, slots=True, eq=False)
class FixedDecider:
    """``values`` by label where they are among the candidates, else what ``fallback`` says."""

    values: Mapping[str, Choice]
    fallback: Decider = DefaultDecider()

    def choose(self, label: str, candidates: Sequence[Choice], default: Choice) -> Choice:
        value = self.values.get(label)
        if value is not None and value in candidates:
            return value
        return self.fallback.choose(label, candidates, default)
