"""What finishes sums of matrix tiles trails the products: where it may, and that it computes the same."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.kernel import build
from tilewright.codegen.prepare.steps import prepare
from tilewright.kernels.check_tiles import tile_operands, tile_product_func
from tilewright.machine.target import Target
from tilewright.schedule.decisions import FixedDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.intrinsics import TILE_PRODUCTS
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles
from tilewright.tests.schedule.rules.test_matrix_tiles import with_blocks
from tilewright.tests.schedule.rules.test_shifted_tiles import of_an_image

__all__ = ["tiles"]

RAPIDS = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids -num-threads=1")


def text_of(blocks: int = 4, steps: int = 2, rows: int = 128) -> str:
    """Sums of so many steps, in so many blocks, of which so many rows are finished, a slice each."""
    n = 32 * blocks
    return f"""
def f(A: int32[{blocks}, {steps}, 32, 16], B: int32[{steps}, 16, 32], p: int64[{rows}], o: out(float32[{rows}, 32])):
    acc = local(float32[{n}, 32])
    for mo in range({blocks}):
        for i in opaque(32, intrinsic="tiles_dot2_2x2"):
            for j in range(32):
                for k in range({steps}):
                    for q in range(16):
                        with block("acc", m=spatial({n}, mo*32 + i), n=spatial(32, j), r=reduce({steps}, k), s=reduce(16, q)):
                            init(float32(0.0))
                            acc[m, n] = add(acc[m, n], dot2(A[m // 32, r, m % 32, s], B[r, s, n]))
    for y in range({rows}):
        for c in vectorized(32):
            with block("o", a=spatial({rows}, y), d=spatial(32, c)):
                o[a, d] = mul(acc[a, d], float32(2.0))
"""  # noqa: E501


def marked(text: str) -> list[str]:
    done = str(prepare(parse_func(text), RAPIDS))
    assert str(parse_func(done)) == done
    return re.findall(r"for (\w+) in range\(\d+, trails=(\d+)\)", done)


@pytest.mark.parametrize(
    ("blocks", "steps", "rows", "slices"),
    [
        (4, 2, 128, 22),  # 128 rows for the six steps of the last three blocks
        (3, 8, 96, 6),
        (2, 8, 64, None),  # half of it would come after the last block
        (3, 24, 18, 1),  # four steps for each row
        (3, 25, 18, None),
    ],
)
def test_how_many_follow_a_step(blocks: int, steps: int, rows: int, slices: int | None) -> None:
    assert marked(text_of(blocks, steps, rows)) == ([] if slices is None else [("y", str(slices))])


@pytest.mark.parametrize(
    ("what", "by"),
    [
        ("acc = local", "acc = shared"),  # other threads may use it
        ("mul(acc[a, d]", "mul(acc[value(p[a]), d]"),  # any rows
        ("for y in range(128)", "for y in unrolled(128)"),  # one slice
        ("mo*32 + i)", "(3 - mo)*32 + i)"),  # the last block first
        ("mul(acc[a, d]", "mul(cast(B[0, 0, d], float32)"),  # reads no sums
    ],
)
def test_what_it_does_not_trail(what: str, by: str) -> None:
    assert what in text_of()
    assert marked(text_of())
    assert not marked(text_of().replace(what, by))


def test_a_sequence_of_nothing_is_none() -> None:
    assert marked(text_of() + "    for z in range(3):\n        pass\n") == [("y", "22")]


def test_what_writes_an_operand_of_the_products_does_not_trail() -> None:
    text = text_of().replace("    acc = local", "    w = local(int32[4, 2, 32, 16])\n    acc = local", 1)
    text = text.replace("dot2(A[", "dot2(w[")
    fill = """    for z in range(4096):
        with block("w", a=spatial(4096, z)):
            w[a // 1024, (a // 512) % 2, (a // 16) % 32, a % 16] = A[a // 1024, (a // 512) % 2, (a // 16) % 32, a % 16]
    for mo"""
    text = text.replace("    for mo", fill, 1)
    assert marked(text)
    more = """                w[a // 32, d // 16, a % 32, d % 16] = cast(acc[a, d], int32)
"""
    assert not marked(text.rstrip() + '\n            with block("v", a=spatial(128, y), d=spatial(32, c)):\n' + more)


def test_the_text_of_the_kernel() -> None:
    """A step is followed by slices; those that are left come after the products, those of one turn in the last only."""
    text = emitted(parse_func(text_of()), RAPIDS)
    assert text.count("call void @intrinsic.tiles_dot2_2x2.step(") == 1
    assert len(re.findall(r"^slice\d+:", text, re.MULTILINE)) == 2
    turns = schedule_by_rule(with_blocks(128, 24, 1024), caches(), FixedDecider({})).func
    assert "s_0 in range(2)" in str(turns)
    text = emitted(turns, caches())
    assert re.search(r"icmp eq i64 %v\d+, 1\n  %v\d+ = select i1 %v\d+, i64 %v\d+, i64 0", text)


def caches() -> Target:
    return dataclasses.replace(RAPIDS, l1_bytes=48 << 10, l2_bytes=2 << 20)


COLUMNS = {"acc.order": "columns"}
PRODUCTS = {
    "a product": (lambda: with_blocks(128, 3, 64), COLUMNS, 48),
    "a part of a panel": (lambda: with_blocks(96, 3, 40), COLUMNS, 48),
    "in turns": (lambda: with_blocks(96, 8, 64), COLUMNS | {"acc.depth": 4}, 20),
    "taps": (lambda: of_an_image(1, 8, 14, 16, 40), {"acc.rows": 8}, 48),
    "taps of two images": (lambda: of_an_image(2, 8, 14, 16, 40), {"acc.rows": 8, "acc.order": "columns"}, 48),
    **{
        name: (lambda name=name: tile_product_func(TILE_PRODUCTS[name], 96, 64, 2), COLUMNS, 48)
        for name in ("tiles_dot4_2x2", "tiles_dot2_2x1", "tiles_dot2_split_2x2", "tiles_dot2_1x1")
    },
}


@pytest.mark.parametrize("what", PRODUCTS)
def test_it_computes_the_same(tiles: State, what: str) -> None:
    make, decisions, kilobytes = PRODUCTS[what]
    func: Func = make()
    target = with_tiles(dataclasses.replace(caches(), l1_bytes=kilobytes << 10))
    done = schedule_by_rule(func, target, FixedDecider(decisions)).func
    own = with_tiles()
    assert "trails=" in str(prepare(done, own)), str(done)
    name = re.search(r'intrinsic="(\w+)"', str(done))
    assert name is not None
    args = tile_operands(TILE_PRODUCTS[name[1]], func)
    (want,) = interpret(func, args, {})
    kernel = build(done, own)
    for threads in (1, 2):
        np.testing.assert_array_equal(kernel(args, {}, threads)[0], want)
    tiles.require_clean()
