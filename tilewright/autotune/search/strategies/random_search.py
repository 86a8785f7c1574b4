"""Random search: uniform draws of decisions, without repetition. The yardstick for every other strategy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.predict import Score
from tilewright.autotune.search.strategies.base import Fresh, Params, Results, SearchSpace, read_params


@dataclass(frozen=True, slots=True)
class RandomParams:
    """Random search has no parameters."""


class RandomSearch:
    def __init__(self, space: SearchSpace, rng: np.random.Generator) -> None:
        self._fresh = Fresh(space, rng)

    def propose(self, n: int) -> list[Candidate]:
        """``n`` random candidates."""
        return self._fresh.random(n)

    def observe(self, results: Results) -> None:
        """Only remembers what is taken."""
        self._fresh.take(c for c, _ in results)


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> RandomSearch:
    """Random search; the score is not used."""
    read_params(RandomParams, params, "random")
    return RandomSearch(space, rng)
