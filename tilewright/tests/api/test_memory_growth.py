"""What a process keeps of models that it has compiled and dropped.

LLVM's pass managers, which llvmlite does not free, were 0.1 MB a kernel; what is remembered of trees of the IRs was
0.1 MB a model and more, up to bounds that many models reach together. Of llvmlite's own, a pass builder leaves 1.3 kB.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import statistics
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

import tilewright

_WARM_UP, _WINDOWS, _COUNT = 8, 5, 8
"""Builds before the first measurement; then so many windows of so many builds."""
_MOST_BYTES = 30_000
"""Of memory that a build may keep; the model below kept 510 kB, with cached objects 63, and keeps none to 5."""
_MOST_OBJECTS = 20
"""That the collector knows; they were 1,850 and 670."""
_TEXT = """<ir_version: 8, opset_import: ["": 17]> g (float[8,64] x, float[64,64] w, float[64] s) => (float[8,64] y) {
    a = MatMul(x, w) b = Softmax(a) y = LayerNormalization(b, s) }"""


def build(cache: bool) -> None:
    model = tilewright.compile(onnx.parser.parse_model(_TEXT), cache=cache, progress=False, threads=1)
    model.explain()


def resident_bytes() -> int:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


def measure(cache: bool) -> None:
    """Prints the bytes and the objects that a build leaves: the median of windows, since the heap grows in steps."""
    for _ in range(_WARM_UP):
        build(cache)
    kept, objects = [resident_bytes()], [len(gc.get_objects())]
    for _ in range(_WINDOWS):
        for _ in range(_COUNT):
            build(cache)
        kept.append(resident_bytes())
        objects.append(len(gc.get_objects()))
    for counts in (kept, objects):
        print(statistics.median((after - before) // _COUNT for before, after in itertools.pairwise(counts)))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("cache", [False, True])
def test_builds_leave_next_to_nothing(cache: bool) -> None:
    script = f"from tilewright.tests.api.test_memory_growth import measure; measure({cache})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600, check=True)
    left, objects = map(int, run.stdout.split())
    assert left < _MOST_BYTES
    assert objects < _MOST_OBJECTS
