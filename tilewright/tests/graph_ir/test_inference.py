"""Shape and type inference: symbolic dims, data propagation, control flow, errors."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.core.errors import ModelError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, np.int64)


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _type(make: Callable[[GraphBuilder], str]) -> str:
    b = GraphBuilder("g")
    out = make(b)
    return str(b.build(out).values[out].type)


CASES: list[tuple[str, Callable[[GraphBuilder], str], str]] = [
    ("matmul", lambda b: b.op("MatMul", b.input("x", "float32", ("b", "s", 8)), f32(8, 3)), "float32[b, s, 3]"),
    ("matmul_vector", lambda b: b.op("MatMul", b.input("x", "float32", (8,)), f32(2, 8, 3)), "float32[2, 3]"),
    ("gemm_transposed", lambda b: b.op("Gemm", b.input("x", "float32", ("n", 8)), f32(3, 8), f32(3), transB=1),
     "float32[n, 3]"),
    ("conv", lambda b: b.op("Conv", b.input("x", "float32", ("n", 3, "h", 224)), f32(8, 3, 3, 3), strides=(2, 2),
                            pads=(1, 1, 1, 1)), "float32[n, 8, ((h + 1)//2), 112]"),
    ("conv_same", lambda b: b.op("Conv", b.input("x", "float32", (1, 3, "h", 7)), f32(8, 3, 3, 3), strides=(2, 2),
                                 auto_pad="SAME_UPPER"), "float32[1, 8, ((h + 1)//2), 4]"),
    ("conv_nhwc", lambda b: b.op("Conv", b.input("x", "float32", (1, 9, 7, 3)), f32(8, 3, 3, 3), data_layout="NHWC"),
     "float32[1, 7, 5, 8]"),
    ("conv_transpose", lambda b: b.op("ConvTranspose", b.input("x", "float32", (1, 3, "h", "w")), f32(3, 4, 2, 2),
                                      strides=(2, 2)), "float32[1, 4, h*2, w*2]"),
    ("pool_ceil", lambda b: b.op("MaxPool", b.input("x", "float32", (1, 4, 7, 8)), kernel_shape=(2, 2),
                                 strides=(2, 2), ceil_mode=1), "float32[1, 4, 4, 4]"),
    ("global_nhwc", lambda b: b.op("GlobalAveragePool", b.input("x", "float32", (1, 7, 8, 4)), data_layout="NHWC"),
     "float32[1, 1, 1, 4]"),
    ("reshape_minus_one", lambda b: b.op("Reshape", b.input("x", "float32", ("b", "s", 768)), i64(0, -1, 12, 64)),
     "float32[b, s, 12, 64]"),
    ("reduce", lambda b: b.op("ReduceMean", b.input("x", "float32", ("b", "s", 8)), i64(-1)), "float32[b, s, 1]"),
    ("argmax", lambda b: b.op("ArgMax", b.input("x", "float32", ("b", 8)), axis=1, keepdims=0), "int64[b]"),
    ("slice", lambda b: b.op("Slice", b.input("x", "float32", ("b", "s")), i64(1), i64(2**62), i64(1)),
     "float32[b, max(0, s - 1)]"),
    ("slice_back", lambda b: b.op("Slice", b.input("x", "float32", (5, 4)), i64(-1), i64(-(2**62)), i64(0), i64(-2)),
     "float32[3, 4]"),
    ("concat", lambda b: b.op("Concat", b.input("x", "float32", ("b", "s")), b.input("y", "float32", ("b", "t")),
                              axis=1), "float32[b, s + t]"),
    ("broadcast", lambda b: b.op("Add", b.input("x", "float32", ("b", 1, 4)), b.input("y", "float32", ("s", 1))),
     "float32[b, s, 4]"),
    ("compare", lambda b: b.op("Less", b.input("x", "float32", ("b",)), f32()), "bool[b]"),
    ("cast", lambda b: b.op("Cast", b.input("x", "float32", ("b",)), to=dtypes.float16), "float16[b]"),
    ("gather", lambda b: b.op("Gather", f32(10, 4), b.input("i", "int64", ("b", "s"))), "float32[b, s, 4]"),
    ("expand_known_in_part", lambda b: b.op("Expand", b.input("x", "float32", (2, 1)), b.op(
        "Concat", b.input("n", "int64", (1,)), i64(2, 3), axis=0)), "float32[u0, 2, 3]"),
    ("expand_known_in_part_smaller", lambda b: b.op("Expand", b.input("x", "float32", (4, 2, "m")), b.op(
        "Concat", i64(2), b.input("n", "int64", (1,)), axis=0)), "float32[4, 2, u0]"),
    ("expand", lambda b: b.op("Expand", b.input("x", "float32", ("b", 1)), i64(1, 5)), "float32[b, 5]"),
    ("top_k", lambda b: b.ops("TopK", b.input("x", "float32", ("b", 9)), i64(3), outputs=2)[1], "int64[b, 3]"),
    ("non_zero", lambda b: b.op("NonZero", b.input("x", "float32", ("b", 9))), "int64[2, u0]"),
    ("resize", lambda b: b.op("Resize", b.input("x", "float32", ("b", 3, "h", 5)), None,
                              np.array([1, 1, 2, 0.5], np.float32)), "float32[b, 3, h*2, 2]"),
    ("einsum", lambda b: b.op("Einsum", b.input("x", "float32", ("b", 4, "k")), b.input("y", "float32", ("k", 7)),
                              equation="...ij,jk->...ik"), "float32[b, 4, 7]"),
    ("lstm", lambda b: b.ops("LSTM", b.input("x", "float32", ("s", "b", 4)), f32(2, 20, 4), f32(2, 20, 5),
                             hidden_size=5, direction="bidirectional", outputs=2)[0], "float32[s, 2, b, 5]"),
    ("attention", lambda b: b.op("FusedAttention", b.input("q", "float32", ("b", 2, "s", 8)),
                                 b.input("k", "float32", ("b", 2, "t", 8)), b.input("v", "float32", ("b", 2, "t", 6))),
     "float32[b, 2, s, 6]"),
    ("bf16", lambda b: b.op("Relu", b.input("x", "bfloat16", (2,))), "bfloat16[2]"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_type(make: Callable[[GraphBuilder], str], expected: str) -> None:
    assert _type(make) == expected


def _shape_chain(b: GraphBuilder) -> str:
    """``x.reshape(b, -1, heads, 64)`` the way that exporters spell it."""
    x = b.input("x", "float32", ("b", "s", 768))
    shape = b.op("Shape", x)
    batch = b.op("Unsqueeze", b.op("Gather", shape, np.array(0)), i64(0))
    width = b.op("Slice", shape, i64(2), i64(3), i64(0))
    heads = b.op("Div", width, i64(64))
    return b.op("Reshape", x, b.op("Concat", batch, i64(-1), heads, i64(64), axis=0))


def test_shape_arithmetic_is_followed() -> None:
    assert _type(_shape_chain) == "float32[b, s, 12, 64]"


def test_expand_guard_of_exporters_is_decided() -> None:
    def make(b: GraphBuilder) -> str:
        x = b.input("x", "float32", ("b", 1))
        shape = b.op("Concat", b.op("Shape", x, end=1), i64(7), axis=0)
        guard = b.op("Equal", shape, i64(-1, -1))
        return b.op("Expand", x, b.op("Where", guard, i64(1, 1), shape))

    assert _type(make) == "float32[b, 7]"


def test_sizes_survive_a_trip_through_float() -> None:
    def make(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (1, 3, "h", "w"))
        size = b.op("Cast", b.op("Shape", x, start=2), to=dtypes.float32)
        double = b.op("Cast", b.op("Floor", b.op("Mul", size, np.array(2.0, np.float32))), to=dtypes.int64)
        return b.op("Resize", x, None, None, b.op("Concat", b.op("Shape", x, end=2), double, axis=0))

    assert _type(make) == "float32[1, 3, h*2, w*2]"


def test_range_of_a_size() -> None:
    def make(b: GraphBuilder) -> str:
        n = b.op("Squeeze", b.op("Shape", b.input("x", "float32", ("n",))), i64(0))
        return b.op("Range", np.array(0), n, np.array(2))

    assert _type(make) == "int64[((n + 1)//2)]"


def test_fresh_symbols_skip_the_models_own() -> None:
    assert _type(lambda b: b.op("NonZero", b.input("x", "float32", ("u0",)))) == "int64[1, u1]"


def test_same_graph_same_names() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))
    g = b.build(b.op("NonZero", x), b.op("NonZero", x))
    again = infer_graph(g)
    assert {k: str(v) for k, v in g.values.items()} == {k: str(v) for k, v in again.values.items()}


def _body(name: str, make: Callable[[GraphBuilder], tuple[str, ...]]) -> Graph:
    b = GraphBuilder(name)
    return b.build(*make(b), infer=False)


def test_loop_whose_state_grows_gets_fresh_symbols() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n",))

    def make(s: GraphBuilder) -> tuple[str, ...]:
        s.input("i", "int64", ())
        cond = s.input("cond", "bool", ())
        state = s.input("state", "float32", ("n",))
        go = s.ops("Identity", cond, outputs=("go",))[0]
        return go, s.ops("Concat", state, x, outputs=("grown",), axis=0)[0], s.ops("Neg", x, outputs=("out",))[0]

    outs = b.ops("Loop", np.array(3), None, x, outputs=2, body=_body("body", make))
    g = b.build(*outs)
    body = g.nodes[0].attr("body")
    assert isinstance(body, Graph)
    grown, scanned = (str(g.values[o].type) for o in outs)
    assert grown.startswith("float32[u")
    assert scanned.startswith("float32[u")
    assert scanned.endswith(", n]")
    assert str(body.values["state"].type).startswith("float32[u")


def test_if_joins_its_branches() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 4))
    c = b.input("c", "bool", ())
    then = _body("then", lambda s: s.ops("Neg", x, outputs=("a",)))
    other = _body("other", lambda s: s.ops("Slice", x, i64(0), i64(2), i64(1), outputs=("b",)))
    out = b.op("If", c, then_branch=then, else_branch=other)
    assert str(b.build(out).values[out].type) == "float32[n, u0]"


def test_a_dead_branch_may_be_inconsistent() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", (2, 3))
    then = _body("then", lambda s: s.ops("Neg", x, outputs=("a",)))
    other = _body("other", lambda s: s.ops("Transpose", x, outputs=("b",), perm=(0, 2, 1)))
    out = b.op("If", np.array(True), then_branch=then, else_branch=other)
    assert str(b.build(out).values[out].type) == "float32[2, 3]"


def test_scan_stacks_along_its_axis() -> None:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("t", 4))

    def make(s: GraphBuilder) -> tuple[str, ...]:
        state = s.input("state", "float32", (4,))
        e = s.input("e", "float32", (4,))
        total = s.ops("Add", state, e, outputs=("total",))[0]
        return total, s.ops("Identity", total, outputs=("copy",))[0]

    outs = b.ops("Scan", f32(4), x, outputs=2, body=_body("body", make), num_scan_inputs=1, scan_output_axes=(1,))
    g = b.build(*outs)
    assert [str(g.values[o].type) for o in outs] == ["float32[4]", "float32[4, t]"]


REFUSALS: list[tuple[str, Callable[[GraphBuilder], str], str]] = [
    ("matmul", lambda b: b.op("MatMul", b.input("x", "float32", (2, 3)), f32(4, 5)),
     r"node 'n_MatMul_0' \(MatMul\): expected dimensions that agree, got 3 and 4"),
    ("types", lambda b: b.op("Add", b.input("x", "float32", (2,)), i64(1, 2)), "expected inputs of one element type"),
    ("broadcast", lambda b: b.op("Add", b.input("x", "float32", (2,)), f32(3)), "expected dimensions that agree"),
    ("axis", lambda b: b.op("Softmax", b.input("x", "float32", (2,)), axis=3), r"expected an axis in \[-1, 1\), got 3"),
    ("reshape", lambda b: b.op("Reshape", b.input("x", "float32", (6,)), i64(4, -1)), "a shape for 6 elements"),
    ("unknown", lambda b: b.op("Frobnicate", b.input("x", "float32", (6,))), "expected a known operator"),
    ("arity", lambda b: b.op("Relu"), "expected 1 inputs, got 0"),
    ("undefined", lambda b: b.op("Relu", "nowhere"), "expected a definition of input 'nowhere', got none"),
    ("window", lambda b: b.op("Conv", b.input("x", "float32", (1, 1, 2, 2)), f32(1, 1, 3, 3)), "a window that fits"),
    ("random", lambda b: b.op("RandomNormalLike", i64(1, 2)), "expected a float element type .*got int64"),
    ("samples", lambda b: b.op("RoiAlign", b.input("x", "float32", (1, 1, 4, 4)), f32(2, 4), i64(0, 0),
                               sampling_ratio=2**31), "expected a sampling_ratio from 0 to 1024, got 2147483648"),
    ("resize", lambda b: b.op("Resize", b.input("x", "float32", (2, 3)), "", f32(2), i64(4, 5)),
     "expected scales or sizes, got both"),
    ("axes", lambda b: b.op("Resize", b.input("x", "float32", (2, 3)), "", f32(2), axes=(1, -1)), "axes that differ"),
    ("negative", lambda b: b.op("Pad", b.input("x", "float32", (2,)), i64(-3, 0)), "pads that leave a size >= 0"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "match"), [c[1:] for c in REFUSALS], ids=[c[0] for c in REFUSALS])
def test_refusal(make: Callable[[GraphBuilder], str], match: str) -> None:
    with pytest.raises(ModelError, match=match):
        _type(make)


def test_missing_output_is_refused() -> None:
    with pytest.raises(ModelError, match="expected a definition of output 'y', got none"):
        GraphBuilder("g").build("y")


def _reshaped(levels: int) -> Graph:
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("b", "s", 64))
    w = b.constant(f32(64, 64))
    for _ in range(levels):
        shape = b.op("Shape", x)
        x = b.op("Reshape", b.op("MatMul", x, w), b.op("Concat", b.op("Slice", shape, i64(0), i64(2)), i64(64), axis=0))
    return b.build(x, infer=False)


def test_inference_takes_work_in_proportion() -> None:
    work = []
    for levels in (40, 520):
        graph, calls = _reshaped(levels), 0

        def count(frame: object, event: str, arg: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        done = infer_graph(graph)
        sys.setprofile(None)
        assert str(done.values[graph.outputs[0]].type) == "float32[b, s, 64]"
        work.append(calls)
    assert work[1] < 1.1 * 520 / 40 * work[0], "Python calls"


def test_constants_carry_their_elements() -> None:
    g = Graph("g", (), ("c",), (), {}, {"c": Constant(np.array([[1, 2]], np.int32))})
    v = infer_graph(g).values["c"]
    assert v.type == TensorType(dtypes.int32, (const(1), const(2)))
    assert v.data == (const(1), const(2))


def test_a_tensor_without_elements_is_known() -> None:
    b = GraphBuilder("g")
    out = b.op("ReduceSum", b.input("x", "float32", ("n", 3)), b.input("axes", "int64", (0,)))
    assert str(b.build(out).values[out].type) == "float32[1, 1]"


def test_decisions_on_sizes_are_followed_through_logic() -> None:
    b = GraphBuilder("g")
    heads = b.op("Equal", b.op("Shape", b.input("x", "float32", (4, "n")), end=1), i64(2))
    repeats = b.op("Where", b.op("Not", heads), i64(2), i64(1))
    assert b.build(repeats).values[repeats].data == (const(2),)


def test_a_size_by_a_step_near_the_end_of_64_bits_is_found_when_it_runs() -> None:
    def made(b: GraphBuilder, step: int) -> str:
        n = b.op("Gather", b.op("Shape", b.input("x", "float32", ("n", 3))), np.array(0))
        return b.op("Range", np.array(0), n, np.array(step))

    assert "n + 3" in _type(lambda b: made(b, 4))
    assert _type(lambda b: made(b, 1 << 62)) == "int64[u0]"


def _chain() -> Graph:
    b = GraphBuilder("g")
    x = b.op("Relu", b.op("Add", b.input("x", "float32", ("n", 3)), np.ones(3, np.float32)))
    found = b.op("NonZero", x)
    return b.build(b.op("Transpose", found), b.op("Exp", x))


def test_what_a_graph_was_made_from_is_not_inferred_again() -> None:
    old = _chain()
    relu, exp = old.nodes[1], old.nodes[-1]
    shape = dataclasses.replace(exp, op="Shape")
    new = infer_graph(old.replace(nodes=tuple(shape if n is exp else n for n in old.nodes)), old)
    held = [k for k, v in new.values.items() if v is old.values[k]]
    assert set(held) == {*old.values} - set(exp.outputs)
    assert str(new.values[exp.outputs[0]].type) == "int64[2]"
    other = infer_graph(old.replace(nodes=tuple(dataclasses.replace(n) if n is relu else n for n in old.nodes)), old)
    assert all(v is old.values[k] for k, v in other.values.items())


def test_what_follows_from_a_change_is_inferred() -> None:
    old = _chain()
    values = {**old.values, "x": Value("x", TensorType(dtypes.float64, old.values["x"].shape))}
    constants = {k: Constant(c.array.astype(np.float64)) for k, c in old.constants.items()}
    new = infer_graph(old.replace(values=values, constants=constants), old)
    assert str(new.values[old.outputs[1]].type) == "float64[n, 3]"
    with pytest.raises(ModelError, match=r"node 'n_Add_0' \(Add\)"):
        infer_graph(old.replace(values=values), old)


def test_sizes_that_the_data_tell_keep_their_names_where_nothing_changes() -> None:
    old = _chain()
    exp = old.nodes[-1]
    more = Node("NonZero", (exp.outputs[0],), ("more",), (), "more")
    new = infer_graph(old.replace(nodes=(*old.nodes, more), outputs=(*old.outputs, "more")), old)
    before = str(old.values[old.outputs[0]].type)
    assert str(new.values[old.outputs[0]].type) == before
    assert str(new.values["more"].type) not in (before, "int64[2, u0]")


def test_assumptions_of_nodes_that_changed_go() -> None:
    b = GraphBuilder("g")
    old = b.build(b.op("Add", b.input("x", "float32", ("n",)), b.input("y", "float32", ("m",))))
    assert len(old.assumptions) == 1
    (add,) = old.nodes
    same = infer_graph(old.replace(nodes=(add,)), old)
    assert same.assumptions == old.assumptions
    values = {**old.values, "y": Value("y", old.values["x"].type)}
    assert infer_graph(old.replace(values=values, assumptions=()), old).assumptions == ()
