"""Slices of slices, space to depth, Tile and Expand below what does not see them, as exporters write them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilewright.graph_ir.passes.base import Level
from tilewright.graph_ir.rules.moves.slices import joined
from tilewright.reference.slicing import slice_ranges
from tilewright.tests.graph_ir.exported import FORMS, Case, require_kept, require_rewritten

ENDS = (-(1 << 63) + 1, (1 << 63) - 1)
INTS = ", ".join(
    f"int64[1] {name} = {{{n}}}"
    for name, n in {
        "i0": 0,
        "i1": 1,
        "i2": 2,
        "i3": 3,
        "i4": 4,
        "m1": -1,
        "m2": -2,
        "low": ENDS[0],
        "end": ENDS[1],
    }.items()
)
ONE = "agraph (float[$N] x) => (float[k] y)"
TILE = "int64[2] r = {3,1}, float[4] c = {1,2,3,4}, float[4] d = {1,2,0,4}"
ROW = "agraph (float[1,4] x) => (float[3,4] y)"
BATCH = "agraph (float[1,4] x, float[$N,4] z) => (float[$N,4] y)"
ROWS = "s = Shape(z) n = Slice(s, i0, i1, i0) r = Concat<axis=0>(n, i1) t = Tile(x, r)"


def focus(order: tuple[tuple[int, int], ...], channels: int | str = 3) -> str:
    """Four slices with step 2, each in two nodes, as torch.cat of x[..., i::2, j::2] is exported."""
    body = "".join(
        f"a{k} = Slice(x, i{i}, end, i2, i2) b{k} = Slice(a{k}, i{j}, end, i3, i2) " for k, (i, j) in enumerate(order)
    )
    return (
        f"agraph (float[$B,{channels},$H,$W] x) => (float[$B,c,p,q] y) <{INTS}>"
        f" {{ {body} y = Concat<axis=1>({', '.join(f'b{k}' for k in range(len(order)))}) }}"
    )


SLICES = [
    Case(
        "twice_a_step",
        f"{ONE} <{INTS}> {{ t = Slice(x, i0, m2, i0, i2) y = Slice(t, i0, m2, i0, i2) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "from_the_front",
        f"{ONE} <{INTS}> {{ t = Slice(x, i1, end, i0) y = Slice(t, i2, end, i0) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "off_both_ends",
        f"{ONE} <{INTS}> {{ t = Slice(x, i1, m1, i0) y = Slice(t, i1, m1, i0) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "backwards_twice",
        f"{ONE} <{INTS}> {{ t = Slice(x, m1, low, i0, m1) y = Slice(t, m1, low, i0, m2) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "nothing_left",
        f"{ONE} <{INTS}> {{ t = Slice(x, i0, i2, i0) y = Slice(t, i2, end, i0) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "two_axes",
        f"agraph (float[$N,6] x) => (float[k,2] y) <{INTS}> {{ t = Slice(x, i1, m2, i0) y = Slice(t, i1, m2, i1,"
        f" i2) }}",
        ("slice_slice",),
        "Slice",
    ),
    Case(
        "read_twice",
        f"agraph (float[$N] x) => (float[k] y, float[l] z) <{INTS}> {{ t = Slice(x, i1, end, i0) y = Slice(t, i1,"
        f" end, i0) z = Slice(t, i0, m1, i0) }}",
        ("slice_slice",),
        "Slice Slice",
    ),
    Case(
        "focus",
        focus(((0, 0), (1, 0), (0, 1), (1, 1))),
        ("slice_slice", "space_to_depth"),
        "SpaceToDepth Gather",
        sizes=(2, 4),
    ),
    Case(
        "space_to_depth",
        focus(((0, 0), (0, 1), (1, 0), (1, 1)), "$N"),
        ("slice_slice", "space_to_depth"),
        "SpaceToDepth",
        sizes=(2, 6),
    ),
]

REPEATS = [
    Case(
        "tile_mul_add",
        f"{ROW} <{TILE}> {{ t = Tile(x, r) m = Mul(t, c) y = Add(m, d) }}",
        ("repeat_below_elementwise",),
        "Mul Add Tile",
    ),
    Case(
        "tile_of_a_batch",
        f"{BATCH} <{INTS}, float[4] c = {{1,2,3,4}}> {{ {ROWS} m = Mul(t, c) y = Sigmoid(m) }}",
        ("repeat_below_elementwise",),
        "Mul Sigmoid Tile",
        "Shape Slice Concat Mul Sigmoid Tile",
    ),
    Case(
        "dropped_where_the_reader_broadcasts",
        f"{BATCH} <{INTS}, float[4] c = {{1,2,3,4}}> {{ {ROWS} m = Mul(t, c) y = Add(m, z) }}",
        ("repeat_below_elementwise",),
        "Mul Add",
    ),
    Case(
        "padding_mask_of_bert",
        f"agraph (int64[$B,$N] mask, float[$B,4,$N,$N] sc) => (float[$B,4,$N,$N] y) <{INTS}, int64[2] ax = {{1,2}},"
        f" float one = {{1}}, float low_ = {{-10000}}>"
        " { u = Unsqueeze(mask, ax) s = Shape(mask) b = Slice(s, i0, i1, i0) n = Slice(s, i1, i2, i0) r ="
        " Concat<axis=0>(b, i1, n, n)"
        " e = Expand(u, r) f = Cast<to=1>(e) inv = Sub(one, f) bo = Cast<to=9>(inv) m = Where(bo, low_, inv) y ="
        " Add(sc, m) }",
        ("repeat_below_elementwise",),
        "Unsqueeze Cast Sub Cast Where Add",
    ),
    Case(
        "several_readers",
        f"{ROW} <{TILE}> {{ t = Tile(x, r) s = Sigmoid(t) m = Mul(t, s) y = Add(m, d) }}",
        ("repeat_below_elementwise",),
        "Sigmoid Mul Add Tile",
    ),
    Case(
        "below_softmax",
        f"{ROW} <{TILE}> {{ t = Tile(x, r) y = Softmax<axis=1>(t) }}",
        ("repeat_below_rows",),
        "Softmax Tile",
    ),
    Case(
        "below_a_norm",
        f"{ROW} <{TILE}> {{ t = Tile(x, r) y = LayerNormalization<axis=-1>(t, c, d) }}",
        ("repeat_below_rows",),
        "LayerNormalization Tile",
    ),
    Case(
        "below_reductions",
        f"agraph (float[2,4] x) => (float[6] y, float[1,4] z) <{TILE}> {{ t = Tile(x, r) y = ReduceMean<axes=[1],"
        f" keepdims=0>(t) z = ReduceMax<axes=[0]>(t) }}",
        ("repeat_below_rows",),
        "ReduceMean Tile ReduceMax",
    ),
    Case(
        "below_moves",
        f"agraph (float[1,4] x) => (float[4,1,3] y) <{TILE}, {INTS}> {{ t = Tile(x, r) u = Transpose<perm=[1,0]>(t)"
        f" v = Unsqueeze(u, i1) y = Exp(v) }}",
        ("repeat_below_moves", "repeat_below_elementwise"),
        "Reshape Exp Tile",
    ),
    Case(
        "queries_of_a_decoder",
        "agraph (float[3,4] x) => (float[2,3,2] y) <int64[3] r = {2,3,4}, float[4,2] w = {1,2,3,4,5,6,7,8},"
        " float[2] b = {1,2}>"
        " { t = Expand(x, r) m = MatMul(t, w) y = Add(m, b) }",
        ("repeat_below_matmul", "repeat_below_elementwise"),
        "MatMul Add Expand",
    ),
    Case(
        "two_tiles",
        f"agraph (float[2,4] x, float[2,1] z) => (float[6,4] y) <{TILE}> {{ t = Tile(x, r) u = Tile(z, r) y ="
        f" Add(t, u) }}",
        ("repeat_below_elementwise",),
        "Add Tile",
    ),
    Case(
        "expands_of_two_sizes",
        f"agraph (float[$N,1] x, float[1,$M] z) => (float[$N,$M] y) <{INTS}> {{ a = Shape(x) b = Shape(z) n ="
        f" Gather(a, i0) m = Gather(b, i1)"
        " s = Concat<axis=0>(n, m) t = Expand(x, s) u = Expand(z, s) y = Mul(t, u) }",
        ("repeat_below_elementwise",),
        "Mul",
    ),
    Case(
        "behind_a_where",
        f"agraph (bool[$N,4] k, float[1,4] x, float[$N,4] z) => (float[$N,4] y) <{INTS}> {{ {ROWS} e = Exp(t) y ="
        f" Where(k, e, z) }}",
        ("repeat_below_elementwise",),
        "Exp Where",
    ),
    Case(
        "more_axes",
        f"agraph (float[1,4] x, float[2,1,1] z) => (float[2,3,4] y) <{TILE}> {{ t = Tile(x, r) y = Add(t, z) }}",
        ("repeat_below_elementwise",),
        "Add Tile",
    ),
]

W = "float[4,2] w = {1,2,3,4,5,6,7,8}"
SIZED = f"agraph (float[1,4] x, float[$N,4] z) => (float[] y) <{INTS}, {TILE}, {W}>"
SIZED_ROWS = "s = Shape(z) n = Slice(s, i0, i1, i0) r2 = Concat<axis=0>(n, i4) t = Expand(x, r2)"
AT_RUN_TIME = [
    Case(
        "expand_below_matmul",
        f"{SIZED} {{ {SIZED_ROWS} y = MatMul(t, w) }}",
        ("repeat_below_matmul",),
        "MatMul Expand",
        "Shape Slice Concat MatMul Concat Gather Expand",
    ),
    Case(
        "expand_below_moves",
        f"{SIZED} {{ {SIZED_ROWS} u = Transpose<perm=[1,0]>(t) v = Unsqueeze(u, i1) y = Exp(v) }}",
        ("repeat_below_moves", "repeat_below_elementwise"),
        "Reshape Exp Expand",
        "Shape Slice Concat Reshape Concat Gather Exp Expand",
    ),
    Case(
        "expand_dropped_below_matmul",
        f"agraph (float[1,4] x, float[$N,4] z, float[$N,2] q) => (float[] y) <{INTS}, {W}>"
        f" {{ {SIZED_ROWS} m = MatMul(t, w) y = Add(m, q) }}",
        ("repeat_below_matmul", "repeat_below_elementwise"),
        "MatMul Add",
    ),
    Case(
        "two_products_of_one_expand",
        f"{SIZED} {{ {SIZED_ROWS} m = MatMul(t, w) o = Mul(t, t) q = MatMul(o, w) y = Add(m, q) }}",
        ("repeat_below_matmul", "repeat_below_elementwise"),
        "MatMul Mul MatMul Add Expand",
        "Shape Slice Concat MatMul Concat Gather Mul MatMul Add Expand",
    ),
    Case(
        "turned_twice",
        "agraph (float[1,1] x, float[$N,$M] z) => (float[] y)"
        " { s = Shape(z) t = Expand(x, s) u = Transpose<perm=[1,0]>(t) e = Exp(u) y = Transpose<perm=[1,0]>(e) }",
        ("repeat_below_moves", "repeat_below_elementwise"),
        "Exp Expand",
        "Shape Exp Expand",
    ),
    Case(
        "more_axes_below_matmul",
        f"agraph (float[3,4] x, float[$N,4] z) => (float[] y) <{INTS}, {W}>"
        " { s = Shape(z) n = Slice(s, i0, i1, i0) r = Concat<axis=0>(n, i3, i4) t = Expand(x, r) y = MatMul(t, w) }",
        ("repeat_below_matmul",),
        "MatMul Expand",
        "Shape Slice Concat MatMul Concat Gather Expand",
    ),
    Case(
        "tile_below_a_reduction",
        f"{SIZED} {{ s = Shape(z) n = Slice(s, i0, i1, i0) r2 = Concat<axis=0>(n, i1) t = Tile(x, r2)"
        " y = ReduceMean<axes=[1], keepdims=0>(t) }",
        ("repeat_below_rows",),
        "ReduceMean Tile",
        "Shape Slice Concat ReduceMean Gather Tile",
    ),
    Case(
        "tile_below_more_axes",
        f"agraph (float[1,4] x, float[$N,4] z, float[2,1,1] q) => (float[] y) <{INTS}>"
        " { s = Shape(z) n = Slice(s, i0, i1, i0) r = Concat<axis=0>(n, i1) t = Tile(x, r) y = Add(t, q) }",
        ("repeat_below_elementwise",),
        "Add Tile",
        "Shape Slice Concat Add Concat Gather Tile",
    ),
]

CASES = [*SLICES, *REPEATS, *AT_RUN_TIME]
KEPT = [
    (
        "slice_slice",
        f"agraph (float[$N] x, int64[1] z) => (float[k] y) <{INTS}> {{ t = Slice(x, z, m2, i0) y = Slice(t, i0, m2,"
        f" i0, i2) }}",
        "known at run time only",
    ),
    ("space_to_depth", focus(((0, 0), (1, 0), (0, 0), (1, 1))), "a place of the block comes twice"),
    ("space_to_depth", focus(((0, 0), (1, 0), (0, 1))), ""),
    (
        "repeat_below_elementwise",
        f"agraph (float[2,4] x, float[6,1] z) => (float[6,4] y) <{TILE}> {{ t = Tile(x, r) y = Add(t, z) }}",
        "sizes of its own",
    ),
    (
        "repeat_below_elementwise",
        f"agraph (float[1,4] x) => (float[3,4] y, float[3,4] t) <{TILE}> {{ t = Tile(x, r) y = Exp(t) }}",
        "'t' is an output",
    ),
    (
        "repeat_below_elementwise",
        f"agraph (float[1,4] x) => (float[3,4] y, float[3,4] z) <{TILE}> {{ t = Tile(x, r) y = Exp(t) z ="
        f" Softmax<axis=0>(t) }}",
        "which sees the repetition",
    ),
    (
        "repeat_below_rows",
        f"{ROW} <{TILE}> {{ t = Tile(x, r) y = Softmax<axis=0>(t) }}",
        "Softmax sees the repetition along axis 0",
    ),
    (
        "repeat_below_rows",
        f"agraph (float[1,4] x) => (float[1,4] y) <{TILE}> {{ t = Tile(x, r) y = ReduceMean<axes=[0]>(t) }}",
        "ReduceMean sees the repetition along axis 0",
    ),
    (
        "repeat_below_matmul",
        f"agraph (float[1,1] x, float[$N,$M] z, float[$M,2] w) => (float[] y) <{INTS}>"
        " { s = Shape(z) t = Expand(x, s) y = MatMul(t, w) }",
        "along its last axis",
    ),
    (
        "repeat_below_moves",
        f"agraph (float[4] x, float[$N,4] z) => (float[] y) <{INTS}> {{ s = Shape(z) t = Expand(x, s)"
        " y = Transpose<perm=[1,0]>(t) }",
        "the repetition adds axes",
    ),
    (
        "repeat_below_matmul",
        "agraph (float[3,1] x) => (float[3,2] y) <int64[2] r = {3,4}, float[4,2] w = {1,2,3,4,5,6,7,8}> { t ="
        " Expand(x, r) y = MatMul(t, w) }",
        "along its last axis",
    ),
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_fires(case: Case, form: str) -> None:
    require_rewritten(case, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rule", "text", "reason"), KEPT, ids=[f"{k}-{c[0]}" for k, c in enumerate(KEPT)])
def test_refuses(rule: str, text: str, reason: str, form: str) -> None:
    require_kept(text, form, rule, reason, sizes=(2, 4))


def test_a_backward_slice_that_starts_before_the_axis_keeps_its_element() -> None:
    """x[::-1][1::2] of one element has none; x[-2::-2] would begin at it."""
    text = f"{ONE} <{INTS}> {{ t = Slice(x, m1, low, i0, m1) y = Slice(t, i1, end, i0, i2) }}"
    require_kept(text, "dynamic", "slice_slice", "no constant bounds say [-1::-1][1::2]", Level.BASIC)
    assert joined(5, (-1, ENDS[0], -1), (1, ENDS[1], 2)) is not None


def taken(n: int, bounds: tuple[int, int, int]) -> range:
    return slice_ranges((n,), (None, *([v] for v in bounds[:2]), [0], [bounds[2]]))[0]


@pytest.mark.parametrize("seed", range(4))
def test_joined_bounds_take_the_same_for_all_sizes(seed: int) -> None:
    """Far beyond the sizes that the proof looks at, too."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(60):
        first, second = (
            (*(int(rng.choice([*range(-6, 7), *ENDS])) for _ in range(2)), int(rng.choice([-3, -2, -1, 1, 1, 2, 3])))
            for _ in range(2)
        )
        for n in (None, int(rng.integers(0, 12))):
            both = joined(n, first, second)
            found += both is not None
            for size in itertools.chain(range(60), (997, 1000, 5003)) if n is None and both else [n] if both else ():
                once = taken(size, first)
                want = [once[k] for k in taken(len(once), second)]
                assert [*taken(size, both)] == want, (first, second, size)
    assert found > 40
