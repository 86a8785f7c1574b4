#!/usr/bin/env python3
"""Search strategies and cost models on a public set of tuning tasks: one entry a run, and entries side by side.

    python benchmarks/leaderboard.py -o random.json --strategy random --cost-model none
    python benchmarks/leaderboard.py -o mine.json --strategy mine.py:make --cost-model mine.py:Model [--trials 64]
    python benchmarks/leaderboard.py --compare random.json mine.json
    python benchmarks/leaderboard.py --list

An entry is tuned on each task of ``tuning_tasks.json`` with each seed, from nothing, with a fixed number of trials;
candidates are measured in worker processes, as ``tilewright tune`` does it, and the best few again, in turns. With 64
trials and 3 seeds that takes about a quarter of an hour on a machine with nothing else to do. The file of an entry is
written after each run, and the same command goes on where it stopped.

``--strategy``: a name, or ``FILE.py:NAME`` of a function that makes one (docs/tuning.md). ``--cost-model``:
``xgboost``, ``roofline`` (of the features, not trained), ``none`` (all candidates alike), or ``FILE.py:NAME`` of a
class or function without arguments. Times count as shares of what the default schedule takes in the same run, measured
in turns, so that a machine that was slower on one day favours nobody. The table has, of each entry and task, the share
of the best known speed at the end (geometric mean over the seeds) and, in brackets, the mean of that share over all
trials: the area under the curve.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tuning_tasks import TaskSet, read_tasks

from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import CostModel, HeuristicModel, TableModel, require_cost_model
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.cost_model.xgboost_model import XGBoostConfig, XGBoostModel
from tilewright.autotune.measure.measurer import EvaluatorConfig, LocalMeasurer, Measurer
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import Maker
from tilewright.autotune.search.tuner import Budget, tune_task
from tilewright.core.console import table
from tilewright.core.errors import InputError, TilewrightError
from tilewright.core.io.files import begins_with, require_replaceable, write_file
from tilewright.core.options import require_choice

FORMAT = "tilewright-leaderboard-1"
ENTRY = begins_with("an entry of the leaderboard", f'{{\n "format": "{FORMAT}"'.encode())
MODELS: Mapping[str, Callable[[int], CostModel]] = {
    "xgboost": lambda seed: XGBoostModel(XGBoostConfig(seed=seed)),
    "roofline": lambda seed: HeuristicModel(),
    "none": lambda seed: TableModel({}),
}
DRIFT = 1.1
"""Two measurements of a default schedule that differ by more than this factor say that the machine was busy in one."""


@dataclass(frozen=True, slots=True)
class Run:
    """A task tuned once. ``curve``: the best seconds after each trial, None while none succeeded. ``best_seconds`` and
    ``default_seconds``: measured in turns at the end. ``failures``: trials by kind. ``seconds``: all of it took."""

    task: str
    seed: int
    workload: str
    default_seconds: float | None
    best_seconds: float | None
    curve: list[float | None]
    failures: dict[str, int]
    seconds: float

    @property
    def ratio(self) -> float | None:
        """The time of the best as a share of the default's; None if either is unknown."""
        return (
            None if self.best_seconds is None or not self.default_seconds else self.best_seconds / self.default_seconds
        )

    def shares(self, ideal: float) -> list[float]:
        """The share of the best known speed after each trial, 0 while none succeeded. ``ideal``: the least ratio that
        was confirmed; a lower one, which was not, counts as that."""
        default = self.default_seconds
        return [0.0 if s is None or not default else min(1.0, ideal * default / s) for s in self.curve]


@dataclass(slots=True)
class Entry:
    """What one strategy with one cost model did. ``digest``: of the set of tasks."""

    name: str
    strategy: str
    cost_model: str
    trials: int
    cpu: str
    threads: int
    digest: str
    tilewright: str = field(default_factory=lambda: version("tilewright"))
    runs: list[Run] = field(default_factory=list)

    def about(self) -> dict[str, Any]:
        """What must be equal for runs to be of one entry."""
        return {k: v for k, v in asdict(self).items() if k not in ("runs", "tilewright")}

    def write(self, path: str) -> None:
        """The file that others compare with."""
        write_file(path, ENTRY, json.dumps({"format": FORMAT, **asdict(self)}, indent=1).encode() + b"\n")


def read_entry(path: str) -> Entry:
    """Raises InputError for anything else."""
    try:
        found = json.loads(Path(path).read_text("utf-8"))
        if found.pop("format") != FORMAT:
            raise KeyError("format")
        return Entry(**{**found, "runs": [Run(**r) for r in found["runs"]]})
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(f"{path}: expected {ENTRY.what} ({FORMAT}), found something else: {e}") from e


# -- an entry --------------------------------------------------------------------------------------------------------
def named(text: str, who: str) -> Any:
    """What ``FILE.py:NAME`` names. Raises InputError."""
    path, _, name = text.rpartition(":")
    if not Path(path).is_file():
        raise InputError(f"{who}: expected FILE.py:NAME, found no file {path!r}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise InputError(f"{who}: expected a file of Python, got {path!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(module.__name__, module)  # dataclasses look their module up
    spec.loader.exec_module(module)
    if not callable(getattr(module, name, None)):
        raise InputError(f"{who}: expected a class or function {name!r} in {path}, found none")
    return getattr(module, name)


def strategy_of(text: str) -> Maker:
    """By name, or of a file."""
    found: Maker = (
        named(text, "--strategy") if ":" in text else STRATEGIES[require_choice("--strategy", text, STRATEGIES)]
    )
    return found


def model_of(text: str) -> Callable[[int], CostModel]:
    """What makes a cost model for a seed: by name, or of a file."""
    if ":" not in text:
        return MODELS[require_choice("--cost-model", text, MODELS)]
    made = named(text, "--cost-model")
    return lambda seed: require_cost_model(made())


def run(
    task: Task, maker: Maker, model: CostModel, trials: int, seed: int, measurer: Measurer,
    clock: Callable[[], float] = time.monotonic,
) -> Run:  # fmt: skip
    """Tune a task from nothing."""
    begin = clock()
    done = tune_task(
        task, Space(task.func, task.target), measurer, strategy=maker, training_set=TrainingSet(model), seed=seed,
        budget=Budget(max_trials=trials), clock=clock,
    )  # fmt: skip
    if done.interrupted:
        raise KeyboardInterrupt
    best = [row["best"] for row in done.to_dicts()]
    curve = [*best, *[best[-1]] * (trials - len(best))]  # a space with fewer candidates
    return Run(
        task.name, seed, task.workload, done.default_seconds, None if done.best is None else done.best.seconds,
        curve, done.failures, clock() - begin,
    )  # fmt: skip


def enter(
    entry: Entry, tasks: TaskSet, names: Sequence[str], seeds: int, measurer: Measurer, path: str,
    say: Callable[[str], None] = print,
) -> None:  # fmt: skip
    """All runs that the entry lacks; the file is written after each."""
    maker, make_model = strategy_of(entry.strategy), model_of(entry.cost_model)
    known = {(r.task, r.seed) for r in entry.runs}
    for name in names:
        task = tasks.task(name, entry.threads)
        for seed in range(seeds):
            if (name, seed) in known:
                continue
            found = run(task, maker, make_model(seed), entry.trials, seed, measurer)
            entry.runs.append(found)
            entry.write(path)
            gain = (found.default_seconds or 0.0) / found.best_seconds if found.best_seconds else 0.0
            failed = f", failed: {found.failures}" if found.failures else ""
            say(f"{name}, seed {seed}: {gain:.2f}x the default in {found.seconds:.0f} s{failed}")


# -- entries side by side ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Score:
    """Shares of the best known speed, 0 to 1: ``speed`` at the end, ``area`` over all trials."""

    speed: float
    area: float


def best_known(entries: Sequence[Entry]) -> dict[str, float]:
    """The least ratio by task, as measured at the end of the runs of all entries."""
    out: dict[str, float] = {}
    for r in (r for e in entries for r in e.runs):
        if r.ratio is not None:
            out[r.task] = min(r.ratio, out.get(r.task, r.ratio))
    return out


def score(runs: Sequence[Run], ideal: float) -> Score:
    """Of the runs of a task, whose best known ratio is ``ideal``. Without a valid candidate the share is zero."""
    ends = [0.0 if r.ratio is None else ideal / r.ratio for r in runs]
    return Score(geometric_mean(ends), float(np.mean([np.mean(r.shares(ideal)) for r in runs])))


def geometric_mean(values: Sequence[float]) -> float:
    """0 if one of them is."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values and min(values) > 0 else 0.0


def scores(entries: Sequence[Entry]) -> dict[str, list[Score]]:
    """By task that all of them have, in the order of the first: a score for each entry. Raises InputError if they do
    not compare: other machines, tasks or numbers of trials."""
    for key in ("cpu", "threads", "digest", "trials"):
        if len(values := {str(getattr(e, key)) for e in entries}) > 1:
            raise InputError(f"--compare: expected entries of one {key}, got {', '.join(sorted(values))}")
    by_task = [{name: [r for r in e.runs if r.task == name] for name in {r.task for r in e.runs}} for e in entries]
    names = [n for n in dict.fromkeys(r.task for r in entries[0].runs) if all(n in x for x in by_task)]
    if not names:
        raise InputError("--compare: expected entries with runs of the same tasks, found none")
    ideal = best_known(entries)
    return {n: [score(x[n], ideal[n]) if n in ideal else Score(0.0, 0.0) for x in by_task] for n in names}


def drifts(entries: Sequence[Entry]) -> list[str]:
    """Tasks whose default schedule did not take the same time in all runs: the machine was busy in one of them."""
    found: dict[str, list[float]] = {}
    for r in (r for e in entries for r in e.runs):
        if r.default_seconds is not None:
            found.setdefault(r.task, []).append(r.default_seconds)
    return [
        f"{name}: the default schedule took {max(s) / min(s):.2f} times as long in one run as in another"
        for name, s in found.items()
        if max(s) > DRIFT * min(s)
    ]


def report(entries: Sequence[Entry]) -> str:
    """The table, the means, and what is odd."""
    found = scores(entries)
    rows = [(name, *(f"{s.speed:.3f} ({s.area:.3f})" for s in of_task)) for name, of_task in found.items()]
    columns = list(zip(*found.values(), strict=True))
    means = [f"{geometric_mean([s.speed for s in c]):.3f} ({np.mean([s.area for s in c]):.3f})" for c in columns]
    rows.append(("geometric mean (mean area)", *means))
    seeds = ", ".join(f"{e.name} {len({r.seed for r in e.runs})}" for e in entries)
    head = f"{entries[0].cpu}, {entries[0].threads} thread(s), {entries[0].trials} trials; seeds: {seeds}"
    parts = [head, table(("task", *(f" {e.name}" for e in entries)), rows)]
    workloads: dict[str, set[str]] = {}
    for r in (r for e in entries for r in e.runs):
        workloads.setdefault(r.task, set()).add(r.workload)
    odd = [f"{n}: the kernels differ (of another version of tilewright?)" for n, w in workloads.items() if len(w) > 1]
    odd += drifts(entries)
    return "\n\n".join([*parts, *(["\n".join(odd)] if odd else [])])


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("-o", "--output", metavar="FILE", help="tune, and write or continue the entry there")
    what.add_argument("--compare", nargs="+", metavar="FILE", help="entries, side by side")
    what.add_argument("--list", action="store_true", help="the tasks")
    p.add_argument(
        "--strategy", default="annealing", help=f"{', '.join(STRATEGIES)} or FILE.py:NAME (default: annealing)"
    )
    p.add_argument("--cost-model", default="xgboost", help=f"{', '.join(MODELS)} or FILE.py:NAME (default: xgboost)")
    p.add_argument("--name", help="of the entry in tables (default: strategy and cost model)")
    p.add_argument("--trials", type=int, default=64, help="of each run (default: 64)")
    p.add_argument("--seeds", type=int, default=3, help="runs of each task (default: 3)")
    p.add_argument("--threads", type=int, default=1, help="of a kernel; times on one repeat better (default: 1)")
    p.add_argument("--tasks", nargs="+", metavar="NAME", help="only these")
    return p.parse_args(argv)


def main(argv: Sequence[str] | None = None, measurer: Measurer | None = None) -> int:
    args, tasks = _arguments(argv), read_tasks()
    if args.list:
        print(table(("task", "of"), [(n, t["network"]) for n, t in tasks.tasks.items()]))
        return 0
    try:
        if args.compare:
            print(report([read_entry(path) for path in args.compare]))
            return 0
        require_replaceable(args.output, ENTRY)
        names = args.tasks or list(tasks.tasks)
        entry = Entry(
            args.name or f"{args.strategy} + {args.cost_model}", args.strategy, args.cost_model, args.trials,
            tasks.task(names[0], args.threads).target.cpu, args.threads, tasks.digest,
        )  # fmt: skip
        if Path(args.output).is_file() and Path(args.output).stat().st_size:
            before = read_entry(args.output)
            if before.about() != entry.about():
                raise InputError(f"{args.output}: expected no file or an entry of this, found one of {before.about()}")
            entry = before
        if measurer is not None:
            enter(entry, tasks, names, args.seeds, measurer, args.output)
        else:
            with LocalMeasurer(EvaluatorConfig()) as local:
                enter(entry, tasks, names, args.seeds, local, args.output)
        print(f"\n{report([entry])}")
    except TilewrightError as e:
        print(f"{Path(__file__).name}: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
