"""A log as arrays: a row per candidate, failures as inf, the latest record counts, groups are tasks."""

import dataclasses

import numpy as np

from tilewright.autotune.cost_model.features import COLUMNS, TaskFeatures
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.records.dataset import dataset_of
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, with_threads, wrong


def test_rows_are_the_features_of_the_candidates():
    found = candidates(dense(), HERE, 3)
    records = [record(dense(), c, 1e-3 * (n + 1), time=n) for n, c in enumerate(found)]
    data = dataset_of(records)
    assert data.candidates == tuple(c.key for c in found)
    np.testing.assert_array_equal(data.features[1], TaskFeatures(dense(), HERE).row(found[1].func))
    np.testing.assert_allclose(data.seconds, [1e-3, 2e-3, 3e-3])
    assert len(data.tasks()) == 1
    assert data.skipped == 0


def test_the_latest_record_counts_and_failures_are_inf():
    a, b = candidates(dense(), HERE, 2)
    data = dataset_of([record(dense(), a, 1e-3, time=5.0), record(dense(), a, 9e-3, time=2.0), wrong(dense(), b)])
    assert sorted(data.seconds) == [1e-3, np.inf]


def test_groups_are_tasks_on_machines():
    (a,) = candidates(dense(), HERE, 1)
    (other,) = candidates(dense(48), HERE, 1)
    records = [record(dense(), a, 1e-3), record(dense(48), other, 1e-3), with_threads(record(dense(), a, 2e-3), 4)]
    data = dataset_of(records)
    assert len(data.tasks()) == 3
    first = data.tasks()[0]
    assert (len(data.of(first)), len(data.without(first))) == (1, 2)


def test_what_does_not_replay_is_skipped():
    (a,) = candidates(dense(), HERE, 1)
    broken = dataclasses.replace(record(dense(), a, 1e-3), steps=({"primitive": "no", "args": {}},))
    data = dataset_of([broken])
    assert (len(data), data.skipped, data.features.shape) == (0, 1, (0, len(COLUMNS)))


def test_a_database_gives_arrays():
    (a,) = candidates(dense(), HERE, 1)
    assert len(MemoryDatabase([record(dense(), a, 1e-3)]).to_arrays()) == 1
