"""The learned cost model: gradient-boosted trees that rank the candidates of a task.

Trained with a pairwise ranking loss on groups, one per task: only the order within a task is learned, so that rows of
different tasks, sizes and machines mix, and what is learned on one task carries over to another. Source of the idea:
AutoTVM (Chen et al., 2018). xgboost is imported when a model is first trained or loaded.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.autotune.cost_model.cost_model import CostModel, HeuristicModel, require_rows
from tilewright.autotune.cost_model.features import COLUMNS, CYCLES_COLUMN, SCHEMA
from tilewright.core.errors import InputError
from tilewright.core.extras import optional_package
from tilewright.core.io.files import begins_with, write_file

_TIE = 0.02
"""Times closer than this (relative) count as equal: the noise of a measurement."""
_LEVELS = 250
_FORMAT = "tilewright cost model"
_FILE = begins_with("a cost model", f'{{"format":"{_FORMAT}",'.encode())


class CostModelWarning(UserWarning):
    """A cost model failed, and another one ranks in its place."""


@dataclass(frozen=True, slots=True)
class XGBoostConfig:
    """``objective``: ``rank:pairwise``, or ``reg:squarederror`` on log times relative to the best of the task.

    ``prior``: weight of the roofline's score, to which the trees add what it does not know; it matters while there are
    few measurements, and for tasks never seen (with 1, the rank correlation on softmax, trained on five other tasks,
    was 0.25 to 0.61 for five seeds; with 2, 0.53 to 0.72). ``threads`` bounds xgboost's own; 1 also leaves no thread
    behind that could disturb a measurement.
    """

    objective: str = "rank:pairwise"
    rounds: int = 160
    max_depth: int = 5
    eta: float = 0.1
    min_child_weight: float = 3.0
    subsample: float = 1.0
    colsample: float = 0.4
    pairs: int = 40
    prior: float = 2.0
    max_rows: int = 6000
    threads: int = 1
    seed: int = 0


class XGBoostModel:
    """Ranks with boosted trees; before the first fit, or with nothing to tell apart, with the roofline.

    Transfer: ``pretrain`` rows stay part of every later fit, with the weight of their number; a model from a file is
    kept, and every later fit adds trees to it.
    """

    def __init__(self, config: XGBoostConfig | None = None) -> None:
        self.config = XGBoostConfig() if config is None else config
        self._booster: Any = None
        self._foundation: Any = None
        self._base: tuple[np.ndarray, np.ndarray, list[str]] | None = None

    @property
    def is_trained(self) -> bool:
        return self._booster is not None

    def pretrain(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        """Keep measurements of other tasks or machines for every fit to come, and fit on them now."""
        self._base = (require_rows(features), np.asarray(seconds, np.float64), [f"before/{g}" for g in groups])
        self.fit(features[:0], np.zeros(0), [])

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        rows, times, names = require_rows(features), np.asarray(seconds, np.float64), list(groups)
        if not len(rows) == len(times) == len(names):
            raise InputError(f"cost model: got {len(rows)} rows, {len(times)} times and {len(names)} groups")
        if self._base is not None:
            rows = np.concatenate([self._base[0], rows])
            times = np.concatenate([self._base[1], times])
            names = self._base[2] + names
        rows, times, ids = _latest(rows, times, names, self.config.max_rows)
        labels = _labels(times, ids)
        if not _has_order(labels, ids):
            return
        self._booster = self._train(rows, labels, ids)

    def predict(self, features: np.ndarray) -> np.ndarray:
        rows = require_rows(features)
        if self._booster is None:
            return HeuristicModel().predict(rows)
        if not len(rows):
            return np.zeros(0)
        margin = self._prior(rows)
        scores = self._booster.inplace_predict(rows, predict_type="margin", base_margin=margin)
        return np.asarray(scores, np.float64)

    def _prior(self, rows: np.ndarray) -> np.ndarray:
        return -self.config.prior * rows[:, CYCLES_COLUMN]

    def importance(self) -> dict[str, float]:
        """Columns by total gain, largest first; empty before training."""
        if self._booster is None:
            return {}
        gains = self._booster.get_score(importance_type="total_gain")
        found = {COLUMNS[int(k[1:])]: float(v) for k, v in gains.items()}
        return dict(sorted(found.items(), key=lambda x: -x[1]))

    def _train(self, rows: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> Any:
        c = self.config
        xgboost = optional_package("xgboost", "tuning")
        margin = self._prior(rows)
        for g in np.unique(ids):  # only the order within a task counts
            margin[ids == g] -= margin[ids == g].mean()
        params: dict[str, object] = {
            "objective": c.objective, "max_depth": c.max_depth, "eta": c.eta, "min_child_weight": c.min_child_weight,
            "subsample": c.subsample, "colsample_bytree": c.colsample, "nthread": c.threads, "seed": c.seed,
            "tree_method": "hist", "max_bin": 64, "verbosity": 0,
        }  # fmt: skip
        if c.objective.startswith("rank:"):
            # normalised gradients would make small groups count as much as large ones, and learn far more slowly
            params |= {"lambdarank_num_pair_per_sample": c.pairs, "lambdarank_pair_method": "mean",
                       "lambdarank_normalization": False, "lambdarank_score_normalization": False}  # fmt: skip
            data = xgboost.DMatrix(rows, label=labels, qid=ids, base_margin=margin, nthread=c.threads)
        else:
            data = xgboost.DMatrix(rows, label=labels, base_margin=margin, nthread=c.threads)
        booster = xgboost.train(params, data, num_boost_round=c.rounds, xgb_model=self._foundation)
        booster.set_param({"nthread": c.threads})
        return booster

    # -- files -----------------------------------------------------------------------------------------------------
    def save(self, path: str | Path) -> None:
        """Write the model with the schema of its features. Raises InputError if it was never trained, or ``path`` is
        another kind of file."""
        if self._booster is None:
            raise InputError(f"{path}: expected a trained cost model, got one without training")
        trees = json.loads(bytes(self._booster.save_raw("json")))
        data = {"format": _FORMAT, "schema": SCHEMA, "config": asdict(self.config), "trees": trees}
        write_file(path, _FILE, json.dumps(data, separators=(",", ":")).encode())

    @staticmethod
    def load(path: str | Path) -> XGBoostModel:
        """Read :meth:`save`'s file. Raises InputError if it is another file or was trained on other features."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as e:
            raise InputError(f"{path}: expected a cost model: {e}") from e
        if not isinstance(data, dict) or data.get("format") != _FORMAT:
            raise InputError(f"{path}: expected a cost model, got another JSON file")
        if data.get("schema") != SCHEMA:
            ours, theirs = _schema_text(SCHEMA), _schema_text(data.get("schema"))
            raise InputError(
                f"{path}: expected a model for features of {ours}, got one for {theirs}; train it again from a log"
            )
        out = XGBoostModel(XGBoostConfig(**data["config"]))
        xgboost = optional_package("xgboost", "tuning")
        booster = xgboost.Booster()
        booster.load_model(bytearray(json.dumps(data["trees"]).encode()))
        booster.set_param({"nthread": out.config.threads})
        out._booster = out._foundation = booster
        return out


class FallbackModel:
    """``primary`` until it fails; from then on ``fallback``, with one :class:`CostModelWarning` that says why."""

    def __init__(self, primary: CostModel, fallback: CostModel | None = None) -> None:
        self.primary = primary
        self.fallback = HeuristicModel() if fallback is None else fallback
        self.reason: str | None = None

    def fit(self, features: np.ndarray, seconds: np.ndarray, groups: Sequence[str]) -> None:
        if self.reason is None:
            try:
                self.primary.fit(features, seconds, groups)
            except _FAILURES as e:
                self._give_up("fit", e)
        if self.reason is not None:
            self.fallback.fit(features, seconds, groups)

    def predict(self, features: np.ndarray) -> np.ndarray:
        if self.reason is None:
            try:
                scores = self.primary.predict(features)
            except _FAILURES as e:
                self._give_up("predict", e)
            else:
                if scores.shape == (len(features),) and np.isfinite(scores).all():
                    return scores
                self._give_up("predict", ValueError(f"scores of shape {scores.shape}, or not finite"))
        return self.fallback.predict(features)

    def _give_up(self, when: str, error: BaseException) -> None:
        self.reason = f"{when}: {type(error).__name__}: {error}"
        name = type(self.fallback).__name__
        text = f"cost model {type(self.primary).__name__} failed ({self.reason}); {name} ranks from here on"
        warnings.warn(text, CostModelWarning, stacklevel=3)


_FAILURES = (ImportError, ValueError, TypeError, KeyError, OSError, RuntimeError, MemoryError, ArithmeticError)
"""What a broken or incompatible xgboost raises (its own error is a ValueError)."""


def default_model(seed: int = 0, threads: int = 1, pretrained: str | Path | None = None) -> FallbackModel:
    """The model that the tuner uses: boosted trees, falling back to the roofline."""
    if pretrained is not None:
        return FallbackModel(XGBoostModel.load(pretrained))
    return FallbackModel(XGBoostModel(XGBoostConfig(seed=seed, threads=threads)))


# -- training data -------------------------------------------------------------------------------------------------
def _latest(
    rows: np.ndarray, times: np.ndarray, names: Sequence[str], limit: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """At most ``limit`` latest rows, sorted by group, with the group's number."""
    start = max(0, len(rows) - limit)
    rows, times, names = rows[start:], times[start:], list(names)[start:]
    number = {name: n for n, name in enumerate(dict.fromkeys(names))}
    ids = np.array([number[n] for n in names], np.int64)
    order = np.argsort(ids, kind="stable")
    return rows[order], times[order], ids[order]


def _labels(times: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Relevance, higher for faster: steps of ``_TIE`` behind the slowest that counts; 0 for a failure."""
    labels = np.zeros(len(times), np.float32)
    for g in np.unique(ids):
        mine = (ids == g) & np.isfinite(times)
        if mine.any():
            behind = np.log(times[mine] / times[mine].min()) / _TIE
            labels[mine] = 1.0 + np.maximum(0.0, _LEVELS - np.floor(behind))
    return labels * np.float32(_TIE)


def _has_order(labels: np.ndarray, ids: np.ndarray) -> bool:
    """True if some group has two different labels."""
    return any(len(np.unique(labels[ids == g])) > 1 for g in np.unique(ids))


def _schema_text(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return "an unknown version"
    return f"version {schema.get('version')} ({schema.get('columns')} columns, {schema.get('digest')})"
