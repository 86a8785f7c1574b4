"""A cost model as a function of candidates: features taken once for each, scores from the model as it is now."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.autotune.base.space import Candidate
from tilewright.autotune.cost_model.cost_model import CostModel
from tilewright.autotune.cost_model.features import COLUMNS, TaskFeatures
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Func

Score: TypeAlias = Callable[[Sequence[Candidate]], np.ndarray]
"""Scores of candidates, higher for faster."""


class FeatureCache:
    """Features of the candidates of one task (its unscheduled function), kept by the candidate's key."""

    def __init__(self, func: Func, target: Target, dims: Mapping[str, int]) -> None:
        self._features = TaskFeatures(func, target, dims)
        self._rows: dict[str, np.ndarray] = {}

    def rows(self, candidates: Sequence[Candidate]) -> np.ndarray:
        """One row a candidate."""
        out = np.zeros((len(candidates), len(COLUMNS)), np.float32)
        for n, c in enumerate(candidates):
            row = self._rows.get(c.key)
            if row is None:
                row = self._rows[c.key] = self._features.row(c.func)
            out[n] = row
        return out


class ModelScore:
    """:data:`Score` by a model. The model may be refitted at any time; scores follow."""

    def __init__(self, model: CostModel, cache: FeatureCache) -> None:
        self.model = model
        self.cache = cache

    def __call__(self, candidates: Sequence[Candidate]) -> np.ndarray:
        if not candidates:
            return np.zeros(0)
        return self.model.predict(self.cache.rows(candidates))
