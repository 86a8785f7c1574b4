"""Options of a whole piece of work as one frozen value, checked when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.autotune.search.scheduler import EFFORTS, Progress
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import Maker
from tilewright.autotune.search.tuner import Callback, TaskTuner
from tilewright.core.errors import InputError
from tilewright.core.index_ranges import OUT_OF_RANGE, OutOfRange
from tilewright.core.options import (
    require_calls,
    require_choice,
    require_flag,
    require_mapping,
    require_names,
    require_number,
    require_whole,
    shown,
)
from tilewright.machine.target import Target


@dataclass(frozen=True, slots=True)
class TuneOptions:
    """What :func:`tilewright.tune` takes beside the model and the database.

    ``sizes``: of the symbolic dimensions, when ``feed`` (arrays by input name) is not given. ``effort``: ``quick``,
    ``normal`` or ``thorough``. ``strategy``: a name or a maker of your own. ``check_network``: time the whole network
    at the end. ``out_of_range``: as for :func:`tilewright.compile`. ``on_trial``, ``on_progress``: called as results
    arrive; ``on_stage``: as each part of the work begins.
    """

    target: str | Target | None = None
    threads: int | None = None
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    feed: Mapping[str, np.ndarray] | None = None
    opt_level: str = "all"
    disabled_pass: str | Sequence[str] = ()
    enabled_pass: str | Sequence[str] = ()
    time_budget_s: float | None = 60.0
    max_trials: int | None = None
    effort: str = "normal"
    seed: int = 0
    strategy: str | Maker = "annealing"
    strategy_params: Mapping[str, object] = field(default_factory=dict)
    check_network: bool = True
    cache: bool = True
    out_of_range: OutOfRange = "error"
    on_trial: Sequence[Callback] = ()
    on_progress: Callable[[Progress], None] | None = None
    on_stage: Callable[[str, Sequence[TaskTuner]], None] | None = None

    def __post_init__(self) -> None:
        for option in ("on_progress", "on_stage"):
            if not callable(given := getattr(self, option)) and given is not None:
                raise InputError(f"{option}: expected a function, got {shown(given)}")
        plain: dict[str, object] = {
            "sizes": {d: require_whole(f"sizes[{d!r}]", n, 0) for d, n in require_mapping("sizes", self.sizes).items()},
            "feed": None if self.feed is None else require_mapping("feed", self.feed),
            "disabled_pass": require_names("disabled_pass", self.disabled_pass),
            "enabled_pass": require_names("enabled_pass", self.enabled_pass),
            "effort": require_choice("effort", self.effort, EFFORTS),
            "seed": require_whole("seed", self.seed, 0),
            "out_of_range": require_choice("out_of_range", self.out_of_range, OUT_OF_RANGE),
            "strategy_params": require_mapping("strategy_params", self.strategy_params),
            "check_network": require_flag("check_network", self.check_network),
            "cache": require_flag("cache", self.cache),
            "on_trial": require_calls("on_trial", self.on_trial),
        }
        if self.time_budget_s is not None:
            plain["time_budget_s"] = require_number("time_budget_s", self.time_budget_s)
        if self.max_trials is not None:
            plain["max_trials"] = require_whole("max_trials", self.max_trials, 0)
        if not callable(self.strategy):
            plain["strategy"] = require_choice("strategy", self.strategy, STRATEGIES)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
