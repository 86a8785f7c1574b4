"""Simulated annealing over decisions, guided by a cost model: the strategy the tuner uses.

Chains walk from candidate to neighbour and accept by the Metropolis rule on the model's score, while the temperature
falls. They go on from batch to batch; chains that stand still are restarted, some from the best candidates measured.
Of all candidates the chains saw, a batch takes those of high score that differ from each other, and a few at random, so
that the model keeps learning where it is wrong. Source: AutoTVM (Chen et al., 2018).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

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
from tilewright.core.errors import InputError


@dataclass(frozen=True, slots=True)
class AnnealingParams:
    """``chains`` walk ``steps`` steps a batch, at a temperature from ``hot`` to ``cold`` (in standard deviations of the
    scores). ``epsilon`` of a batch is random, ``first_epsilon`` of the first one. ``elite`` chains start from the best
    measured. A chain is restarted after ``patience`` batches without an accepted step; the walk of a batch ends early
    after ``early_stop`` steps that put nothing among the best. ``diversity`` weighs difference against score. ``pool``:
    candidates kept from batch to batch.
    """

    chains: int = 8
    steps: int = 3
    hot: float = 0.25
    cold: float = 0.02
    epsilon: float = 0.1
    first_epsilon: float = 0.4
    elite: float = 0.5
    patience: int = 3
    early_stop: int = 4
    diversity: float = 0.3
    pool: int = 256


@dataclass(slots=True)
class _Chain:
    at: Candidate
    score: float = -math.inf
    idle: int = 0


@dataclass(slots=True)
class _Measured:
    best: list[tuple[float, Candidate]] = field(default_factory=list)

    def add(self, results: Results, limit: int) -> None:
        for c, result in results:
            if math.isfinite(seconds := seconds_of(result)):
                self.best.append((seconds, c))
        self.best = sorted(self.best, key=lambda x: x[0])[:limit]


class Annealing:
    def __init__(self, space: SearchSpace, score: Score, rng: np.random.Generator, params: AnnealingParams) -> None:
        self._space = space
        self._score = score
        self._rng = rng
        self._params = params
        self._fresh = Fresh(space, rng)
        self._chains: list[_Chain] = []
        self._pool: dict[str, Candidate] = {}
        self._measured = _Measured()
        self._batches = 0

    def propose(self, n: int) -> list[Candidate]:
        """``n`` candidates: some random, the rest the best and most different that the chains saw."""
        p = self._params
        epsilon = p.epsilon if self._batches else p.first_epsilon
        self._batches += 1
        chance = self._fresh.random(min(n, _round_up(epsilon * n, self._rng)))
        self._walk(n)
        known = [c for c in self._pool.values() if self._fresh.is_new(c)]
        scores = self._score(known)
        chosen = self._fresh.take(pick_diverse(known, scores, n - len(chance), p.diversity))
        order = sorted(range(len(known)), key=lambda i: (-scores[i], i))[: p.pool]
        self._pool = {known[i].key: known[i] for i in order}
        out = [*chosen, *chance]
        if len(out) < n:
            out += self._fresh.random(n - len(out))
        return out

    def observe(self, results: Results) -> None:
        """Remember the best as starting points."""
        self._fresh.take(c for c, _ in results)
        self._measured.add(results, max(1, self._params.chains))

    # -- the walk --------------------------------------------------------------------------------------------------
    def _walk(self, n: int) -> None:
        p = self._params
        self._restart()
        scores = self._score([c.at for c in self._chains])
        for chain, s in zip(self._chains, scores, strict=True):
            chain.score = float(s)
            self._remember(chain.at)
        moved = [False] * len(self._chains)
        top = sorted(scores, reverse=True)[:n]
        quiet = 0
        for step in range(p.steps):
            drawn = [self._space.neighbour(x.at, self._rng) for x in self._chains]
            tried = [(i, c) for i, c in enumerate(drawn) if c is not None]
            if not tried:
                break
            found = self._score([c for _, c in tried])
            spread = float(np.std([c.score for c in self._chains])) or 1.0
            temperature = spread * (p.hot + (p.cold - p.hot) * step / max(1, p.steps - 1))
            better = False
            for (i, c), s in zip(tried, found, strict=True):
                if self._fresh.is_new(c):
                    better |= c.key not in self._pool and (len(top) < n or s > top[-1])
                self._remember(c)
                chain = self._chains[i]
                gain = float(s) - chain.score
                if gain >= 0 or self._rng.random() < math.exp(gain / temperature):
                    chain.at, chain.score, moved[i] = c, float(s), True
            top = sorted([*top, *map(float, found)], reverse=True)[:n]
            quiet = 0 if better else quiet + 1
            if quiet >= p.early_stop:
                break
        for chain, was in zip(self._chains, moved, strict=True):
            chain.idle = 0 if was else chain.idle + 1

    def _restart(self) -> None:
        """Fill up the chains, and replace those that stand still: from the best measured first, then at random."""
        p = self._params
        self._chains = [c for c in self._chains if c.idle < p.patience]
        standing = {c.at.key for c in self._chains}
        starts = [c for _, c in self._measured.best[: max(1, int(p.elite * p.chains))] if c.key not in standing]
        if len(self._chains) >= p.chains and starts:
            # the worst chains make room for candidates that turned out well
            self._chains.sort(key=lambda c: -c.score)
            del self._chains[p.chains - min(len(starts), p.chains // 4) :]
        while len(self._chains) < p.chains and starts:
            self._chains.append(_Chain(starts.pop(0)))
        for _ in range(2 * p.chains):
            if len(self._chains) >= p.chains:
                break
            drawn = self._space.sample(self._rng)
            if drawn is not None:
                self._chains.append(_Chain(drawn))

    def _remember(self, c: Candidate) -> None:
        if self._fresh.is_new(c):
            self._pool.setdefault(c.key, c)


def _round_up(x: float, rng: np.random.Generator) -> int:
    """``x`` rounded at random, so that its mean is kept for small batches too."""
    whole = math.floor(x)
    return whole + int(rng.random() < x - whole)


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> Annealing:
    """Annealing guided by a score. Raises InputError without one."""
    if score is None:
        raise InputError("strategy annealing: expected a cost model, got none; annealing-measured does without")
    return Annealing(space, score, rng, read_params(AnnealingParams, params, "annealing"))
