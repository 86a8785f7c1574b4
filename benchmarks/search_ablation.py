#!/usr/bin/env python3
"""Which search strategy finds fast schedules in the fewest trials? Six tasks, several seeds, one table and one plot.

    python benchmarks/search_ablation.py record  --log search-ablation.jsonl [--pool 350] [--threads 1]
    python benchmarks/search_ablation.py compare --log search-ablation.jsonl [--seeds 5] [--trials 128] [--out NAME]

``record`` measures schedules of each task, two thirds drawn at random and one third proposed by annealing with the cost
model; it needs an otherwise idle machine, some ten minutes, and goes on where it stopped. ``compare`` measures nothing:
strategies choose among the recorded candidates of a task and get the recorded times, so that the table repeats from the
log; a random draw is one of those recorded at random. With one thread the times repeat better: two processors of a
virtual machine are sometimes two halves of one core. The best known speed of a task is the best in the log.
``--out NAME`` writes NAME.md and, if matplotlib is installed, NAME.png.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from tuning_tasks import read_tasks

from tilewright.autotune.base.space import Space
from tilewright.autotune.cost_model.cost_model import CostModel, HeuristicModel
from tilewright.autotune.cost_model.predict import FeatureCache, ModelScore
from tilewright.autotune.cost_model.rank_correlation import rank_correlation
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.cost_model.xgboost_model import XGBoostConfig, XGBoostModel
from tilewright.autotune.measure.measurer import EvaluatorConfig, LocalMeasurer
from tilewright.autotune.records.database import JSONDatabase, open_database
from tilewright.autotune.records.dataset import Dataset
from tilewright.autotune.records.record import Record
from tilewright.autotune.search.history import Trial
from tilewright.autotune.search.recorded_space import RecordedSpace
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import seconds_of
from tilewright.autotune.search.tuner import Budget, tune_task
from tilewright.core.io.files import begins_with, require_replaceable, write_file

GOAL = 0.95
"""The share of the best known speed that counts as found."""
BATCH = 8
NOISE = 0.02
"""Differences in speed below this are those of measuring the same thing twice."""
_SPLITS = 5

OURS = "annealing + model"
CONTENDERS: dict[str, tuple[str, Callable[[int], CostModel]]] = {
    OURS: ("annealing", lambda seed: XGBoostModel(XGBoostConfig(seed=seed))),
    "annealing + roofline": ("annealing", lambda seed: HeuristicModel()),
    "annealing, measured": ("annealing-measured", lambda seed: HeuristicModel()),
    "evolution + model": ("evolutionary", lambda seed: XGBoostModel(XGBoostConfig(seed=seed))),
    "random": ("random", lambda seed: HeuristicModel()),
    "grid": ("grid", lambda seed: HeuristicModel()),
}
PAGE = begins_with("a page of this benchmark", b"# Search strategies compared\n\nTrials until ")


TASKS = ("conv 3x3", "conv 1x1", "depthwise", "dense", "batched matmul", "softmax")
"""Of the public set."""


def record(log: str, pool: int, threads: int | None) -> None:
    """Measure schedules of each task until the log has ``pool`` of each: the default, random ones, then annealing's."""
    database = JSONDatabase(log)
    tasks = read_tasks()
    for name in TASKS:
        task = tasks.task(name, threads)
        space = Space(task.func, task.target)
        print(f"{name}: {space.size()} schedules", flush=True)
        for strategy, goal in (("random", pool - pool // 3), ("annealing", pool)):
            missing = goal - len(database.measured(task.workload, task.target))
            if missing <= 0:
                continue
            begin = time.monotonic()
            with LocalMeasurer(EvaluatorConfig()) as measurer:
                budget = Budget(max_trials=missing, batch=16)
                result = tune_task(task, space, measurer, strategy=strategy, database=database, budget=budget)
            seconds = time.monotonic() - begin
            print(
                f"  {strategy}: {len(result.trials)} known, {result.speedup:.2f}x the default, "
                f"{missing / seconds:.1f} trials/s, failed: {result.failures}",
                flush=True,
            )


# -- the comparison ------------------------------------------------------------------------------------------------
def run(name: str, space: RecordedSpace, cache: FeatureCache, trials: int, seed: int) -> list[float]:
    """The best time after each trial."""
    strategy_name, make = CONTENDERS[name]
    training_set = TrainingSet(make(seed))
    rng = np.random.default_rng(seed)
    strategy = STRATEGIES[strategy_name](space, ModelScore(training_set.model, cache), rng, {})
    done: list[Trial] = []
    batch = [space.default()]
    while batch and len(done) < trials:
        results = [(c, space.measure(c)) for c in batch]
        done += [Trial(len(done) + i, c, o) for i, (c, o) in enumerate(results)]
        strategy.observe(results)
        training_set.add(cache.rows(batch), [seconds_of(o) for _, o in results], "task")
        training_set.refit()
        batch = strategy.propose(min(BATCH, trials - len(done))) if len(done) < trials else []
    best, curve = math.inf, []
    for t in done:
        best = min(best, t.seconds)
        curve.append(best)
    return curve


def trials_to_goal(curve: Sequence[float]) -> float:
    """The number of the first trial at the goal; inf if there is none. ``curve``: shares of the best known speed."""
    return next((n + 1.0 for n, share in enumerate(curve) if share >= GOAL), math.inf)


def compare(log: str, seeds: int, trials: int) -> dict[str, dict[str, list[list[float]]]]:
    """Curves of relative speed (best known = 1): by task, contender and seed."""
    groups: dict[str, list[Record]] = {}
    for r in open_database(log).records():
        groups.setdefault(r.task, []).append(r)
    out: dict[str, dict[str, list[list[float]]]] = {}
    for task, records in groups.items():
        space = RecordedSpace(records)
        cache = FeatureCache(space.func, records[0].target, records[0].dims)
        ideal = min(seconds_of(o) for o in space.results.values())
        out[task] = {}
        for name in CONTENDERS:
            curves = [run(name, space, cache, trials, seed) for seed in range(seeds)]
            out[task][name] = [[ideal / s for s in curve] for curve in curves]
            print(f"{task}: {name}", flush=True)
    return out


def correlations(data: Dataset) -> tuple[dict[str, float], dict[str, float]]:
    """Spearman by task: unseen candidates (trained on half of the task's and on all others), and unseen tasks."""
    seen, unseen = {}, {}
    for task in data.tasks():
        mine, others = data.of(task), data.without(task)
        model = XGBoostModel()
        if len(others):
            model.fit(others.features, others.seconds, others.groups)
            unseen[task] = rank_correlation(model.predict(mine.features), mine.seconds) or 0.0
        found = []
        for split in range(_SPLITS):
            held_out = np.random.default_rng(split).permutation(len(mine)) < len(mine) // 2
            known, test = mine.select(~held_out), mine.select(held_out)
            rows = np.concatenate([others.features, known.features])
            model.fit(rows, np.concatenate([others.seconds, known.seconds]), [*others.groups, *known.groups])
            found.append(rank_correlation(model.predict(test.features), test.seconds) or 0.0)
        seen[task] = float(np.mean(found))
    return seen, unseen


def table(
    results: Mapping[str, Mapping[str, list[list[float]]]], data: Dataset, log: str, trials: int, threads: int
) -> str:
    """The text of the report."""
    seeds = len(next(iter(next(iter(results.values())).values())))
    lines = [
        "# Search strategies compared",
        "",
        f"Trials until {GOAL:.0%} of the best known speed, median of {seeds} seeds; in brackets the share of the best",
        f"known speed after {trials} trials, the worst seed. {len(data)} recorded candidates of {len(results)} tasks;",
        "the strategies choose among these; what is drawn at random are the two thirds recorded so. Recorded for "
        f"{threads} thread{'s' if threads > 1 else ''},",
        "on a machine with nothing else to do, and written by",
        "",
        f"    python benchmarks/search_ablation.py record --log {Path(log).name} --threads {threads}",
        f"    python benchmarks/search_ablation.py compare --log {Path(log).name} --seeds {seeds} --trials {trials}",
        "",
        "| task | " + " | ".join(CONTENDERS) + " |",
        "|---|" + "---|" * len(CONTENDERS),
    ]
    needed = {n: [[trials_to_goal(c) for c in by_name[n]] for by_name in results.values()] for n in CONTENDERS}
    for place, (task, by_name) in enumerate(results.items()):
        cells = []
        for name, curves in by_name.items():
            cells.append(f"{_count(float(np.median(needed[name][place])), trials)} ({min(c[-1] for c in curves):.2f})")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    medians = {n: float(np.median(np.array(rows))) for n, rows in needed.items()}
    lines.append("| all | " + " | ".join(f"**{_count(m, trials)}**" for m in medians.values()) + " |")
    ours, chance = results_of(results, OURS), results_of(results, "random")
    worse = [sum(a < b * (1 - by) - 1e-9 for a, b in zip(ours, chance, strict=True)) for by in (0.0, NOISE)]
    lines += [
        "",
        f"{OURS.capitalize()} needs {_count(medians[OURS], trials)} trials where random search needs "
        f"{_count(medians['random'], trials)} (medians over tasks and seeds),",
        f"and ends worse in {worse[0]} of {len(ours)} runs, in {worse[1]} by more than the {NOISE:.0%} that two",
        "measurements of one candidate differ by.",
        "",
        "Spearman's correlation of prediction and measurement. Unseen candidates: trained on half of the task's and on",
        f"all of the others, tested on the other half; the mean of {_SPLITS} splits. Unseen task: trained on",
        "the others only.",
        "",
        "| task | unseen candidates | unseen task |",
        "|---|---|---|",
    ]
    seen, unseen = correlations(data)
    for task in data.tasks():
        name = task.rsplit(" ", 3)[0]  # without workload and machine
        lines.append(f"| {name} | {seen[task]:.2f} | {unseen.get(task, math.nan):.2f} |")
    return "\n".join(lines) + "\n"


def results_of(results: Mapping[str, Mapping[str, list[list[float]]]], name: str) -> list[float]:
    """The share of the best known speed at the end of each run of a contender."""
    return [c[-1] for by_name in results.values() for c in by_name[name]]


def _count(needed: float, trials: int) -> str:
    return f">{trials}" if math.isinf(needed) else f"{needed:.0f}"


def plot(results: Mapping[str, Mapping[str, list[list[float]]]], path: str) -> bool:
    """One panel a task: the median curve of each contender, shaded between its quartiles. False without matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    columns = min(3, len(results))
    rows = -(-len(results) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(4.5 * columns, 3.2 * rows), squeeze=False)
    for ax, (task, by_name) in zip(axes.flat, results.items(), strict=False):
        for name, curves in by_name.items():
            length = min(map(len, curves))
            stacked = np.array([c[:length] for c in curves])
            x = np.arange(1, length + 1)
            (line,) = ax.plot(x, np.median(stacked, 0), label=name, linewidth=1.4)
            low, high = np.quantile(stacked, [0.25, 0.75], 0)
            ax.fill_between(x, low, high, alpha=0.15, color=line.get_color(), linewidth=0)
        ax.axhline(GOAL, color="grey", linewidth=0.7, linestyle=":")
        ax.set(title=task, xlabel="trials", ylabel="share of best known speed", xscale="log", ylim=(0.3, 1.02))
    axes.flat[0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(f"{path}.png", dpi=120)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("what", choices=["record", "compare"])
    p.add_argument("--log", required=True)
    p.add_argument("--pool", type=int, default=350)
    p.add_argument("--threads", type=int)
    p.add_argument("--seeds", type=int, default=5)
    p.add_argument("--trials", type=int, default=128)
    p.add_argument("--out")
    args = p.parse_args(argv)
    if args.what == "record":
        record(args.log, args.pool, args.threads)
        return 0
    if args.out:
        require_replaceable(f"{args.out}.md", PAGE)
    results = compare(args.log, args.seeds, args.trials)
    database = open_database(args.log)
    threads = max(r.target.threads for r in database.records())
    text = table(results, database.to_arrays(), args.log, args.trials, threads)
    print(text)
    if args.out:
        if plot(results, args.out):
            text += f"\n![best speed found against trials, for each task]({Path(args.out).name}.png)\n"
        else:
            print("no plot: matplotlib is not installed (pip install 'tilewright[plots]')")
        write_file(f"{args.out}.md", PAGE, text.encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
