"""What users ask of :func:`tilewright.tune`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.autotune.cost_model.cost_model import CostModel, require_cost_model
from tilewright.autotune.search.scheduler import EFFORTS, Progress
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import Maker
from tilewright.autotune.search.tuner import Callback, TaskTuner
from tilewright.core.errors import InputError
from tilewright.core.options import (
    require_calls,
    require_choice,
    require_flag,
    require_mapping,
    require_number,
    require_whole,
    shown,
)
from tilewright.options import BuildKeywords, BuildOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(BuildOptions):
    """What :func:`tilewright.tune` takes beside the model and the database: :class:`BuildOptions` and these.

    ``feed``: the inputs to tune with, arrays by name; None for random ones. ``sizes``: those of the symbolic dimensions
    of random inputs.

    ``time_budget_s``: seconds that all of it may take, the check of the network included; None for no limit.
    ``max_trials``: how many candidates may be measured, of all kernels together; None for no limit. ``effort``:
    ``quick``, ``normal`` or ``thorough``: how many candidates of one kernel it takes at most (32, 192, 1000), and how
    little expected gain ends it. ``check_network``: time the whole network at the end, with the records and without.
    ``record_host``: have the name of this machine in the log.

    ``strategy``: what proposes candidates: the name of a strategy, or a maker of your own (docs/tuning.md).
    ``cost_model``: one of your own (:class:`~tilewright.autotune.cost_model.cost_model.CostModel`), which all tasks
    share; None for XGBoost's, or without that package the roofline of the features.
    ``strategy_params``: parameters of the strategy, by name. ``seed``: of everything that is random.

    ``max_error``: how far results may be off with ``precision="auto"``, as a share of their root mean square.
    ``samples``: more inputs to compare results on, every other one only in the end.

    ``on_trial``: functions that are called with the result of each trial. ``on_progress``: a function that is called
    with the Progress, as a task's turn begins and ends. ``on_stage``: a function that is called as each part of the
    work begins, with its name and the tuners of the tasks.

    >>> options = tilewright.TuneOptions(time_budget_s=60, sizes={"batch": 4}, effort="quick")
    >>> options.time_budget_s
    60.0
    >>> tilewright.TuneOptions(effort="heroic")
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: effort: expected one of quick, normal, thorough, got 'heroic'
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    feed: Mapping[str, np.ndarray] | None = None
    time_budget_s: float | None = 60.0
    max_trials: int | None = None
    effort: str = "normal"
    seed: int = 0
    strategy: str | Maker = "annealing"
    strategy_params: Mapping[str, object] = field(default_factory=dict)
    cost_model: CostModel | None = None
    check_network: bool = True
    record_host: bool = False
    max_error: float = 1e-2
    samples: Sequence[Mapping[str, np.ndarray]] = ()
    on_trial: Sequence[Callback] = ()
    on_progress: Callable[[Progress], None] | None = None
    on_stage: Callable[[str, Sequence[TaskTuner]], None] | None = None

    def _plain(self) -> dict[str, object]:
        for option in ("on_progress", "on_stage"):
            if not callable(given := getattr(self, option)) and given is not None:
                raise InputError(f"{option}: expected a function, got {shown(given)}")
        plain = BuildOptions._plain(self) | {
            "sizes": {d: require_whole(f"sizes[{d!r}]", n, 0) for d, n in require_mapping("sizes", self.sizes).items()},
            "feed": None if self.feed is None else require_mapping("feed", self.feed),
            "effort": require_choice("effort", self.effort, EFFORTS),
            "seed": require_whole("seed", self.seed, 0),
            "strategy_params": require_mapping("strategy_params", self.strategy_params),
            "cost_model": None if self.cost_model is None else require_cost_model(self.cost_model),
            "max_error": require_number("max_error", self.max_error),
            "samples": _feeds(self.samples),
            "check_network": require_flag("check_network", self.check_network),
            "record_host": require_flag("record_host", self.record_host),
            "on_trial": require_calls("on_trial", self.on_trial),
        }
        if self.time_budget_s is not None:
            plain["time_budget_s"] = require_number("time_budget_s", self.time_budget_s)
        if self.max_trials is not None:
            plain["max_trials"] = require_whole("max_trials", self.max_trials, 0)
        if not callable(self.strategy):
            plain["strategy"] = require_choice("strategy", self.strategy, STRATEGIES)
        return plain


def _feeds(given: object) -> tuple[Mapping[str, object], ...]:
    if isinstance(given, Mapping | str) or not isinstance(given, Iterable):
        raise InputError(f"samples: expected dicts of arrays, got {shown(given)}")
    return tuple(require_mapping(f"samples[{k}]", x) for k, x in enumerate(given))


class TuneKeywords(BuildKeywords, total=False):
    """:class:`TuneOptions`, for type checkers."""

    sizes: Mapping[str, int]
    feed: Mapping[str, np.ndarray] | None
    time_budget_s: float | None
    max_trials: int | None
    effort: str
    seed: int
    strategy: str | Maker
    strategy_params: Mapping[str, object]
    cost_model: CostModel | None
    check_network: bool
    record_host: bool
    max_error: float
    samples: Sequence[Mapping[str, np.ndarray]]
    on_trial: Sequence[Callback]
    on_progress: Callable[[Progress], None] | None
    on_stage: Callable[[str, Sequence[TaskTuner]], None] | None
