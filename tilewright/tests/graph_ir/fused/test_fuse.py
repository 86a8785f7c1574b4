"""Fusion groups: what joins, what stays apart and why, and that groups cover the graph in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.fused.fuse import FusionLimits
from tilewright.graph_ir.ir import Graph, Group, node_reads
from tilewright.graph_ir.kinds import RunsAs
from tilewright.tests.graph_ir.fused.partitioned import Backend, groups_and_refusals, groups_of, never_run
from tilewright.tests.graph_ir.rewriting import built

F = np.float32
Build = Callable[[GraphBuilder], "str | Sequence[str]"]


def w(*shape: int) -> np.ndarray:
    return np.ones(shape, F)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, dtype=np.int64)


def x2(b: GraphBuilder, name: str = "x") -> str:
    return b.input(name, "float32", ("n", 6))


def conv(b: GraphBuilder, x: str) -> str:
    return b.op("Conv", x, w(6, 6, 3, 3), pads=(1, 1, 1, 1))


def image(b: GraphBuilder) -> str:
    return b.input("x", "float32", ("n", 6, 8, 8))


def resize(b: GraphBuilder, x: str, side: int, mode: str = "linear") -> str:
    return b.op("Resize", x, None, None, i64(side, side), axes=(2, 3), mode=mode)


def norm(b: GraphBuilder) -> str:
    return b.op("InstanceNormalization", image(b), w(6), w(6))


def rows_added(b: GraphBuilder, x: str, rows: int, columns: int = 0) -> str:
    """``x`` with mirrored rows, and so many elements more in each."""
    return b.op("Pad", x, i64(0, 0, rows, columns, 0, 0, rows, columns), mode="reflect")


def crop(b: GraphBuilder, x: str) -> str:
    return b.op("Slice", x, i64(1, 1), i64(4, 4), i64(2, 3))


def resnet_block(b: GraphBuilder) -> str:
    x = b.op("Relu", conv(b, image(b)))
    return b.op("Relu", b.op("Add", conv(b, b.op("Relu", conv(b, x))), x))


def silu(b: GraphBuilder) -> str:
    y = conv(b, image(b))
    return b.op("Mul", y, b.op("Sigmoid", y))


def branches(after: Callable[[GraphBuilder, str], str]) -> Build:
    """Two convolutions that are added up, and what follows the second."""

    def build(b: GraphBuilder) -> str:
        x = image(b)
        first = conv(b, x)
        return b.op("Relu", b.op("Add", first, after(b, conv(b, x))))

    return build


def last_state(b: GraphBuilder) -> str:
    x = b.input("x", "float32", (5, 2, 3))
    _, state = b.ops("GRU", x, w(1, 12, 3), w(1, 12, 4), outputs=("", "state"), hidden_size=4)
    return b.op("Relu", state)


def rounded(b: GraphBuilder, y: str) -> str:
    return b.op("Cast", b.op("Cast", y, to=16), to=1)


def requantized(b: GraphBuilder, y: str) -> str:
    zero = np.uint8(3)
    return b.op("DequantizeLinear", b.op("QuantizeLinear", y, F(0.5), zero), F(0.5), zero)


def scaled_bytes(b: GraphBuilder, y: str) -> str:
    return b.op("Mul", b.op("Cast", b.op("QuantizeLinear", y, F(0.5), np.uint8(3)), to=1), F(0.5))


def attention(b: GraphBuilder) -> str:
    q, k = b.input("q", "float32", ("n", 5, 2, 4)), b.input("k", "float32", ("n", 5, 2, 4))
    s = b.op("MatMul", b.op("Transpose", q, perm=(0, 2, 1, 3)), b.op("Transpose", k, perm=(0, 2, 3, 1)))
    s = b.op("Add", b.op("Mul", s, F(0.5)), b.input("m", "float32", ("n", 1, 1, 5)))
    return b.op("Softmax", s, axis=-1)


GROUPS: list[tuple[str, Build, list[str]]] = [
    ("chain", lambda b: b.op("Exp", b.op("Neg", b.op("Abs", x2(b)))), ["Abs Neg Exp"]),
    ("diamond", lambda b: b.op("Add", b.op("Neg", y := b.op("Abs", x2(b))), b.op("Exp", y)), ["Abs Neg Exp Add"]),
    ("bias", lambda b: b.op("Relu", b.op("Add", b.op("MatMul", x2(b), w(6, 6)), w(6))), ["MatMul Add Relu"]),
    ("silu", silu, ["Conv Sigmoid Mul"]),
    ("resnet", resnet_block, ["Conv Relu", "Conv Relu", "Conv Add Relu"]),
    ("rounded", branches(rounded), ["Conv Cast", "Conv Cast Add Relu"]),
    ("bytes", branches(requantized), ["Conv QuantizeLinear", "Conv DequantizeLinear Add Relu"]),
    ("scaled bytes", branches(scaled_bytes), ["Conv QuantizeLinear", "Conv Cast Mul Add Relu"]),
    ("as wide", branches(lambda b, y: b.op("Neg", y)), ["Conv Neg", "Conv Add Relu"]),
    ("narrower", branches(lambda b, y: b.op("Cast", y, to=1)), ["Conv Cast", "Conv Add Relu"]),
    (
        "widened for good",
        lambda b: b.op("Cast", b.op("Cast", conv(b, image(b)), to=16), to=1),
        ["Conv Cast Cast"],
    ),
    (
        "widened for a view",
        lambda b: b.op("Reshape", rounded(b, conv(b, image(b))), i64(-1)),
        ["Conv Cast Cast", "Reshape"],
    ),
    ("no first result", last_state, ["GRU", "Relu"]),
    ("no first result, then wider", lambda b: rounded(b, last_state(b)), ["GRU", "Relu Cast Cast"]),
    ("attention", attention, ["Transpose Transpose MatMul Mul Add", "Softmax"]),
    (
        "reduction",
        lambda b: b.op("Sqrt", b.op("ReduceSum", b.op("Mul", y := x2(b), y), i64(1))),
        ["Mul ReduceSum Sqrt"],
    ),
    ("softmax_prologue", lambda b: b.op("Softmax", b.op("Add", x2(b), w(6)), axis=-1), ["Add Softmax"]),
    ("norm_epilogue", lambda b: b.op("Relu", b.op("LayerNormalization", x2(b), w(6))), ["LayerNormalization Relu"]),
    ("view", lambda b: b.op("Exp", b.op("Reshape", b.op("Neg", x2(b)), i64(-1))), ["Neg", "Reshape", "Exp"]),
    (
        "injective",
        lambda b: b.op("Neg", b.op("Transpose", b.op("Slice", x2(b), i64(1), i64(5), i64(1)))),
        ["Slice Transpose Neg"],
    ),
    ("two_outputs", lambda b: (b.op("Exp", y := b.op("Neg", x2(b))), b.op("Log", y)), ["Neg", "Exp", "Log"]),
    (
        "concat",
        lambda b: b.op("Relu", b.op("Concat", b.op("Neg", x2(b)), x2(b, "z"), axis=0)),
        ["Neg", "Concat", "Relu"],
    ),
    ("padded_norm", lambda b: rows_added(b, b.op("Relu", norm(b)), 1), ["InstanceNormalization Relu Pad"]),
    ("padded_resize", lambda b: rows_added(b, resize(b, image(b), 16, "nearest"), 2), ["Resize Pad"]),
    (
        "resize",
        lambda b: b.op("Sub", crop(b, resize(b, b.op("Cast", image(b), to=10), 5)), np.ones((6, 1, 1), np.float16)),
        ["Cast Resize Slice Sub"],
    ),
]


def names(groups: Sequence[Group]) -> list[str]:
    return [" ".join(n.op for n in g.nodes) for g in groups]


def check(graph: Graph, groups: Sequence[Group]) -> None:
    """Each node once (but shape-only ones); every input is there before it is read; outputs are what others read."""
    members = [n.name for g in groups for n in g.nodes]
    assert sorted(members) == sorted({n.name for n in graph.nodes} - never_run(graph))
    ready = {*graph.inputs, *graph.constants}
    skipped = {o for n in graph.nodes if n.name in never_run(graph) for o in n.outputs}
    for g in groups:
        assert set(g.inputs) <= ready | skipped
        inside = {o for n in g.nodes for o in n.outputs}
        assert {i for n in g.nodes for i in node_reads(n)} <= set(g.inputs) | inside
        ready.update(g.outputs)
    assert set(graph.outputs) <= ready


@pytest.mark.parametrize(("name", "build", "want"), GROUPS, ids=[c[0] for c in GROUPS])
def test_groups(name: str, build: Build, want: list[str]) -> None:
    graph = built(build)
    groups = groups_of(graph)
    check(graph, groups)
    assert names(groups) == want


REFUSALS: list[tuple[str, Build, str]] = [
    ("exp", lambda b: b.op("MatMul", b.op("Exp", x2(b)), w(6, 6)), "Exp would be repeated"),
    ("window", lambda b: conv(b, b.op("Neg", image(b))), "reads each element many times"),
    ("anchors", lambda b: b.op("MatMul", b.op("MatMul", x2(b), w(6, 6)), w(6, 6)), "MatMul and MatMul cannot share"),
    ("scatter", lambda b: b.op("Transpose", b.op("MatMul", x2(b), w(6, 6))), "would scatter its stores"),
    ("longer", lambda b: rows_added(b, norm(b), 0, 1), "Pad after InstanceNormalization would scatter"),
    ("computed", lambda b: b.op("Pad", norm(b), b.input("p", "int64", (8,))), "depends on its operands"),
    ("linear", lambda b: rows_added(b, resize(b, image(b), 16), 1), "Pad after Resize would scatter"),
    ("product", lambda b: rows_added(b, conv(b, image(b)), 1), "Pad after Conv would scatter"),
    ("larger", lambda b: b.op("Add", b.op("MatMul", x2(b), w(6, 6)), w(3, 1, 6)), "makes the result of MatMul larger"),
    ("readers", lambda b: (b.op("Exp", y := b.op("Neg", x2(b))), b.op("Log", y)), "do not meet again"),
    (
        "broadcast",
        lambda b: b.op("Mul", b.op("Sigmoid", b.input("s", "float32", ("n", 1))), x2(b)),
        "Sigmoid would be repeated",
    ),
    ("softmax", lambda b: b.op("Softmax", b.op("Exp", x2(b))), "Exp would be repeated"),
    ("resize", lambda b: resize(b, b.op("Neg", image(b)), 5), "so Neg would be repeated"),
    ("enlarge", lambda b: resize(b, b.op("Cast", image(b), to=10), 9), "so Cast would be repeated"),
    ("pool", lambda b: b.op("MaxPool", b.op("Neg", image(b)), kernel_shape=(2, 2)), "reads each element many times"),
    (
        "concat",
        lambda b: b.op("Relu", b.op("Concat", b.op("Neg", x2(b)), x2(b, "z"), axis=0)),
        "Concat is a kernel of its own",
    ),
]


@pytest.mark.parametrize(("name", "build", "reason"), REFUSALS, ids=[c[0] for c in REFUSALS])
def test_refusals_have_reasons(name: str, build: Build, reason: str) -> None:
    graph = built(build)
    groups, refused = groups_and_refusals(graph)
    check(graph, groups)
    assert reason in "\n".join(map(str, refused))


def test_limits() -> None:
    def build(b: GraphBuilder) -> str:
        y = x2(b)
        for _ in range(7):
            y = b.op("Neg", y)
        return y

    groups, refused = groups_and_refusals(built(build), FusionLimits(max_nodes=3))
    assert max(len(g.nodes) for g in groups) == 3
    assert any("more than 3 nodes" in r.reason for r in refused)


def test_kinds_and_single_outputs() -> None:
    groups = groups_of(built(resnet_block))
    assert [g.runs_as for g in groups] == [RunsAs.KERNEL] * 3
    assert all(len(g.outputs) == 1 for g in groups)


def test_shape_arithmetic_is_in_no_group() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("a", "b", 4))
        return b.op("Reshape", b.op("Exp", x), b.op("Gather", b.op("Shape", x), i64(1, 0, 2), axis=0))

    graph = built(build)
    assert {n.split("_")[1] for n in never_run(graph)} == {"Shape", "Gather"}
    assert names(groups_of(graph)) == ["Exp", "Reshape"]


def test_known_axes_and_depths_are_never_run() -> None:
    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", (4, "n", 2))
        total = b.op("ReduceSum", x, b.op("Size", b.op("Unsqueeze", np.float32(1), i64(0))), keepdims=0)
        hot = b.op("OneHot", b.input("i", "int64", (3,)), b.op("Size", x), np.array([0, 1], F))
        return [total, hot]

    graph = built(build)
    assert {n.op for n in graph.nodes if n.name in never_run(graph)} == {"Size", "Unsqueeze"}
    assert names(groups_of(graph)) == ["ReduceSum", "OneHot"]


def test_host_nodes_and_predicate() -> None:
    def build(b: GraphBuilder) -> str:
        return b.op("Neg", b.op("Exp", x2(b)))

    graph = built(build)
    groups = groups_of(graph, Backend(lambda n: n.op != "Exp"))
    assert [(g.runs_as, n) for g, n in zip(groups, names(groups), strict=True)] == [
        (RunsAs.HOST, "Exp"),
        (RunsAs.KERNEL, "Neg"),
    ]
    assert groups[0].nodes[0].attr("host") == "no native code"


def pair(
    b: GraphBuilder, side: int = 56, act: str = "Relu", taps: int = 1, groups: int = 64, **attrs: tuple[int, ...]
) -> str:
    """A pointwise convolution of 16 channels to 64, an activation, and a depthwise convolution."""
    x = b.input("x", "float32", (3, side, side, 16))
    y = b.op(act, b.op("Conv", x, w(64, 16, taps, taps), data_layout="NHWC"))
    z = b.op("Conv", y, w(64, 64 // groups, 3, 3), group=groups, data_layout="NHWC", **{"pads": (1, 1, 1, 1), **attrs})
    return b.op("Clip", z, np.float32(0), np.float32(6))


def test_a_depthwise_convolution_joins_the_one_that_makes_a_large_operand() -> None:
    graph = built(lambda b: pair(b, strides=(2, 2), pads=(0, 1, 2, 1)))
    (group,), refusals = groups_and_refusals(graph)
    assert [n.op for n in group.nodes] == ["Conv", "Relu", "Conv", "Clip"]
    assert [n.attr("halo") for n in group.nodes] == [(0, 1, 2, 1), None, None, None]
    assert refusals == ()


def pair_with_two_readers(b: GraphBuilder) -> Sequence[str]:
    x = b.input("x", "float32", (3, 56, 56, 16))
    y = b.op("Conv", x, w(64, 16, 1, 1), data_layout="NHWC")
    return [b.op("Conv", y, w(64, 1, 3, 3), group=64, data_layout="NHWC"), b.op("Softmax", y)]


@pytest.mark.parametrize(
    "build",
    [
        lambda b: pair(b, side=50), lambda b: pair(b, act="Sigmoid"), lambda b: pair(b, taps=3),
        lambda b: pair(b, groups=32), lambda b: pair(b, groups=1), pair_with_two_readers,
    ],
    ids=["small", "costly", "first", "grouped", "dense", "readers"],
)  # fmt: skip
def test_other_pairs_stay_apart(build: Build) -> None:
    groups = groups_of(built(build))
    assert all(sum(n.op == "Conv" for n in g.nodes) < 2 for g in groups)
    assert all(n.attr("halo") is None for g in groups for n in g.nodes)
