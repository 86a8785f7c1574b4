"""The rule for products in matrix tiles: where A's blocks are made, and what the threads share."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.prepare.steps import prepare
from tilewright.core import dtypes
from tilewright.kernels.check_tiles import tile_operands, tile_product_func
from tilewright.machine.target import Target
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import explained_default, schedule_by_rule
from tilewright.schedule.rules.tiling.matrix_tiles import blocks_for_tiles
from tilewright.tensor_ir.analysis.prefetching import ahead_of_nest
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.hints import Prefetch, Stream, find_hint
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import TILE_PRODUCTS
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.schedule.helper import f32

RAPIDS = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids")


def target(threads: int) -> Target:
    return dataclasses.replace(RAPIDS, threads=threads, l1_bytes=48 << 10, l2_bytes=2 << 20, l3_bytes=32 << 20)


def with_blocks(rows: int, steps: int, columns: int) -> Func:
    """``out = A @ B`` of words, where a stage puts A into blocks."""
    a = placeholder("A", (rows, steps * 16), dtypes.int32)
    b = placeholder("B", (-(-columns // 32), steps * 16, 32), dtypes.int32)
    down = -(-rows // 32)
    blocks = compute("tiles", (down, steps, 32, 16), lambda mo, s, mi, q: op("bit_or", a[mo * 32 + mi, s * 16 + q], 1))
    s, q = reduce_axis(steps, "s"), reduce_axis(16, "q")
    acc = compute(
        "acc", (down * 32, b.shape[0], 32),
        lambda m, no, ni: sum_over(
            op("dot2", blocks[m // 32, s.index, m % 32, q.index], b[no, s.index * 16 + q.index, ni]), s, q
        ),
        axis_names=["m", "no", "ni"],
    )  # fmt: skip
    out = compute("out", (rows, columns), lambda m, n: acc[m, n // 32, n % 32] * 2.0, axis_names=["m", "n"])
    return build_func("product", [a, b], [out], [blocks, acc])


def scheduled(func: Func, on: Target) -> list[str]:
    """The lines of the default schedule that say where its loops and buffers are."""
    trace, rules = explained_default(func, on)
    assert rules["out"] == "matrix_tiles"
    done = trace.apply(func)
    verify(done)
    found = re.findall(r"(?:for \w+ in parallel|(?:tiles|acc) = \w+\(\w+\[[^\]]*\]|opaque)", str(done))
    return [re.sub(r"for \w+ in ", "", x) for x in found]


def test_many_rows_are_shared_and_put_into_blocks_where_they_are_used() -> None:
    func = with_blocks(1024, 8, 256)
    assert blocks_for_tiles(func) == {"tiles"}
    assert scheduled(func, target(1)) == [
        "tiles = local(int32[8, 8, 32, 16]",
        "acc = local(float32[256, 1, 32]",  # eight row tiles: what finishes them trails
        "opaque",
    ]
    assert scheduled(func, target(2)) == [
        "parallel", "tiles = local(int32[4, 8, 32, 16]", "acc = local(float32[128, 1, 32]", "opaque",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "steps", "threads", "found"),
    [
        (128, 24, 1, ("acc = local(float32[128, 1, 32]", "s_0 in range(2)", "acc_m_0 in range(4)")),
        (416, 24, 1, ("acc = local(float32[32, 1, 32]",)),  # 13 tiles are not cut evenly
        (448, 24, 2, ("acc = local(float32[224, 1, 32]", "s_0 in range(2)", "acc_m_0 in range(7)")),
        (128, 16, 1, ("acc = local(float32[32, 1, 32]",)),  # a panel fits in the first-level cache
        (128, 29, 1, ("acc = local(float32[128, 1, 32]", "acc_m_0 in range(4)")),  # no few steps are a part of these
        (64, 29, 1, ("acc = local(float32[32, 1, 32]",)),  # nor is what finishes two tiles to trail
        (32, 24, 1, ("acc = local(float32[32, 1, 32]",)),
    ],
)
def test_steps_in_turns(rows: int, steps: int, threads: int, found: tuple[str, ...]) -> None:
    """All row tiles take some steps, then the next, and the last of them is finished when all have theirs."""
    func = with_blocks(rows, steps, 1024)
    s = schedule_by_rule(func, target(threads), FixedDecider({}))
    verify(s.func)
    text = str(s.func)
    assert [x for x in re.findall(r"acc = local\(float32\[[^\]]*\]|(?:s_0|acc_m_0) in range\(\d+\)", text)] == [*found]
    whole = schedule_by_rule(func, target(threads), FixedDecider({"acc.depth": steps})).func
    assert "s_0 in" not in str(whole)


@pytest.mark.parametrize(
    ("rows", "steps", "columns", "streamed", "turns"),
    [
        (1024, 8, 1024, "none", []),  # 16 KiB stay in a first-level cache of 48 KiB
        (1024, 16, 1024, "rows", []),  # 32 KiB only where the other operand passes by
        (128, 16, 1024, "panel", []),  # columns are inside
        (128, 24, 1024, "rows", ["12"]),
        (128, 29, 1024, "rows", []),  # no few steps are a part of these
        (32, 24, 32, "none", []),  # nothing is read again
    ],
)
def test_what_passes_by_is_streamed(rows: int, steps: int, columns: int, streamed: str, turns: list[str]) -> None:
    func = with_blocks(rows, steps, columns)
    trace = explained_default(func, target(1))[0]
    assert f'decision="{streamed}"' in next(x for x in str(trace).splitlines() if '"acc.stream"' in x)
    done = trace.apply(func)
    assert re.findall(r"s_1 in range\((\d+)\)", str(done)) == turns
    (nest,) = [x for x in walk(done.body) if isinstance(x, Loop) and x.kind == "opaque"]
    hint = find_hint(nest.hints, Stream)
    assert (None if hint is None else hint.buffer) == {"none": None, "rows": "tiles", "panel": "B"}[streamed]


@pytest.mark.parametrize("streamed", ["none", "rows", "panel"])
def test_what_is_streamed_is_loaded_so(streamed: str) -> None:
    on = target(1)
    func = schedule_by_rule(with_blocks(64, 16, 64), on, FixedDecider({"acc.stream": streamed})).func
    text = emit_kernel(prepare(func, on), on, "kernel")
    calls = re.findall(r"call void @llvm.x86.(tileload\w+)\(i8 (\d+)", text)
    assert {n for name, n in calls if name == "tileloaddt164"} == {
        "none": set(),
        "rows": {"4", "5"},
        "panel": {"6", "7"},
    }[streamed]


def test_sums_in_turns_are_those_of_the_function() -> None:
    func = with_blocks(64, 8, 32)
    on = dataclasses.replace(target(1), l1_bytes=20 << 10, l2_bytes=64 << 10)
    done = schedule_by_rule(func, on, FixedDecider({"acc.order": "columns", "acc.depth": 4})).func
    assert "s_0 in range(2)" in str(done)
    args = tile_operands(TILE_PRODUCTS["tiles_dot2_2x2"], func)
    np.testing.assert_array_equal(interpret(done, args, {})[0], interpret(func, args, {})[0])


@pytest.mark.parametrize(("columns", "blocks"), [(64, 1), (96, 16)])
def test_a_row_tile_is_made_alone_where_all_panels_stay_beside_it(columns: int, blocks: int) -> None:
    """Of seven steps, 14 KiB of a row tile and as many of each panel, in a first-level cache of 48 KiB."""
    assert scheduled(with_blocks(2048, 7, columns), target(1))[:2] == [
        f"tiles = local(int32[{blocks}, 7, 32, 16]", f"acc = local(float32[{32 * min(blocks, 8)}, 1, 32]",
    ]  # fmt: skip


def test_few_rows_are_put_into_blocks_first_and_columns_shared() -> None:
    assert scheduled(with_blocks(64, 8, 1024), target(8)) == [
        "tiles = shared(int32[2, 8, 32, 16]", "parallel", "acc = local(float32[32, 1, 32]", "opaque",
    ]  # fmt: skip


@pytest.mark.parametrize("cpu", ["znver4", "sapphirerapids -mattr=-amx-bf16"])
def test_without_tiles_it_is_a_product_like_others(cpu: str) -> None:
    on = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    func = with_blocks(64, 2, 64)
    trace, rules = explained_default(func, on)
    assert rules["out"] == "register_tiles"
    assert "opaque" not in str(trace.apply(func))


def test_rows_that_are_less_than_a_block_have_one() -> None:
    """A part of a tile is no tile: the sums have the rows of a whole block, of which some are not read."""
    func = tile_product_func(TILE_PRODUCTS["tiles_dot2_2x2"], 20, 64, 2)
    trace, rules = explained_default(func, target(2))
    assert rules["out"] == "matrix_tiles"
    assert "acc = local(float32[32, 1, 32]" in str(trace.apply(func))
    args = tile_operands(TILE_PRODUCTS["tiles_dot2_2x2"], func)
    np.testing.assert_array_equal(interpret(trace.apply(func), args, {})[0], interpret(func, args, {})[0])


def test_a_product_of_other_things_is_none() -> None:
    a, b = placeholder("A", (2, 2, 32, 16), f32), placeholder("B", (2, 32, 32), f32)
    s, q = reduce_axis(2, "s"), reduce_axis(16, "q")
    acc = compute(
        "acc", (64, 2, 32),
        lambda m, no, ni: sum_over(a[m // 32, s.index, m % 32, q.index] * b[no, s.index * 16 + q.index, ni], s, q),
    )  # fmt: skip
    func = build_func("product", [a, b], [acc])
    assert not blocks_for_tiles(func)
    assert "matrix_tiles" not in explained_default(func, target(2))[1].values()


def fetching(func: Func) -> list[Loop]:
    return [x for x in walk(func.body) if isinstance(x, Loop) and find_hint(x.hints, Prefetch)]


@pytest.mark.parametrize(("rows", "lines"), [(96, 11), (64, 16), (32, 32)])
def test_blocks_of_rows_fetch_the_next_panel_together(rows: int, lines: int) -> None:
    """Each fetches its share of what the same step of the next panel reads, 32 lines."""
    on = target(1)
    func = schedule_by_rule(with_blocks(rows, 64, 2048), on, FixedDecider({"acc.depth": 64})).func
    text = emit_kernel(prepare(func, on), on, "kernel")
    assert text.count("call void @llvm.prefetch.p0(ptr %line.") == lines
    (nest,) = fetching(func)
    found = ahead_of_nest(func, nest, "B")
    assert found is not None
    step, which, nests = found
    assert step == 64 * 16 * 32
    assert nests == rows // 32
    assert [which.evaluate(dict.fromkeys(which.free_vars(), n)) for n in range(nests)] == [*range(nests)]
    streamed = {96: "A.step", 64: "A", 32: "B"}[rows]  # what finishes three blocks trails their steps
    assert f"@intrinsic.tiles_dot2_2x2.ahead{lines}.stream{streamed}(" in text
    assert lines * nests >= 32


@pytest.mark.parametrize(
    ("rows", "columns", "threads", "fetched"),
    [
        (96, 4096, 1, True),
        (64, 1024, 2, True),  # each panel is read but once, from wherever it is
        (1024, 256, 1, False),  # all panels stay in the second-level cache
    ],
)
def test_which_panels_are_fetched(rows: int, columns: int, threads: int, fetched: bool) -> None:
    func = with_blocks(rows, 8, columns)
    assert bool(fetching(schedule_by_rule(func, target(threads), FixedDecider({})).func)) == fetched
    assert not fetching(schedule_by_rule(func, target(threads), FixedDecider({"acc.ahead": 0})).func)
