"""Seconds from the start of a process to its first result, memory of ten such processes, and what further runs take."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.config import child_environment
from tilewright.core.errors import MeasurementError
from tilewright.deploy.include import get_include
from tilewright.deploy.toolchain import Workshop

_SOURCES = ("bench/first_result.c", "loader/loader.c", "errors.c", "files.c")
_HEADERS = ("tilewright.h", "tilewright_dl.h", "internal.h", "platform.h")
_PYTHON = """
import sys, time
import numpy as np
import tilewright
model = tilewright.load(sys.argv[1], int(sys.argv[2]))
sizes = iter(map(int, sys.argv[3:]))
feed = {s.name: np.zeros([d if isinstance(d, int) else next(sizes, 1) for d in s.shape], s.dtype) for s in model.inputs}
model.run(feed)
print(time.monotonic_ns())
"""
_RIVAL = """
import sys, time
import numpy as np
import onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = int(sys.argv[2]) or 0
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
sizes = iter(map(int, sys.argv[3:]))
kinds = {"tensor(float)": "f4", "tensor(double)": "f8", "tensor(int64)": "i8", "tensor(int32)": "i4",
         "tensor(bool)": "?", "tensor(uint8)": "u1", "tensor(int8)": "i1"}
feed = {i.name: np.zeros([d if isinstance(d, int) else next(sizes, 1) for d in i.shape], kinds[i.type])
        for i in session.get_inputs()}
session.run(None, feed)
print(time.monotonic_ns())
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Words of a command that runs a model once, to which the path of the model, the number of threads and the sizes of
    symbolic dimensions are added."""

    words: tuple[str, ...]
    model: str


def c_program(shop: Workshop, artifact: Path) -> Program:
    """A program in C that opens an artifact. Raises TargetError where there is no C compiler."""
    native = Path(get_include())
    names = [shop.write(Path(name).name, [(native / name).read_bytes()]) for name in (*_SOURCES, *_HEADERS)]
    shop.run(["-std=c11", "-O2", "-I.", *(n for n in names if n.endswith(".c")), "-o", "first_result", "-ldl"])
    return Program((os.fspath(shop["first_result"]),), os.fspath(artifact))


def python_program(artifact: Path) -> Program:
    """The same in Python."""
    return Program((sys.executable, "-c", _PYTHON), os.fspath(artifact))


def onnxruntime_program(model: Path) -> Program:
    """ONNX Runtime, in Python, with the model that the artifact is of."""
    return Program((sys.executable, "-c", _RIVAL), os.fspath(model))


def seconds_to_first_result(program: Program, threads: int, sizes: Sequence[int]) -> float:
    """From before the process starts to when its first result is there. Raises MeasurementError if it fails."""
    words = [*program.words, program.model, str(threads), *map(str, sizes)]
    start = time.monotonic_ns()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise MeasurementError(f"{program.model}: {(done.stderr or done.stdout).strip()[-500:]}")
    return (int(done.stdout.split()[-1]) - start) / 1e9


def microseconds_of_runs(program: Program, threads: int, sizes: Sequence[int], batches: int) -> tuple[float, float]:
    """Of a run through the C interface, and of its kernels: the lower deciles of so many batches of runs. ``program``:
    that of C. Raises MeasurementError if it fails."""
    words = [*program.words, program.model, str(threads), *map(str, sizes)]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=child_environment({"TW_RUNS": str(batches)})
    )
    if done.returncode:
        raise MeasurementError(f"{program.model}: {done.stderr.strip()[-500:]}")
    run, kernels = map(float, done.stdout.splitlines()[-1].split())
    return run, kernels


def memory_of_processes(program: Program, threads: int, sizes: Sequence[int], count: int) -> Mapping[str, int]:
    """Bytes of ``count`` processes after their first results, each of which waits for the others: the sum of their
    proportional shares (pages that several have count once), and of what each would have alone. Linux only."""
    words = [*program.words, program.model, str(threads), *map(str, sizes)]
    running = [
        subprocess.Popen(words, stdout=subprocess.PIPE, env=child_environment({"TW_WAIT": "1"})) for _ in range(count)
    ]
    try:
        for p in running:
            if p.stdout is None or not p.stdout.readline():
                raise MeasurementError(f"{program.model}: the program ended before its first result")
        found = {"Pss": 0, "Rss": 0}
        for p in running:
            text = Path(f"/proc/{p.pid}/smaps_rollup").read_text()
            for kind in found:
                match = re.search(rf"^{kind}:\s+(\d+) kB", text, re.MULTILINE)
                found[kind] += 1024 * int(match[1]) if match else 0
    finally:
        for p in running:
            p.kill()
            p.communicate()
    return found
