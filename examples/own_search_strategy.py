#!/usr/bin/env python3
"""Write a search strategy of your own, and see how it does against the others without measuring anything.

    python examples/own_search_strategy.py LOG [--trials N] [--seeds N]

A log is a space: strategies choose among the candidates recorded for a task and get the recorded times.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.features import COLUMNS
from tilewright.autotune.cost_model.predict import FeatureCache, ModelScore, Score
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.record import Record
from tilewright.autotune.search.recorded_space import RecordedSpace
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import Maker, Params, Results, SearchSpace, seconds_of


class HillClimbing:
    """From the best candidate so far to its neighbours; at random where none is left."""

    def __init__(self, space: SearchSpace, rng: np.random.Generator) -> None:
        self.space = space
        self.rng = rng
        self.best: Candidate | None = None
        self.best_seconds = math.inf
        self.taken: set[str] = set()

    def propose(self, n: int) -> list[Candidate]:
        """``n`` new candidates."""
        out: list[Candidate] = []
        for _ in range(20 * n):
            step = self.best is not None and self.rng.random() < 0.8
            c = self.space.neighbour(self.best, self.rng) if step and self.best else self.space.sample(self.rng)
            if c is not None and c.key not in self.taken:
                self.taken.add(c.key)
                out.append(c)
                if len(out) == n:
                    break
        return out

    def observe(self, results: Results) -> None:
        """Remember the best."""
        for c, result in results:
            self.taken.add(c.key)
            if seconds_of(result) < self.best_seconds:
                self.best, self.best_seconds = c, seconds_of(result)


def make(space: SearchSpace, score: Score | None, rng: np.random.Generator, params: Params) -> HillClimbing:
    """What the tuner calls; pass it as ``strategy=make`` to ``tune`` or ``tune_task``."""
    return HillClimbing(space, rng)


def best_after(maker: Maker, space: RecordedSpace, records: list[Record], trials: int, seed: int) -> float:
    """The best recorded time that a strategy finds in a number of trials."""
    training_set = TrainingSet(HeuristicModel())
    cache = FeatureCache(space.func, records[0].target, records[0].dims)
    strategy = maker(space, ModelScore(training_set.model, cache), np.random.default_rng(seed), {})
    first = space.default()
    strategy.observe([(first, space.measure(first))])
    best, done = seconds_of(space.measure(first)), 1
    while done < trials:
        batch = strategy.propose(min(4, trials - done))
        if not batch:
            break
        results = [(c, space.measure(c)) for c in batch]
        strategy.observe(results)
        best, done = min([best, *(seconds_of(o) for _, o in results)]), done + len(batch)
    return best


def main(log: str, trials: int = 16, seeds: int = 3) -> Mapping[str, float]:
    """For each strategy: the best recorded time over what it found, the mean over tasks and seeds (1 is perfect)."""
    records: dict[str, list[Record]] = {}
    for r in open_database(log).records():
        records.setdefault(r.workload.hash, []).append(r)
    makers = {**STRATEGIES, "hill climbing": make}
    found: dict[str, list[float]] = {name: [] for name in makers}
    for group in records.values():
        space = RecordedSpace(group)
        ideal = min(seconds_of(o) for o in space.results.values())
        for name, maker in makers.items():
            found[name] += [ideal / best_after(maker, space, group, trials, seed) for seed in range(seeds)]
    means = {name: float(np.mean(x)) for name, x in found.items()}
    print(f"{len(records)} tasks, {trials} trials, {len(COLUMNS)} features")
    for name, x in sorted(means.items(), key=lambda item: -item[1]):
        print(f"{name:<20} {100 * x:5.1f} % of the best recorded speed")
    return means


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    parser.add_argument("--trials", type=int, default=16)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    main(args.log, args.trials, args.seeds)
