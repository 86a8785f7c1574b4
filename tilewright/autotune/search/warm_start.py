"""What other tasks have taught: measurements of other workloads on this machine, for a cost model that starts now.

Bounded by number, so that it takes a few seconds at most and runs repeat: some workloads, the latest first, and of each
an even choice between its fastest and its slowest candidate.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.dataset import dataset_of
from tilewright.autotune.records.record import Record, target_differences
from tilewright.machine.target import Target

_MOST = 160
_A_TASK = 32


def warm_start(training_set: TrainingSet, database: Database, target: Target, own: Iterable[str]) -> int:
    """Add records of workloads not among ``own`` (hashes), measured on ``target``; how many there were."""
    found = dataset_of(chosen_records(database, target, own))
    for task in found.tasks():
        rows = found.of(task)
        training_set.add(rows.features, list(rows.seconds), task)
    if len(found):
        training_set.refit()
    return len(found)


def chosen_records(database: Database, target: Target, own: Iterable[str]) -> list[Record]:
    """The records to learn from, those of one workload together."""
    left_out = set(own)
    groups: dict[str, dict[str, Record]] = {}
    for r in (x for x in database.lines() if isinstance(x, Record)):
        known = r.seconds is not None and r.workload.hash not in left_out
        if known and not target_differences(r.target, target):
            groups.setdefault(r.workload.hash, {})[r.candidate] = r
    latest = sorted(groups.values(), key=lambda g: max((r.time, r.workload.hash) for r in g.values()), reverse=True)
    return [r for g in latest[: _MOST // _A_TASK] for r in _even(list(g.values()))]


def _even(records: list[Record]) -> list[Record]:
    ordered = sorted(records, key=lambda r: (r.seconds or 0.0, r.candidate))
    if len(ordered) <= _A_TASK:
        return ordered
    return [ordered[n * (len(ordered) - 1) // (_A_TASK - 1)] for n in range(_A_TASK)]
