"""A space without a compiler: decisions on a grid, and a known cost, for tests of search."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate, Decision
from tilewright.machine.target import Target
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import elementwise

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)
FUNC = elementwise(8, 8)


class SyntheticSpace:
    """``sizes[i]`` values for decision ``d{i}``. Points where the first two decisions are equal and odd are refused."""

    def __init__(self, sizes: tuple[int, ...] = (8, 8, 6, 4, 4), refuse: bool = True) -> None:
        self.func = FUNC
        self.target = TARGET
        self.sizes = sizes
        self.refuse = refuse
        self.made = 0

    def at(self, values: tuple[int, ...]) -> Candidate | None:
        self.made += 1
        if self.refuse and len(values) > 1 and values[0] == values[1] and values[0] % 2:
            return None
        decisions = tuple(
            Decision(f"d{i}", tuple(range(n)), v) for i, (n, v) in enumerate(zip(self.sizes, values, strict=True))
        )
        steps = tuple(SampleCategorical(d.label, d.candidates, d.choice) for d in decisions)
        return Candidate(decisions, Trace(steps), self.func)

    def default(self) -> Candidate:
        found = self.at((0,) * len(self.sizes))
        assert found is not None
        return found

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        return self.at(tuple(int(rng.integers(n)) for n in self.sizes))

    def neighbour(self, c: Candidate, rng: np.random.Generator) -> Candidate | None:
        values = list(point(c))
        i = int(rng.integers(len(values)))
        values[i] = (values[i] + int(rng.integers(1, self.sizes[i]))) % self.sizes[i] if self.sizes[i] > 1 else 0
        found = self.at(tuple(values))
        return None if found is None or found.key == c.key else found

    def with_decisions(self, values: Mapping[str, object]) -> Candidate | None:
        return self.at(tuple(int(values.get(f"d{i}", 0)) for i in range(len(self.sizes))))

    def enumerate(self, limit: int) -> Iterator[Candidate]:
        for values in itertools.islice(itertools.product(*map(range, self.sizes)), limit):
            if (found := self.at(values)) is not None:
                yield found

    def size(self) -> int:
        return math.prod(self.sizes)


def point(c: Candidate) -> tuple[int, ...]:
    return tuple(int(d.choice) for d in c.decisions)


def seconds(c: Candidate) -> float:
    """A rugged bowl: each decision has a best value, neighbouring decisions interact. Best at (3, 2, 3, 2, 3, ...)."""
    values = point(c)
    cost = 0.0
    for i, v in enumerate(values):
        cost += 0.15 * abs(v - (3 if i % 2 == 0 else 2))
    for a, b in itertools.pairwise(values):
        cost += 0.1 * ((a + b) % 5 != 0)
    return 1e-3 * math.exp(cost)


def synthetic_result(c: Candidate) -> MeasureResult:
    """The cost as a result; some corners fail."""
    values = point(c)
    if values[0] == 7 and values[-1] == 0:
        return Failed(FailureKind.WRONG_RESULT, "off by one")
    s = seconds(c)
    return Ok(s, (s, s, s), 1e-7, 0.05)
