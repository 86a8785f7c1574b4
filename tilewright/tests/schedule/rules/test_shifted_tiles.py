"""The rule for matrix tiles that read an image as it lies: rows of the image in a step, what is outside, and the way
out where the sums are finished in another order."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr
from tilewright.machine.target import Target
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.tensor_ir.compute import Reduction, Val, build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify

PATTERN = r'sample_categorical\("(\w+\.\w+)".*decision="?(\w+)"?\)'


def target(threads: int, cpu: str = "sapphirerapids") -> Target:
    """With the caches of that CPU, whatever this machine has."""
    found = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu} -num-threads={threads}")
    return dataclasses.replace(found, l1_bytes=48 << 10, l2_bytes=2 << 20)


def of_an_image(images: int, high: int, across: int, channels: int, columns: int, backwards: bool = False) -> Func:
    """A convolution of 3 by 3 taps of padded images of words; ``backwards``: the last row first."""
    wide, steps = across + 2, channels // 16
    pixels = images * (high + 2) * wide
    blocks = (pixels + 31 + 31) // 32
    source = placeholder("A", (pixels, channels), dtypes.int32)
    b = placeholder("B", (-(-columns // 32), 3, 3 * channels, 32), dtypes.int32)
    reach = 2 * wide + 2

    def word(p: IntExpr, q: IntExpr) -> Val:
        return op("bit_or", source[p % pixels, q], 0)

    image = compute("image", (blocks * 32 + reach, channels), word, axis_names=["p", "q"])
    t, s, q = reduce_axis(3, "t"), reduce_axis(3 * steps, "s"), reduce_axis(16, "q")

    def formula(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
        left = image[m + t.index * wide + s.index // steps, s.index % steps * 16 + q.index]
        return sum_over(op("dot2", left, b[no, t.index, s.index * 16 + q.index, ni]), t, s, q)

    acc = compute("acc", (blocks * 32, b.shape[0], 32), formula, axis_names=["m", "no", "ni"])

    def result(n: IntExpr, y: IntExpr, x: IntExpr, c: IntExpr) -> Val:
        row = high - 1 - y if backwards else y
        return acc[(n * (high + 2) + row) * wide + x, c // 32, c % 32] * 2.0

    out = compute("out", (images, high, across, columns), result, axis_names=["n", "y", "x", "c"])
    return build_func("conv", [source, b], [out], [image, acc])


def decided(func: Func, on: Target) -> dict[str, str]:
    trace, rules = explained_default(func, on)
    assert rules["out"] == "shifted_tiles"
    verify(trace.apply(func))
    return dict(re.findall(PATTERN, str(trace)))


@pytest.mark.parametrize(
    ("images", "size", "channels", "columns", "threads", "order", "rows"),
    [
        (1, 56, 64, 64, 1, "rows", 14),  # B stays in the second-level cache: as many rows as have a local buffer
        (1, 56, 64, 64, 8, "rows", 1),  # a few steps for each thread
        (4, 56, 64, 64, 8, "rows", 7),
        (1, 14, 256, 256, 1, "columns", 2),  # B does not; two rows fill a block of 32 pixels
        (8, 7, 512, 512, 2, "columns", 7),
    ],
)
def test_the_order_and_the_rows_of_a_step(
    images: int, size: int, channels: int, columns: int, threads: int, order: str, rows: int
) -> None:
    found = decided(of_an_image(images, size, size, channels // 2, columns), target(threads))
    assert found["acc.order"] == order
    assert found["acc.rows"] == str(rows)
    assert ("acc.ahead" in found) == (order == "columns")
    # 36 KiB of a panel nearly fill a first-level cache of 48 KiB: rows leave them there; a larger one passes by these
    assert found["acc.stream"] == ("rows" if channels == 64 else "panel")


@pytest.mark.parametrize("order", ["columns", "rows"])
def test_the_image_is_put_together_first_and_the_steps_are_shared(order: str) -> None:
    func = of_an_image(2, 8, 7, 16, 40)
    s = schedule_by_rule(func, target(2), FixedDecider({"acc.order": order, "acc.rows": 2, "image.at": "root"}))
    found = re.findall(r"(?:for \w+ in parallel|(?:image|acc) = \w+\(\w+\[[^\]]*\]|opaque)", str(s.func))
    found = [re.sub(r"for \w+ in ", "", x) for x in found]
    assert found[0] == "image = shared(int32[244, 16]"
    assert found[-3:] == ["parallel", "acc = local(float32[32, 1, 32]", "opaque"]  # 2 rows of 9 pixels, less an edge
    outer = next(x for x in re.findall(r"for (\w+) in parallel", str(s.func)) if x.startswith("out"))
    assert outer.startswith("out_c" if order == "columns" else "out_n")


@pytest.mark.parametrize("rows", [1, 2, 4])
@pytest.mark.parametrize("order", ["columns", "rows"])
def test_it_computes_the_function(order: str, rows: int) -> None:
    func = of_an_image(1, 4, 7, 16, 40 if rows == 2 else 24)  # two panels, or a part of one
    s = schedule_by_rule(func, target(1), FixedDecider({"acc.order": order, "acc.rows": rows}))
    verify(s.func)
    assert "tiles_dot2_taps_2x2" in str(s.func)
    require_same(func, s.func)


def require_same(func: Func, done: Func) -> None:
    rng = np.random.default_rng(0)
    args = []
    for p in func.params[:2]:
        pairs = rng.integers(-3, 4, (*(int(d) for d in p.shape), 2)).astype(np.float32).view(np.uint32) >> 16
        args.append((pairs[..., 0] | pairs[..., 1] << 16).astype(np.uint32).view(np.int32))
    np.testing.assert_array_equal(interpret(done, args, {})[0], interpret(func, args, {})[0])


def test_sums_that_are_read_in_no_order_of_the_image_are_made_before() -> None:
    """Neighbours in the result are not neighbours in the product: no step of the consumer is a run of its rows."""
    func = of_an_image(1, 8, 7, 16, 24, backwards=True)
    trace, rules = explained_default(func, target(2))
    assert rules["out"] == "shifted_tiles"
    done = trace.apply(func)
    verify(done)
    assert "acc = shared(float32[" in str(done)
    assert "tiles_dot2_taps_2x2" in str(done)
    require_same(func, done)


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids -mattr=-amx-bf16"])
def test_without_tiles_it_is_a_sum_like_others(cpu: str) -> None:
    func = of_an_image(1, 8, 7, 16, 40)
    trace, rules = explained_default(func, target(2, cpu))
    assert "shifted_tiles" not in rules.values()
    assert "opaque" not in str(trace.apply(func))


def test_an_image_is_copied_where_it_is_read_if_rows_are_outside() -> None:
    """More rows in a step are copied less often, as many as have a local buffer."""
    func = of_an_image(1, 96, 96, 32, 32)
    done = explained_default(func, target(1))[0].apply(func)
    assert re.search(r"image = local\(int32\[\d+, 32\]", str(done))
    near = of_an_image(1, 4, 7, 16, 24)
    s = schedule_by_rule(near, target(1), FixedDecider({}))
    assert re.search(r"image = local\(int32\[\d+, 16\]", str(s.func))
    require_same(near, s.func)
    wide = of_an_image(1, 4, 700, 64, 32)  # three rows have no local buffer
    assert "image = shared(" in str(explained_default(wide, target(1))[0].apply(wide))
