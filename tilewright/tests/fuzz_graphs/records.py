"""Tuning records of random schedules, as if they had been measured: what a build with a database replays."""

from __future__ import annotations

import numpy as np
import onnx

import tilewright
from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.autotune.records.record import make_record
from tilewright.codegen.detect_cpu import parse_target

_SIZE = 5
"""What records say of symbolic dims."""


def random_records(model: onnx.ModelProto, threads: int, rng: np.random.Generator) -> MemoryDatabase:
    """A database with one random candidate for each kernel of the model that has more than one."""
    target = parse_target(None).with_threads(threads)
    lowered = tilewright.compile(model, threads=threads, cache=False, progress=False, stop_after="lower")
    database = MemoryDatabase()
    for func in lowered.funcs.values():
        candidate = Space(func, target).sample(rng)
        if candidate is not None:
            task = Task(func, target, dict.fromkeys(func.dims, _SIZE))
            database.append(make_record(task, candidate, Ok(1e-6, (1e-6,), 0.0, 0.1)))
    return database
