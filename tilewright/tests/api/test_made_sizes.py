"""Sizes that only the values tell, and what follows from them through shape arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.tests.api.standard import assert_as_standard, assert_outputs, read_model

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


SOME = [{"x": np.array([0, 3, 0, 1, 2], np.float32)}, {"x": np.zeros(4, np.float32)}, {"x": f32(0)}]
COUNT = """
    places = NonZero(x)
    s = Shape(places)
    one = Constant<value_int = 1>()
    zero = Constant<value_int = 0>()
    count = Gather(s, one)
    ones = Constant<value_ints = [1]>()
    counts = Reshape(count, ones)
"""


@pytest.mark.parametrize(
    "rest",
    [
        "y = Range(zero, count, one)",
        "r = Range(zero, count, one)  f = Cast<to = 1>(r)  y = Mul(f, f)",
        "c = Constant<value_floats = [2.0]>()  e = Expand(c, counts)  y = Relu(e)",
        "y = ConstantOfShape(counts)",
        "c = Constant<value_floats = [1.0, 2.0]>()  y = Tile(c, counts)",
        "t = Transpose(places)  g = GatherND(x, t)  n = Size(g)  y = Range(zero, n, one)",
        "f = Cast<to = 1>(count)  z = Constant<value_float = 0.0>()  h = Constant<value_float = 0.5>()"
        "  r = Range(z, f, h)  q = Shape(r)  y = ConstantOfShape(q)",
        "n = Neg(counts)  e = Constant<value_ints = [9]>()  y = Slice(x, n, e)",
    ],
)
def test_what_is_sized_by_a_count(rest: str) -> None:
    assert_as_standard(f"g (float[n] x) => (y) {{ {COUNT} {rest} }}", SOME)


def test_a_slice_from_a_count_of_another_value() -> None:
    text = f"g (float[n] x, float[m] z) => (y) {{ {COUNT} e = Constant<value_ints = [9]>()  y = Slice(z, counts, e) }}"
    assert_as_standard(text, [{**f, "z": f32(m)} for f, m in zip(SOME, (5, 1, 2), strict=True)])


def test_the_host_reads_elements_that_kernels_know() -> None:
    text = """g (float[k, 4] x) => (y, i) {
        first = Constant<value_ints = [0]>()
        s = Shape(x)
        k = Gather(s, first)
        y, i = TopK<axis = 0>(x, k)
    }"""
    assert_as_standard(text, [{"x": f32(3, 4)}, {"x": f32(1, 4)}, {"x": f32(7, 4)}])


@pytest.mark.parametrize(
    "size", ["d = Identity(n)", "f = Cast<to = 1>(n)  h = Mul(f, v)  d = Cast<to = 7>(h)"], ids=["known", "early"]
)
@pytest.mark.parametrize(
    "rest",
    [
        "b = Concat<axis = 0>(z, z)  y = OneHot(i, d, b)",
        "k = Reshape(d, ends)  p = Concat<axis = 0>(ends, k)  s = Squeeze(z)  y = Pad(x, p, s)",
        "k = Reshape(d, ends)  p = Concat<axis = 0>(ends, ends, k, ends)  y = AffineGrid(t, p)",
        "y = HannWindow(d)",
        "r = Sub(d, d)  k = Reshape(r, ends)  y = ReduceSum(x, k)",
    ],
    ids=["one_hot", "pad", "affine_grid", "window", "reduction"],
)
def test_operands_that_give_sizes_follow_from_the_sizes_of_the_inputs(rest: str, size: str) -> None:
    """The other operands are computed when the model runs."""
    text = f"""g (float[m] x, int64[3] i, float[1] z, float[1, 2, 3] t) => (y)
        <int64[1] ends = {{1}}, float v = {{0.5}}> {{
            n = Size(x)  {size}  {rest}
    }}"""
    others = {"i": i64(0, 2, 1), "z": f32(1), "t": f32(1, 2, 3)}
    assert_as_standard(text, [{"x": f32(m), **others} for m in (4, 7, 2)])


@pytest.mark.parametrize("branch", ["y", "n"])
def test_a_body_uses_sizes_of_the_graph_around_it(branch: str) -> None:
    """A body reads no tensor that has the size as one of its dimensions."""
    text = """g (float[n, 3] x, float[m] v, bool c) => (y) {
        s = Shape(x)
        p = ReduceProd<keepdims = 0>(s)
        w = Concat<axis = 0>(v, v)
        one = Constant<value_floats = [1.0]>()
        y = If (c) <
            then_branch = t () => (a) { f = Cast<to = 1>(p)  a = Mul(w, f) },
            else_branch = e () => (b) { q = Cast<to = 1>(s)  l = Reshape(p, first)  r = Expand(one, l)
                                        b = Add(r, r) }
        >
    }""".replace("{ q", "{ first = Constant<value_ints = [1]>()  q")
    feeds = [{"x": f32(n, 3), "v": f32(m), "c": np.array(branch == "y")} for n, m in ((2, 4), (1, 1), (5, 3))]
    assert_as_standard(text, feeds)


def test_a_loop_that_scales_rows_of_another_loop() -> None:
    text = """g (float[m] x, int64 k) => (y) {
        three = Constant<value_int = 3>()
        half = Constant<value_float = 0.5>()
        x1, rows = Loop (three, , x) <body = b (int64 i, bool c, float[m] a) => (c2, a2, row) {
            c2 = Identity(c)  a2 = Mul(a, half)  row = Relu(a2) }>
        wide = Concat<axis = 1>(rows, rows, rows)
        y = Loop (k, , wide) <body = d (int64 j, bool e, float[r, w] z) => (e2, z2) {
            e2 = Identity(e)  z2 = Mul(z, half) }>
    }"""
    feeds = [{"x": f32(m), "k": np.array(k, np.int64)} for m, k in ((7, 2), (2, 0), (1, 3))]
    rows = [np.maximum([f["x"] / 2, f["x"] / 4, f["x"] / 8], 0) for f in feeds]
    expected = [[np.tile(r, 3) * np.float32(0.5) ** f["k"]] for r, f in zip(rows, feeds, strict=True)]
    assert_outputs(read_model(text), feeds, [[y.astype(np.float32)] for (y,) in expected])


def test_a_carried_value_that_grows_from_a_size_that_only_the_values_tell() -> None:
    text = """g (float[n] x, int64 k) => (y) {
        places = NonZero(x)
        y = Loop (k, , places) <body = b (int64 i, bool c, int64[r, w] a) => (c2, a2) {
            c2 = Identity(c)  a2 = Concat<axis = 1>(a, places) }>
    }"""
    feeds = [{**f, "k": np.array(k, np.int64)} for f, k in zip(SOME, (3, 0, 1), strict=True)]
    expected = [[np.tile(np.nonzero(f["x"]), int(f["k"]) + 1)] for f in feeds]
    assert_outputs(read_model(text), feeds, expected)


def test_rows_of_a_size_made_in_the_body() -> None:
    """Every step gives as many elements, but how many only a step tells."""
    text = """g (float[n] x, int64 k) => (y, z) {
        t, y = Loop (k, , x) <body = b (int64 i, bool c, float[m] a) => (c2, a2, row) {
            c2 = Identity(c)  a2 = Identity(a)  p = NonZero(a)  row = Concat<axis = 1>(p, p) }>
        z = Add(y, y)
    }"""
    feeds = [{**f, "k": np.array(2, np.int64)} for f in SOME]
    rows = [np.tile(np.nonzero(f["x"]), (2, 1, 2)) for f in feeds]
    assert_outputs(read_model(text), feeds, [[r, 2 * r] for r in rows])


def test_elements_of_a_scanned_vector_are_scalars_on_the_host() -> None:
    text = """g (float[n] x, float s) => (t, y) {
        t, y = Scan<num_scan_inputs = 1, body = b (float a, float e) => (a2, o) {
            u = Unique(e)  q = Size(u)  f = Cast<to = 1>(q)  v = Add(a, e)  a2 = Add(v, f)  o = Identity(a2)
        }>(s, x)
    }"""
    x = f32(5)
    sums = np.float32(1) + np.cumsum(x + 1, dtype=np.float32)
    assert_outputs(read_model(text), [{"x": x, "s": np.array(1, np.float32)}], [[sums[-1], sums]], 1e-4)


def test_scalar_constants_stay_scalars_on_the_host() -> None:
    text = """g (float[n, 5] x) => (y) {
        two = Constant<value_int = 2>()
        q = SplitToSequence<axis = 1>(x, two)
        y = SequenceLength(q)
    }"""
    assert_outputs(read_model(text), [{"x": f32(3, 5)}], [[np.array(3, np.int64)]])


@pytest.mark.parametrize("axis", [0, None])
def test_a_condition_longer_than_the_axis(axis: int | None) -> None:
    """A constant condition says how many are chosen only where the axis is as long."""
    where = "" if axis is None else "<axis = 0>"
    text = f"g (float[n, 1] x) => (y) <bool[4] c = {{1, 0, 1, 1}}> {{ y = Compress{where}(x, c) }}"
    chosen = np.array([1, 0, 1, 1], bool)
    feeds = [{"x": f32(n, 1)} for n in (4, 9, 2, 1, 0)]
    expected = [f["x"][:4][chosen[: len(f["x"])]] for f in feeds]
    assert_outputs(read_model(text), feeds, [[y if axis == 0 else y.reshape(-1)] for y in expected])


def test_places_in_a_scalar_have_no_coordinate() -> None:
    proto = read_model("g (float[n] x) => (y) { s = ReduceSum<keepdims = 0>(x)  y = NonZero(s) }")
    feeds = [{"x": np.ones(3, np.float32)}, {"x": np.zeros(3, np.float32)}]
    assert_outputs(proto, feeds, [[np.empty((0, 1), np.int64)], [np.empty((0, 0), np.int64)]])
