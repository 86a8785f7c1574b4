"""Evolutionary search: mutation and crossover of the best candidates measured, ranked by the model where there is one.

Source: MetaSchedule's and Ansor's evolutionary search (Shao et al., 2022; Zheng et al., 2020).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.predict import Score
from tilewright.autotune.search.strategies.base import (
    Fresh,
    Params,
    Results,
    SearchSpace,
    pick_diverse,
    read_params,
    seconds_of,
)


@dataclass(frozen=True, slots=True)
class EvolutionaryParams:
    """``population`` candidates live through ``generations`` a batch. ``mutation``: the share of children that are a
    neighbour of one parent; the others mix the decisions of two. ``elite``: parents taken from those measured.
    ``epsilon`` of a batch is random. ``diversity`` weighs difference against score."""

    population: int = 24
    generations: int = 3
    mutation: float = 0.6
    elite: int = 16
    epsilon: float = 0.1
    diversity: float = 0.5


class Evolutionary:
    def __init__(
        self, space: SearchSpace, score: Score | None, rng: np.random.Generator, params: EvolutionaryParams
    ) -> None:
        self._space = space
        self._score = score
        self._rng = rng
        self._params = params
        self._fresh = Fresh(space, rng)
        self._best: list[tuple[float, Candidate]] = []

    def propose(self, n: int) -> list[Candidate]:
        """``n`` descendants of the best measured, and a few random candidates."""
        p = self._params
        if not self._best:
            return self._fresh.random(n)
        chance = self._fresh.random(int(self._rng.binomial(n, p.epsilon)))
        children = self._evolve() if self._score is not None else self._breed([c for _, c in self._best], 2 * n)
        new = list({c.key: c for c in children if self._fresh.is_new(c)}.values())
        scores = np.zeros(len(new)) if self._score is None else self._score(new)
        out = self._fresh.take(pick_diverse(new, scores, n - len(chance), p.diversity))
        out += chance
        return out + self._fresh.random(n - len(out)) if len(out) < n else out

    def observe(self, results: Results) -> None:
        """Keep the best as parents."""
        self._fresh.take(c for c, _ in results)
        self._best += [(s, c) for c, o in results if math.isfinite(s := seconds_of(o))]
        self._best = sorted(self._best, key=lambda x: x[0])[: self._params.elite]

    def _evolve(self) -> list[Candidate]:
        """All candidates that came up in a few generations selected by score."""
        if self._score is None:
            return []
        p = self._params
        living = [c for _, c in self._best]
        seen: dict[str, Candidate] = {}
        for _ in range(p.generations):
            children = self._breed(living, p.population)
            seen |= {c.key: c for c in children}
            both = list({c.key: c for c in [*living, *children]}.values())
            scores = self._score(both)
            order = sorted(range(len(both)), key=lambda i: (-scores[i], i))[: p.population]
            living = [both[i] for i in order]
        return list(seen.values())

    def _breed(self, parents: list[Candidate], count: int) -> list[Candidate]:
        """Children of parents drawn with a preference for the first."""
        weights = 1.0 / np.arange(1.0, len(parents) + 1.0)
        weights /= weights.sum()
        out: list[Candidate] = []
        for _ in range(count):
            a, b = (parents[int(i)] for i in self._rng.choice(len(parents), 2, p=weights))
            mutate = a is b or self._rng.random() < self._params.mutation
            child = self._space.neighbour(a, self._rng) if mutate else self._mix(a, b)
            if child is not None:
                out.append(child)
        return out

    def _mix(self, a: Candidate, b: Candidate) -> Candidate | None:
        theirs = b.values()
        values = {k: theirs[k] if k in theirs and self._rng.random() < 0.5 else v for k, v in a.values().items()}
        return self._space.with_decisions(values)


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> Evolutionary:
    """Evolution; with a score, only its favourites are measured."""
    return Evolutionary(space, score, rng, read_params(EvolutionaryParams, params, "evolutionary"))
