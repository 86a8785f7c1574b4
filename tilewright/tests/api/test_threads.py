"""Threads: of the model, of its callers, across fork; memory when a model is dropped."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import convolution, perceptron, saved


def _image(seed: int, size: int = 32) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((1, 3, size, size)).astype(np.float32)


def test_one_thread_and_two_give_the_same_bits() -> None:
    one = tilewright.compile(convolution(), threads=1)
    two = tilewright.compile(convolution(), threads=2)
    for seed in range(3):
        np.testing.assert_array_equal(one.run({"x": _image(seed)})["y"], two.run({"x": _image(seed)})["y"])


def test_runs_repeat_to_the_bit() -> None:
    model = tilewright.compile(convolution(), threads=2)
    first = model.run({"x": _image(0)})["y"]
    for _ in range(5):
        np.testing.assert_array_equal(model.run({"x": _image(0)})["y"], first)


def test_sixteen_callers_at_once() -> None:
    model = tilewright.compile(perceptron(), threads=2)
    batches = [np.random.default_rng(n).standard_normal((n + 1, 32)).astype(np.float32) for n in range(16)]
    wanted = [model.run({"x": x})["y"] for x in batches]
    wrong: list[int] = []

    def call(n: int) -> None:
        for _ in range(20):
            if not np.array_equal(model.run({"x": batches[n]})["y"], wanted[n]):
                wrong.append(n)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(16)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong


def _code_mappings() -> int:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(line.split()[1].startswith("r-x") and len(line.split()) == 5 for line in maps)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_dropped_model_frees_its_code_and_constants() -> None:
    model = tilewright.compile(perceptron(seed=7))
    model.run({"x": np.ones((2, 32), np.float32)})
    array = weakref.ref(next(iter(model.plan.constants.values())))
    whole = weakref.ref(model)
    before = _code_mappings()
    del model
    gc.collect()
    assert whole() is None
    assert array() is None
    assert _code_mappings() < before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_does_not_grow_with_builds_or_sizes(tmp_path: Path) -> None:
    script = """
import gc, sys, numpy as np, tilewright
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * 4096
def build():
    model = tilewright.compile(sys.argv[1])
    for batch in range(1, 40):
        model.run({"x": np.ones((batch * 50, 32), np.float32)})
for _ in range(3):
    build()
before = resident()
for _ in range(5):
    build()
print(resident() - before)
"""
    path = saved(perceptron(width=2048), tmp_path)  # up to 16 MB of activations
    run = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, timeout=300, check=True)
    assert int(run.stdout) < 20e6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_runs(tmp_path: Path) -> None:
    script = """
import os, sys, numpy as np, tilewright
model = tilewright.compile(sys.argv[1], threads=2)
x = np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)
want = model.run({"x": x})["y"]
child = os.fork()
if child == 0:
    same = np.array_equal(model.run({"x": x})["y"], want)
    os._exit(0 if same else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert np.array_equal(model.run({"x": x})["y"], want)
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, saved(convolution(), tmp_path)], timeout=120, check=True
    )
