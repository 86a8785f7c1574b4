"""What a cost model is, and the models without training: the roofline of the features, chance, and a table.

A model gives a score to each row of features; higher means faster. Scores compare candidates of one task only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from tilewright.autotune.cost_model.features import COLUMNS, CYCLES_COLUMN
from tilewright.core.errors import InputError
from tilewright.core.options import shown


class CostModel(Protocol):
    """Learns from measurements and ranks candidates.

    ``fit`` gets all measurements there are: a row of features, seconds (inf for a failure) and a group (the task) each;
    it replaces what was fitted before. ``predict`` gives a score per row, higher for faster.
    """

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None: ...

    def predict(self, features: np.ndarray) -> np.ndarray: ...


class HeuristicModel:
    """The roofline in the features: no training, deterministic, the fallback of every other model."""

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        """Learns nothing."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        rows = require_rows(features)
        return -rows[:, CYCLES_COLUMN].astype(np.float64)


class RandomModel:
    """Chance, from a generator: the floor for every comparison."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        """Learns nothing."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        return self._rng.random(len(require_rows(features)))


class TableModel:
    """Scores looked up by the row itself; unknown rows get ``default``. For tests and for oracles from a log."""

    def __init__(self, scores: Mapping[bytes, float], default: float = 0.0) -> None:
        self._scores = scores
        self._default = default

    @staticmethod
    def from_arrays(features: np.ndarray, seconds: np.ndarray) -> TableModel:
        """The model that knows these measurements; a failure scores lowest."""
        rows = require_rows(features)
        return TableModel(
            {row_key(r): float(-np.log(s)) if np.isfinite(s) else -np.inf for r, s in zip(rows, seconds, strict=True)}
        )

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        """Learns nothing."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        return np.array([self._scores.get(row_key(r), self._default) for r in require_rows(features)], np.float64)


def require_cost_model(given: object) -> CostModel:
    """``given`` if it has the two methods of a cost model. Raises InputError."""
    if isinstance(given, type):
        raise InputError(
            f"cost_model: expected a cost model, got the class {given.__name__}; make one: {given.__name__}()"
        )
    lacking = [name for name in ("fit", "predict") if not callable(getattr(given, name, None))]
    if lacking:
        raise InputError(
            f"cost_model: expected an object with fit and predict, got {shown(given)} without {lacking[0]}"
        )
    return given  # type: ignore[return-value]  # it has both


def row_key(row: np.ndarray) -> bytes:
    """What a table keeps of a row of features."""
    return np.ascontiguousarray(row, np.float32).tobytes()


def require_rows(features: np.ndarray) -> np.ndarray:
    """``features`` if it is a matrix with one column a feature. Raises InputError."""
    if features.ndim != 2 or features.shape[1] != len(COLUMNS):
        raise InputError(f"cost model: expected features of shape (n, {len(COLUMNS)}), got {features.shape}")
    return features
