#!/usr/bin/env python3
"""Compare cost models on a saved log, without measuring anything: a log is a dataset.

    python examples/compare_cost_models.py LOG

Printed is Spearman's rank correlation of predicted and measured speed: on candidates of a known task that the model has
not seen, and on a task of which it has seen nothing (transfer).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np

from tilewright.autotune.cost_model.cost_model import CostModel, HeuristicModel, RandomModel
from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.autotune.cost_model.xgboost_model import XGBoostConfig, XGBoostModel
from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.dataset import Dataset


class LinearModel:
    """A model of your own needs two methods: here, ridge regression of log times within tasks."""

    def __init__(self, strength: float = 10.0) -> None:
        self.strength = strength
        self.weights: np.ndarray | None = None

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: object) -> None:
        """Learn from measurements; times are relative to the mean of their task."""
        names = np.array(list(groups))  # type: ignore[call-overload]
        good = np.isfinite(seconds)
        x, y, names = features[good].astype(np.float64), np.log(seconds[good]), names[good]
        for g in np.unique(names):
            x[names == g] -= x[names == g].mean(0)
            y[names == g] -= y[names == g].mean()
        self.weights = np.linalg.solve(x.T @ x + self.strength * np.eye(x.shape[1]), x.T @ y)

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Higher for faster."""
        return np.zeros(len(features)) if self.weights is None else -(features.astype(np.float64) @ self.weights)


MODELS: dict[str, Callable[[], CostModel]] = {
    "chance": lambda: RandomModel(np.random.default_rng(0)),
    "roofline": HeuristicModel,
    "linear": LinearModel,
    "trees, regression": lambda: XGBoostModel(XGBoostConfig(objective="reg:squarederror")),
    "trees, ranking": XGBoostModel,
}


def seen_task(make: Callable[[], CostModel], data: Dataset) -> float | None:
    """The mean over tasks: trained on three quarters of a task's candidates, judged on the rest."""
    found = []
    for task in data.tasks():
        mine = data.of(task)
        held_out = np.random.default_rng(0).permutation(len(mine)) < len(mine) // 4
        train, test = mine.select(~held_out), mine.select(held_out)
        model = make()
        model.fit(train.features, train.seconds, train.groups)
        found.append(rank_correlation(model.predict(test.features), test.seconds))
    return _mean(found)


def unseen_task(make: Callable[[], CostModel], data: Dataset) -> float | None:
    """The mean over tasks: trained on all other tasks."""
    found = []
    for task in data.tasks():
        train, test = data.without(task), data.of(task)
        model = make()
        model.fit(train.features, train.seconds, train.groups)
        found.append(rank_correlation(model.predict(test.features), test.seconds))
    return _mean(found)


def _mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _text(x: float | None) -> str:
    return "-" if x is None else f"{x:.2f}"


def main(log: str) -> dict[str, tuple[float | None, float | None]]:
    """The table, also returned."""
    data = open_database(log).to_arrays()
    print(f"{len(data)} candidates of {len(data.tasks())} tasks\n\n{'model':<20}{'seen task':>12}{'unseen task':>14}")
    out = {}
    for name, make in MODELS.items():
        a, b = seen_task(make, data), unseen_task(make, data) if len(data.tasks()) > 1 else None
        out[name] = (a, b)
        print(f"{name:<20}{_text(a):>12}{_text(b):>14}")
    return out


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log")
    main(parser.parse_args().log)
