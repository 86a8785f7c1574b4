"""The package works where nothing of Linux is: no ``/proc``, ``/sys``, CPU masks, huge pages, forks or C library by
name, as on Windows and macOS. Here all of that is taken away before anything is imported."""

from __future__ import annotations

import subprocess
import sys

from tilewright.tests.test_without_fcntl import BLOCK

AWAY = (
    BLOCK
    + """
import builtins, ctypes, io, mmap, os, pathlib

for name in ("sched_getaffinity", "sched_setaffinity", "register_at_fork", "preadv", "memfd_create"):
    if hasattr(os, name):
        delattr(os, name)
if hasattr(mmap, "MADV_HUGEPAGE"):
    del mmap.MADV_HUGEPAGE

def is_away(path):
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).startswith(("/proc", "/sys"))

def without(function):
    def guarded(path, *args, **more):
        if is_away(path):
            raise FileNotFoundError(2, "No such file or directory", os.fspath(path))
        return function(path, *args, **more)
    return guarded

builtins.open, io.open = without(builtins.open), without(io.open)
for name in ("read_text", "read_bytes", "iterdir", "open"):
    setattr(pathlib.Path, name, without(getattr(pathlib.Path, name)))
for name in ("is_dir", "is_file", "exists"):
    known = getattr(pathlib.Path, name)
    setattr(pathlib.Path, name, lambda path, known=known: not is_away(path) and known(path))

load = ctypes.CDLL
ctypes.CDLL = lambda name, *args, **more: object() if name is None else load(name, *args, **more)

from tilewright.codegen.native import system
system.has_functions = lambda target: False
"""
)

USE = """
import sys, threading
import numpy as np
import tilewright
from tilewright.cli import main
from tilewright.runtime.resources.threads import count_threads
from tilewright.tests.api.models import convolution, perceptron, perceptron_by_hand

assert count_threads().affinity == os.cpu_count() and count_threads().physical is None
x = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
model = tilewright.compile(perceptron(), threads=2)
np.testing.assert_allclose(model.run({"x": x})["y"], perceptron_by_hand(perceptron(), x), rtol=1e-4, atol=1e-5)

image = {"x": np.random.default_rng(1).standard_normal((1, 3, 48, 48)).astype(np.float32)}
one, two = tilewright.compile(convolution(48), threads=1), tilewright.compile(convolution(48), threads=2)
assert any(s.parallel for s in two.plan.steps)
want = one.run(image)["y"]
for _ in range(3):
    assert (two.run(image)["y"] == want).all()
wrong = []
def call():
    for _ in range(5):
        if not (two.run(image)["y"] == want).all():
            wrong.append(1)
callers = [threading.Thread(target=call) for _ in range(4)]
[t.start() for t in callers], [t.join() for t in callers]
assert not wrong
assert two.profile(image, 1).seconds > 0
session = tilewright.InferenceSession(perceptron().SerializeToString())
assert session.run(None, {"x": x})[0].shape == (5, 10)
assert (tilewright.compile(perceptron(), denormals="flush").run({"x": x})["y"] == model.run({"x": x})["y"]).all()
try:
    tilewright.compile(perceptron(), cpus=[0])
except tilewright.UnsupportedError as e:
    assert "does not keep threads on a CPU" in str(e)
else:
    raise SystemExit("cpus")
assert main(["doctor", "--no-peaks"]) == 0
"""


def _run(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", AWAY + script, *args], capture_output=True, text=True, timeout=300
    )


def test_compiling_and_running() -> None:
    run = _run(USE)
    assert run.returncode == 0, run.stderr
    assert "affinity mask" in run.stdout


def test_what_is_taken_away_is_away() -> None:
    run = _run("import os\nassert not hasattr(os, 'sched_getaffinity')\nopen('/proc/cpuinfo')\n")
    assert "FileNotFoundError" in run.stderr
    assert "AttributeError" in _run("import ctypes\nctypes.CDLL(None).sem_init\n").stderr
