"""A depthwise convolution over a pointwise one: bands of rows, panels of channels in one nest, decisions, refusals."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace, schedule_by_rule
from tilewright.schedule.rules import fused_depthwise
from tilewright.schedule.rules.auto_inline import inline_stages
from tilewright.schedule.rules.fused_depthwise import find_pair
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.lowering.lowered import lower
from tilewright.tests.lowering.test_halo import CASES, pair
from tilewright.tests.schedule.rules.test_winograd import Pick

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 2)
F32 = dtypes.float32
LARGE = ((1, 26, 20, 4), 32, 3, (1, 1, 1, 1), 1)


def require_twin(func: Func, after: Func) -> None:
    verify(after)
    assert parse_func(str(after)) == after
    rng = np.random.default_rng(0)
    args = [rng.standard_normal([int(d) for d in p.shape]).astype(np.float32) for p in func.params[:-1]]
    np.testing.assert_array_equal(interpret(after, args, {})[0], interpret(func, args, {})[0])


@pytest.mark.parametrize("case", [*CASES, LARGE], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_default_trace(case, threads: int) -> None:  # type: ignore[no-untyped-def]
    func = lower(pair(*case)).func
    trace = default_trace(func, TARGET.with_threads(threads))
    assert "acc_1.band" in trace.to_text() or "acc_1.rows" in trace.to_text()
    assert Trace.from_text(trace.to_text()) == trace
    after = trace.apply(func)
    stage = next(b for b in buffers(after) if b.name in ("padded", "clip"))
    assert stage.scope == "local"
    assert case != LARGE or stage.shape[-1].value() == 16
    require_twin(func, after)


@pytest.mark.parametrize("band", [1, 3, 9, 13])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_every_decision_keeps_the_values(band: int, rows: int) -> None:
    func = lower(pair(*LARGE)).func
    decider = Pick(band=band, rows=rows)
    s = schedule_by_rule(func, TARGET, decider)  # type: ignore[arg-type]
    assert band in decider.asked["acc_1.band"]
    assert rows in decider.asked["acc_1.rows"]
    assert rows in decider.asked["acc.rows"]
    stage = next(b for b in buffers(s.func) if b.name == "padded")
    assert stage.shape[1].value() == band + 2
    require_twin(func, s.func)


def test_a_band_fits_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of the stage has 22 pixels of 16 channels: 1408 bytes."""
    func = lower(pair(*LARGE)).func
    for l2, band in ((1 << 19, 26), (2 * 16 * 1408, 13), (2 * 8 * 1408, 6)):
        decider = Pick()
        s = schedule_by_rule(func, dataclasses.replace(TARGET, l2_bytes=l2), decider)  # type: ignore[arg-type]
        assert f'"acc_1.band", candidates={decider.asked["acc_1.band"]}, decision={band}' in s.trace.to_text()
    monkeypatch.setattr(fused_depthwise, "LOCAL_BYTES", 1000)
    trace = default_trace(func, TARGET)
    assert "acc_1.band" not in trace.to_text()
    require_twin(func, trace.apply(func))


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 6, 1, 2), (2, 1, 5, 2)], ids=str)
def test_images_of_one_row_or_column(shape: tuple[int, int, int, int]) -> None:
    for taps, pads in ((1, (0, 0, 0, 0)), (3, (1, 1, 1, 1))):
        func = lower(pair(shape, 16, taps, pads, 1)).func
        require_twin(func, default_trace(func, TARGET).apply(func))


def test_a_pair_that_is_no_image_is_left_to_other_rules() -> None:
    a, b = placeholder("A", (6, 4), F32), placeholder("B", (2, 4, 8), F32)
    u = placeholder("U", (6,), F32)
    k, m = reduce_axis(4, "k"), reduce_axis(6, "m")
    acc = compute("acc", (6, 2, 8), lambda i, no, ni: sum_over(a[i, k] * b[no, k, ni], k))
    stage = compute("P", (6, 16), lambda i, n: acc[i, n // 8, n % 8] + 1.0)
    window = compute("W", (16,), lambda n: sum_over(stage[m, n] * u[m], m))
    func = build_func("f", [a, b, u], [compute("Y", (16,), lambda n: window[n] + 1.0)], [acc, stage, window])
    found = find_pair(Schedule(func), "Y")
    assert found is not None
    trace = default_trace(func, TARGET)
    assert "W.band" not in trace.to_text()
    require_twin(func, trace.apply(func))


def test_the_pair_is_found_by_structure() -> None:
    func = lower(pair(*LARGE)).func
    s = Schedule(func)
    assert find_pair(s, "o0") is None  # before inlining, the bias stands between
    inline_stages(s)
    found = find_pair(s, "o0")
    assert found is not None
    assert (found.pointwise, found.stage, found.depthwise, found.width) == ("acc", "padded", "acc_1", 16)
    assert find_pair(s, "padded") is None
