"""A cost model that starts learns from what the database has of other workloads, a bounded number of records."""

import numpy as np

from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import HeuristicModel
from tilewright.autotune.cost_model.training_set import TrainingSet
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.records.record import make_record
from tilewright.autotune.search.warm_start import chosen_records, warm_start
from tilewright.machine.target import Target
from tilewright.tests.schedule.kernels import packed_matmul, softmax_like

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)
OTHER = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 4)


class Listening(HeuristicModel):
    """Keeps what it was last fitted on."""

    def fit(self, features, seconds, groups):
        self.seen = (len(features), sorted(set(groups)))


def database_of(*tasks: Task, count: int) -> MemoryDatabase:
    out = MemoryDatabase()
    for task in tasks:
        space, rng = Space(task.func, task.target), np.random.default_rng(0)
        found = {c.key: c for _ in range(3 * count) if (c := space.sample(rng)) is not None}
        for n, c in enumerate(list(found.values())[:count]):
            out.append(make_record(task, c, Ok(1e-3 * (n + 1), (1e-3 * (n + 1),), 0.0, 0.1), time=float(n)))
    return out


def test_records_of_other_workloads_are_learnt():
    own = Task(packed_matmul(24, 32, 32), TARGET, {}, 1.0, "own")
    other = Task(softmax_like(64, 48), TARGET, {}, 1.0, "sm")
    database = database_of(own, other, count=12)
    training_set = TrainingSet(Listening())
    assert warm_start(training_set, database, TARGET, [own.workload]) == 12
    count, groups = training_set.model.seen
    assert count == 12
    assert len(groups) == 1
    assert groups[0].startswith("sm ")


def test_another_machine_teaches_nothing():
    other = Task(softmax_like(64, 48), OTHER, {}, 1.0, "sm")
    assert chosen_records(database_of(other, count=8), TARGET, []) == []


def test_many_records_are_thinned_out_evenly_and_always_alike():
    other = Task(packed_matmul(48, 64, 64), TARGET, {}, 1.0, "mm")
    database = database_of(other, count=40)
    chosen = chosen_records(database, TARGET, [])
    times = sorted(r.seconds for r in chosen)
    everything = sorted(r.seconds for r in database.records())
    assert len(everything) == 40
    assert len(chosen) == 32
    assert (times[0], times[-1]) == (everything[0], everything[-1])
    assert chosen == chosen_records(database, TARGET, [])
