"""Simulated annealing without a model: every step of a chain is measured. Shows what the model is worth.

A batch is one neighbour of each of its chains; the result decides by the Metropolis rule on the logarithm of time
whether the chain moves. The temperature falls with the number of results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.predict import Score
from tilewright.autotune.search.strategies.base import Fresh, Params, Results, SearchSpace, read_params, seconds_of


@dataclass(frozen=True, slots=True)
class MeasuredAnnealingParams:
    """``hot``: temperature at the start, as a difference of log times; it falls by half every ``half_life`` results.
    A chain that made no step for ``patience`` proposals starts again at random. ``tries``: neighbours drawn to find one
    that is new. ``chains``: how many are kept, the best ones."""

    chains: int = 16
    hot: float = 0.5
    half_life: float = 32.0
    patience: int = 6
    tries: int = 6


@dataclass(slots=True)
class _Chain:
    at: Candidate
    seconds: float
    idle: int = 0


class MeasuredAnnealing:
    def __init__(self, space: SearchSpace, rng: np.random.Generator, params: MeasuredAnnealingParams) -> None:
        self._space = space
        self._rng = rng
        self._params = params
        self._fresh = Fresh(space, rng)
        self._chains: list[_Chain] = []
        self._pending: dict[str, _Chain] = {}
        self._results = 0

    def propose(self, n: int) -> list[Candidate]:
        """A new neighbour of each of ``n`` chains; random candidates for chains that do not exist yet."""
        out: list[Candidate] = []
        for chain in self._chains[:n]:
            found = None if chain.idle >= self._params.patience else self._new_neighbour(chain.at)
            if found is None:
                drawn = self._fresh.random(1)
                if not drawn:
                    continue
                found, chain.seconds, chain.idle = drawn[0], math.inf, 0
            chain.idle += 1
            self._pending[found.key] = chain
            out.append(found)
        return out + self._fresh.random(n - len(out))

    def observe(self, results: Results) -> None:
        """Move the chains."""
        p = self._params
        for c, result in results:
            self._fresh.take([c])
            seconds = seconds_of(result)
            self._results += 1
            chain = self._pending.pop(c.key, None)
            if chain is None:
                if math.isfinite(seconds):
                    self._chains.append(_Chain(c, seconds))
                continue
            temperature = p.hot * 0.5 ** (self._results / p.half_life)
            if self._accepts(seconds, chain.seconds, temperature):
                chain.at, chain.seconds, chain.idle = c, seconds, 0
        self._chains = sorted(self._chains, key=lambda x: x.seconds)[: p.chains]

    def _accepts(self, new: float, old: float, temperature: float) -> bool:
        if not math.isfinite(new):
            return False
        if new <= old:
            return True
        return bool(self._rng.random() < math.exp(-math.log(new / old) / max(temperature, 1e-9)))

    def _new_neighbour(self, c: Candidate) -> Candidate | None:
        for _ in range(self._params.tries):
            found = self._space.neighbour(c, self._rng)
            if found is not None and self._fresh.take([found]):
                return found
        return None


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> MeasuredAnnealing:
    """Annealing on measured times; the score is not used."""
    return MeasuredAnnealing(space, rng, read_params(MeasuredAnnealingParams, params, "annealing-measured"))
