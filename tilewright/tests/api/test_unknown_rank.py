"""Values whose rank only a call tells: what follows from operators, and the host where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import BroadcastError
from tilewright.tests.api.standard import assert_as_standard, assert_outputs, read_model

RNG = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


GIVEN = [{"x": f32(4, 6), "s": i64(8, 3)}, {"x": f32(4, 6), "s": i64(2, 4, 3)}, {"x": f32(2, 3), "s": i64(1, 6, 1, 1)}]


@pytest.mark.parametrize(
    "rest",
    [
        "w = Constant<value_ints = [-1, 3]>()  z = Reshape(t, w)  y = MatMul(z, k)",
        "f = Flatten<axis = 0>(t)  y = Softmax(f)",
        "y = ReduceSum<keepdims = 0>(t)",
        "n = Size(t)  one = Constant<value_ints = [1]>()  y = Reshape(n, one)",
        "p = NonZero(t)  z = Constant<value_int = 1>()  y = CumSum(p, z)",
        "r = Relu(t)  y = Add(r, t)",
        "y = Shape(t)",
    ],
)
def test_ranks_that_operators_tell(rest: str) -> None:
    assert_as_standard(f"g (float[n, m] x, int64[r] s, float[3, 2] k) => (y) {{ t = Reshape(x, s)  {rest} }}",
                       [{**f, "k": f32(3, 2)} for f in GIVEN])  # fmt: skip


@pytest.mark.parametrize(
    ("rest", "shape"),
    [
        ("p = Transpose<perm = [1, 0]>(t)  y = MatMul(p, t)", (8, 3)),
        ("y = Conv<kernel_shape = [1, 1]>(t, k)", (1, 3, 2, 4)),
        ("y = MaxPool<kernel_shape = [2, 2]>(t)", (1, 3, 2, 4)),
        ("two = Constant<value_ints = [2, 1, 1, 1]>()  y = Tile(t, two)", (1, 3, 2, 4)),
        ("z = Constant<value_ints = [0, 1, 0, 2]>()  y = Pad(t, z)", (4, 6)),
    ],
)
def test_ranks_that_parameters_tell(rest: str, shape: tuple[int, ...]) -> None:
    text = f"g (float[n, m] x, int64[r] s, float[2, 3, 1, 1] k) => (y) {{ t = Reshape(x, s)  {rest} }}"
    assert_as_standard(text, [{"x": f32(4, 6), "s": i64(*shape), "k": f32(2, 3, 1, 1)}], tolerance=1e-4)


def test_the_host_multiplies_what_has_no_known_rank() -> None:
    text = "g (float[n, m] x, int64[r] s, float[3, 2] k) => (y) { t = Reshape(x, s)  y = MatMul(t, k) }"
    assert_as_standard(text, [{**f, "k": f32(3, 2)} for f in GIVEN[:2]])


def test_branches_of_two_ranks() -> None:
    text = """g (float[n, 4] x, bool c, float[4, 2] k) => (y, z) {
        e = If (c) <
            then_branch = t () => (a) { a = Identity(x) },
            else_branch = f () => (b) { zero = Constant<value_ints = [0]>()  b = Unsqueeze(x, zero) }
        >
        rows = Constant<value_ints = [-1, 4]>()
        r = Reshape(e, rows)
        y = MatMul(r, k)
        z = MatMul(e, k)
    }"""
    feeds = [{"x": f32(n, 4), "c": np.array(c), "k": f32(4, 2)} for n, c in ((3, True), (2, False), (0, True))]
    expected = [[f["x"] @ f["k"], f["x"] @ f["k"] if f["c"] else (f["x"] @ f["k"])[None]] for f in feeds]
    assert_outputs(read_model(text), feeds, expected)


@pytest.mark.parametrize("at", [0, 1])
def test_elements_of_sequences_have_ranks(at: int) -> None:
    text = """g (float[n, 4] x, float[m, 4] v, int64[2] sizes, float[4, 2] k) => (y, z) {
        pieces = SplitToSequence<axis = 0>(x, sizes)
        both = SequenceConstruct(x, v)
        i = Constant<value_int = AT>()
        p = SequenceAt(pieces, i)
        b = SequenceAt(both, i)
        y = MatMul(p, k)
        z = MatMul(b, k)
    }""".replace("AT", str(at))
    feeds = [{"x": f32(n, 4), "v": f32(m, 4), "sizes": i64(1, n - 1), "k": f32(4, 2)} for n, m in ((3, 1), (5, 5))]
    assert_as_standard(text, feeds)
    graph = tilewright.compile(read_model(text), stop_after="import")
    assert str(graph.values["y"].type).count(",") == 1


class TestSqueezeOfUnknownSizes:
    TEXT = "g (float[n, 3, m] x, float[3, 2] k) => (y) { p = GlobalAveragePool(x)  t = Squeeze(p)  y = MatMul(t, k) }"

    def test_what_is_1_goes_at_every_size(self) -> None:
        feeds = [{"x": f32(n, 3, 5), "k": f32(3, 2)} for n in (4, 1, 2, 0)]
        expected = [[(f["x"].mean(2) if len(f["x"]) != 1 else f["x"].mean(2)[0]) @ f["k"]] for f in feeds]
        assert_outputs(read_model(self.TEXT), feeds, expected)

    def test_one_version_alone_refuses_a_size_of_1(self) -> None:
        model = tilewright.compile(read_model(self.TEXT), broadcasting="refuse")
        assert model.run({"x": f32(2, 3, 5), "k": f32(3, 2)})["y"].shape == (2, 2)
        with pytest.raises(BroadcastError, match="node 'Squeeze': expected a dimension other than 1, got n"):
            model.run({"x": f32(1, 3, 5), "k": f32(3, 2)})

    def test_of_a_size_that_only_the_values_tell(self) -> None:
        text = "g (float[n] x) => (y) { p = NonZero(x)  t = Squeeze(p)  g = Gather(x, t)  y = Relu(g) }"
        feeds = [{"x": np.array(v, np.float32)} for v in ([0, 1, 0, 2], [0, 1, 0], [0, 0], [3])]
        expected = [np.maximum(f["x"][f["x"] != 0], 0) for f in feeds]
        assert_outputs(read_model(text), feeds, [[y if len(y) != 1 else y.reshape(())] for y in expected])


def test_sizes_of_which_some_are_known() -> None:
    text = """g (float[m, 1] x, int64[1] n, float[3, 5] k) => (y) {
        rest = Constant<value_ints = [2, 3]>()
        s = Concat<axis = 0>(n, rest)
        e = Expand(x, s)
        a, b = Split<axis = 1, num_outputs = 2>(e)
        t = Squeeze(a)
        y = MatMul(t, k)
    }"""
    feeds = [{"x": f32(m, 1), "n": i64(n), "k": f32(3, 5)} for m, n in ((2, 4), (1, 3), (2, 1))]
    assert_as_standard(text, feeds)


@pytest.mark.parametrize("noop", [0, 1])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("length", ["k", 0, 1])
def test_axes_of_a_reduction_that_may_be_none(length: str | int, keep: int, noop: int) -> None:
    text = f"""g (float[n, 4] x, int64[{length}] a) => (y) {{
        y = ReduceSum<keepdims = {keep}, noop_with_empty_axes = {noop}>(x, a) }}"""
    axes = {"k": ((), (1,), (0, 1)), 0: ((),), 1: ((1,), (-2,))}[length]
    feeds = [{"x": f32(n, 4), "a": i64(*a)} for a in axes for n in (3, 1)]
    expected = [
        f["x"] if a == () and noop else np.asarray(f["x"].sum(axis=a or None, keepdims=bool(keep)))
        for f, a in zip(feeds, [a for a in axes for _ in range(2)], strict=True)
    ]
    assert_outputs(read_model(text), feeds, [[y] for y in expected])


@pytest.mark.parametrize("opset", [9, 12])
@pytest.mark.parametrize("keep", [0, 1])
def test_an_empty_list_of_axes_in_old_versions_means_all(opset: int, keep: int) -> None:
    proto = read_model(f"g (float[n, 4] x) => (y) {{ y = ReduceSum<keepdims = {keep}, axes: ints = []>(x) }}", opset)
    proto.graph.node[0].attribute[1].type = 7
    feeds = [{"x": f32(n, 4)} for n in (3, 1)]
    assert_outputs(proto, feeds, [[np.asarray(f["x"].sum(keepdims=bool(keep)))] for f in feeds])


def test_running_sums_of_what_only_the_values_size() -> None:
    text = """g (float[n] x, int64 k, int64 a) => (y, z) {
        zero = Constant<value_int = 0>()
        one = Constant<value_int = 1>()
        r = Range(zero, k, one)
        c = CumSum(r, zero)
        y = Cast<to = 1>(c)
        p = NonZero(x)
        z = CumSum(p, a)
    }"""
    feeds = [{"x": f32(n), "k": np.array(k), "a": np.array(a)} for n, k, a in ((2, 5, 0), (0, 0, 1), (3, 1, -1))]
    expected = [
        [np.cumsum(np.arange(f["k"])).astype(np.float32), np.cumsum(np.nonzero(f["x"]), int(f["a"]))] for f in feeds
    ]
    assert_outputs(read_model(text), feeds, expected)
