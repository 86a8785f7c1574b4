"""What a search strategy is, and what all of them share: candidates that were not proposed before.

A strategy is a pure function of its space, score, generator and parameters, and of the results it observes: no clock,
no global state. It never proposes a candidate twice, nor one that it observed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeAlias, TypeVar

import numpy as np

from tilewright.autotune.base.measure_result import MeasureResult, Ok
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.predict import Score
from tilewright.core.errors import InputError
from tilewright.schedule.decisions import Choice
from tilewright.tensor_ir.ir import Func

Results: TypeAlias = Sequence[tuple[Candidate, MeasureResult]]
Params: TypeAlias = Mapping[str, object]
_P = TypeVar("_P")
_DRAWS = 6
_ENUMERABLE = 4096


class SearchSpace(Protocol):
    """What a strategy needs of a space: :class:`tilewright.autotune.base.space.Space`, or one of a user's own."""

    @property
    def func(self) -> Func: ...

    def default(self) -> Candidate: ...

    def sample(self, rng: np.random.Generator) -> Candidate | None: ...

    def neighbour(self, candidate: Candidate, rng: np.random.Generator) -> Candidate | None: ...

    def with_decisions(self, values: Mapping[str, Choice]) -> Candidate | None: ...

    def enumerate(self, limit: int) -> Iterator[Candidate]: ...

    def size(self) -> int: ...


class Strategy(Protocol):
    """Decides what to measure next."""

    def propose(self, n: int) -> list[Candidate]:
        """Up to ``n`` candidates never proposed or observed before; none when the space has no more to offer."""

    def observe(self, results: Results) -> None:
        """Learn what measuring gave, in the order of measuring; also for candidates that others proposed."""


Maker: TypeAlias = Callable[[SearchSpace, "Score | None", np.random.Generator, Params], Strategy]
"""How a strategy is made; ``score`` None means that it has to do without a model."""


def read_params(kind: type[_P], params: Params, who: str) -> _P:
    """The dataclass ``kind`` from a mapping. Raises InputError for a name it does not have."""
    known = [f.name for f in dataclasses.fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(set(params) - set(known))
    if unknown:
        raise InputError(f"strategy {who}: expected parameters among {', '.join(known)}, got {', '.join(unknown)}")
    return kind(**params)


class Fresh:
    """Keys that are taken, and ways to get candidates that are not."""

    def __init__(self, space: SearchSpace, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng
        self._taken: set[str] = set()
        self._rest: list[Candidate] | None = None

    def is_new(self, c: Candidate) -> bool:
        return c.key not in self._taken

    def take(self, candidates: Iterable[Candidate]) -> list[Candidate]:
        """Mark candidates as taken; those that were new, in order."""
        out = []
        for c in candidates:
            if c.key not in self._taken:
                self._taken.add(c.key)
                out.append(c)
        return out

    def random(self, n: int) -> list[Candidate]:
        """``n`` new random candidates, marked as taken; fewer only if the space seems to have no more."""
        out: list[Candidate] = []
        draws = 0
        while len(out) < n and draws < _DRAWS * n and self._rest is None:
            draws += 1
            drawn = self.space.sample(self.rng)
            if drawn is not None:
                out += self.take([drawn])
        if len(out) < n:
            out += self._remaining(n - len(out))
        return out

    def _remaining(self, n: int) -> list[Candidate]:
        """New candidates from the list of all, made once, in random order: when drawing hardly finds any."""
        if self._rest is None:
            if self.space.size() > _ENUMERABLE:
                return []
            found = [c for c in self.space.enumerate(_ENUMERABLE) if self.is_new(c)]
            self._rest = [found[i] for i in self.rng.permutation(len(found))]
        out: list[Candidate] = []
        while self._rest and len(out) < n:
            out += self.take([self._rest.pop()])
        return out


def seconds_of(result: MeasureResult) -> float:
    """The measured time; inf for a failure."""
    return result.seconds if isinstance(result, Ok) else float("inf")


def difference(a: Candidate, b: Candidate) -> float:
    """The share of decisions (by label) in which two candidates differ."""
    x, y = a.values(), b.values()
    labels = x.keys() | y.keys()
    return sum(x.get(k) != y.get(k) for k in labels) / len(labels) if labels else 0.0


def pick_diverse(candidates: Sequence[Candidate], scores: np.ndarray, n: int, weight: float) -> list[Candidate]:
    """``n`` candidates, greedily: high score (in standard deviations), and different from those already picked."""
    if not candidates or n <= 0:
        return []
    spread = float(scores.std())
    value = (scores - scores.max()) / spread if spread > 0 else np.zeros(len(candidates))
    left = sorted(range(len(candidates)), key=lambda i: (-value[i], i))[: 8 * n]
    apart = dict.fromkeys(left, 1.0)
    picked: list[Candidate] = []
    while left and len(picked) < n:
        best = max(left, key=lambda i: value[i] + weight * apart[i])
        left.remove(best)
        picked.append(candidates[best])
        for i in left:
            apart[i] = min(apart[i], difference(candidates[i], candidates[best]))
    return picked
