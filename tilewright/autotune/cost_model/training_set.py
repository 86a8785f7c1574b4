"""The training data of a cost model that several tasks share, and when it is time to fit it again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.autotune.cost_model.cost_model import CostModel
from tilewright.autotune.cost_model.features import COLUMNS

_SHARE = 0.05


class TrainingSet:
    """Collects rows of every task that tunes with ``model``; one group per task."""

    def __init__(self, model: CostModel, least: int = 8) -> None:
        self.model = model
        self._least = least
        self._rows: list[np.ndarray] = []
        self._seconds: list[float] = []
        self._groups: list[str] = []
        self._fitted = 0

    @property
    def fitted(self) -> int:
        """Measurements that the model was fitted to the last time, 0 if it never was."""
        return self._fitted

    @property
    def waiting(self) -> str:
        """Why a model that was never fitted was not."""
        return f"{len(self._seconds)} measurements, the first fit needs {self._least}"

    def add(self, rows: np.ndarray, seconds: Sequence[float], group: str) -> None:
        """More measurements (inf for a failure)."""
        self._rows.append(rows)
        self._seconds.extend(seconds)
        self._groups.extend([group] * len(seconds))

    def refit(self) -> bool:
        """Fit if enough is new: a batch, or a twentieth of all there is. True if it was fitted."""
        new = len(self._seconds) - self._fitted
        if new < max(self._least, _SHARE * len(self._seconds)):
            return False
        self.model.fit(*self.arrays())
        self._fitted = len(self._seconds)
        return True

    def arrays(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Features, seconds and groups."""
        rows = np.concatenate(self._rows) if self._rows else np.zeros((0, len(COLUMNS)), np.float32)
        self._rows = [rows]
        return rows, np.array(self._seconds, np.float64), list(self._groups)
