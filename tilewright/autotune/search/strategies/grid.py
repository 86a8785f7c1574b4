"""Grid search: the space in its own order, as long as the budget lasts. Complete for small spaces."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.predict import Score
from tilewright.autotune.search.strategies.base import Fresh, Params, Results, SearchSpace, read_params


@dataclass(frozen=True, slots=True)
class GridParams:
    """``limit``: points of the grid that are visited at most."""

    limit: int = 1 << 20


class GridSearch:
    def __init__(self, space: SearchSpace, rng: np.random.Generator, params: GridParams) -> None:
        self._fresh = Fresh(space, rng)
        self._points = iter(space.enumerate(params.limit))

    def propose(self, n: int) -> list[Candidate]:
        """The next ``n`` points of the grid."""
        new = (c for c in self._points if self._fresh.take([c]))
        return list(itertools.islice(new, n))

    def observe(self, results: Results) -> None:
        """Only remembers what is taken."""
        self._fresh.take(c for c, _ in results)


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> GridSearch:
    """Grid search; neither the score nor the generator is used."""
    return GridSearch(space, rng, read_params(GridParams, params, "grid"))
