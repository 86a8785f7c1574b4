"""Products of one value with several weights become one product and a Split; what has to be equal, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply, assert_same_numbers, built, ops, reasons

F = np.float32
Build = Callable[[GraphBuilder], Sequence[str]]
PASS = "merge_products"


def weight(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    rng = np.random.default_rng(sum(shape) + seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0, 9, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def matmuls(*columns: int, shape: Sequence[Dim] = ("n", 5), biases: Sequence[int] = ()) -> Build:
    """A product for each number of columns, those at ``biases`` with an Add behind them."""

    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", shape)
        out = [b.op("MatMul", x, weight(int(shape[-1]), c, seed=k)) for k, c in enumerate(columns)]
        return [b.op("Add", weight(c, seed=9), y) if k in biases else y
                for k, (c, y) in enumerate(zip(columns, out, strict=True))]  # fmt: skip

    return build


def gemms(*attrs: dict[str, float | int], shape: Sequence[Dim] = ("n", 5)) -> Build:
    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", shape)
        out = []
        for k, a in enumerate(attrs):
            w = weight(5, 3 + k, seed=k)
            row = [weight(1, 3 + k)] if k != 1 else []
            out.append(b.op("Gemm", x, w.T.copy() if a.get("transB") else w, *row, **a))
        return out

    return build


def convolutions(*attrs: dict[str, object], sizes: Sequence[int] = (3, 3), shape: Sequence[Dim] = ("n", 4, 6, 7)
                 ) -> Build:  # fmt: skip
    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", shape)
        out = []
        for k, (a, size) in enumerate(zip(attrs, sizes, strict=True)):
            w = weight(2 + 2 * k, 4 // int(a.get("group", 1)), size, size, seed=k)  # type: ignore[call-overload]
            out.append(b.op("Conv", x, w, *([weight(2)] if k == 0 else []), **a))  # type: ignore[arg-type]
        return out

    return build


def integers(*zeros: object, of: Sequence[str] = ("uint8", "uint8", "uint8")) -> Build:
    def build(b: GraphBuilder) -> list[str]:
        x, z = b.input("x", "uint8", ("n", 5)), b.constant(np.array(3, np.uint8))
        out = []
        for k, zero in enumerate(zeros):
            row = [] if zero is None else [np.asarray(zero, of[k])]
            out.append(b.op("MatMulInteger", x, weight(5, 2 + k, dtype=of[k]), z, *row))
        return out

    return build


def packed(*columns: int, shape: Sequence[Dim] = (1, 64), zero: bool = False, biases: Sequence[int] = (),
           blocks: Sequence[int] = (2, 2, 2)) -> Build:  # fmt: skip
    """Products of rows of 64 with weights of bytes."""

    def build(b: GraphBuilder) -> list[str]:
        x = b.input("x", "float32", shape)
        out = []
        for k, n in enumerate(columns):
            scale = np.abs(weight(blocks[k], n, seed=k)) / 8
            low = [weight(blocks[k], n, seed=k, dtype="uint8")] if zero else []
            out.append(b.op("MatMulDequantized", x, weight(64, n, seed=k, dtype="uint8"), scale, *low))
        return [b.op("Add", y, weight(n, seed=9)) if k in biases else y
                for k, (n, y) in enumerate(zip(columns, out, strict=True))]  # fmt: skip

    return build


FIRES: dict[str, tuple[Build, str]] = {
    "two": (matmuls(3, 4), "MatMul Split"),
    "qkv": (matmuls(3, 3, 3, shape=("b", "s", 5), biases=(0, 1, 2)), "MatMul Add Split"),
    "a bias is missing": (matmuls(3, 1, 7, biases=(0, 2)), "MatMul Add Split"),
    "vector": (matmuls(3, 4, shape=(5,)), "MatMul Split"),
    "gemm": (gemms({"alpha": 0.5}, {"alpha": 0.5}, {"alpha": 0.5}), "Gemm Split"),
    "gemm, some turned": (gemms({"transB": 1}, {}, {"transB": 1}), "Gemm Split"),
    "gemm, turned rows": (gemms({"transA": 1}, {"transA": 1}, shape=(5, "n")), "Gemm Split"),
    "conv": (convolutions({"pads": (1, 1, 1, 1)}, {"pads": (1, 1, 1, 1)}), "Conv Split"),
    "conv, defaults": (convolutions({"strides": (1, 1)}, {}), "Conv Split"),
    "integers": (integers(None, 4, [1, 2, 3, 4]), "MatMulInteger Split"),
    "integers without zero points": (integers(None, None), "MatMulInteger Split"),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRES)
def test_fires(case: str) -> None:
    build, want = FIRES[case]
    graph = built(build)
    new, ctx = apply(graph, PASS)
    assert ops(new) == want.split()
    assert len(ctx.log.fired) == 1
    assert_same_numbers(graph, new, 2e-5, (0, 7))


FIRES_PACKED: dict[str, tuple[Build, str]] = {
    "gate and up": (packed(9, 9), "MatMulDequantized Slice Slice"),
    "qkv": (packed(9, 3, 3, shape=(2, 1, 64), biases=(0, 1, 2)), "MatMulDequantized Add Slice Slice Slice"),
    "zero points, a bias is missing": (packed(9, 3, zero=True, biases=(1,)), "MatMulDequantized Add Slice Slice"),
    "vector": (packed(5, 6, shape=(64,)), "MatMulDequantized Slice Slice"),
    "not the one with other blocks": (
        packed(9, 3, 3, blocks=(2, 1, 2)), "MatMulDequantized Slice Slice MatMulDequantized",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FIRES_PACKED)
def test_packed_weights(case: str) -> None:
    build, want = FIRES_PACKED[case]
    graph = built(build)
    new, ctx = apply(graph, "merge_packed_products")
    assert sorted(ops(new)) == sorted(want.split())
    assert len(ctx.log.fired) == 1
    both = [tilewright.compile(graph, progress=False, disabled_pass=d) for d in ((), ("merge_packed_products",))]
    products = [sum("matmuldequantized" in s.kernel for s in c.plan.steps) for c in both]
    assert products == [want.count("MatMulDequantized"), ops(graph).count("MatMulDequantized")]
    feed = {"x": np.random.default_rng(0).standard_normal(both[0].inputs[0].shape).astype(F)}
    merged, apart = (c.run(feed) for c in both)
    for name in graph.outputs:
        np.testing.assert_allclose(merged[name], apart[name], rtol=1e-5, atol=1e-5)


REFUSED_PACKED: dict[str, tuple[Build, str]] = {
    "many rows": (packed(9, 9, shape=(5, 64)), "not known to be of at most 4 rows"),
    "any number of rows": (packed(9, 9, shape=("n", 64)), "not known to be of at most 4 rows"),
    "blocks": (packed(9, 9, blocks=(1, 2)), "no other MatMulDequantized of 'x'"),
}


@pytest.mark.parametrize("case", REFUSED_PACKED)
def test_packed_weights_that_stay_apart(case: str) -> None:
    build, reason = REFUSED_PACKED[case]
    graph = built(build)
    new, ctx = apply(graph, "merge_packed_products")
    assert new is graph
    assert reason in reasons(ctx)


REFUSED: dict[str, tuple[Build, str]] = {
    "a weight that is computed": (
        lambda b: [b.op("MatMul", x := b.input("x", "float32", (2, 3)), b.input("w", "float32", (3, 4))),
                   b.op("MatMul", x, weight(3, 4))],
        "its weight is not a constant",
    ),
    "batches": (
        lambda b: [b.op("MatMul", x := b.input("x", "float32", (2, 3, 3)), weight(2, 3, 4)),
                   b.op("MatMul", x, weight(2, 3, 5))],
        "its weight has 3 axes",
    ),
    "factors": (gemms({"alpha": 0.5}, {"alpha": 0.25}), "no other Gemm of 'x' has its attributes"),
    "a matrix as bias": (
        lambda b: [b.op("Gemm", x := b.input("x", "float32", (2, 3)), weight(3, 4), weight(2, 4)),
                   b.op("Gemm", x, weight(3, 4, seed=1), weight(2, 1))],
        "is more than a row",
    ),
    "a bias that is computed": (
        lambda b: [b.op("Gemm", x := b.input("x", "float32", (2, 3)), weight(3, 4), c := b.input("c", "float32", (4,))),
                   b.op("Gemm", x, weight(3, 4, seed=1), c)],
        "'c' is not a constant",
    ),
    "strides": (convolutions({"strides": (2, 2)}, {}), "no other Conv of 'x' has its attributes"),
    "kernels": (convolutions({}, {}, sizes=(3, 1)), "no other Conv of 'x' has its attributes"),
    "groups": (convolutions({"group": 2}, {"group": 2}), "its channels are in groups"),
    "signs": (integers(None, None, of=("uint8", "int8")), "no other MatMulInteger of 'x' has its attributes"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    build, reason = REFUSED[case]
    graph = built(build)
    new, ctx = apply(graph, PASS)
    assert new is graph
    assert reason in reasons(ctx)


def test_a_large_weight_with_other_readers_is_not_there_twice() -> None:
    def build(b: GraphBuilder) -> list[str]:
        x, w = b.input("x", "float32", (1, 1024)), b.constant(weight(1024, 512))
        return [b.op("MatMul", x, w), b.op("MatMul", x, weight(1024, 2)), b.op("Relu", w)]

    graph = built(build)
    new, ctx = apply(graph, PASS)
    assert new is graph
    assert "so that it would be there twice" in reasons(ctx)


def test_products_behind_products() -> None:
    """What the second pair reads is a part of the first one's result."""

    def build(b: GraphBuilder) -> list[str]:
        y = matmuls(4, 5)(b)[0]
        return [b.op("MatMul", y, weight(4, 2)), b.op("MatMul", y, weight(4, 3))]

    new, _ = apply(built(build), PASS)
    assert ops(new) == ["MatMul", "Split", "MatMul", "Split"]


def test_a_product_that_others_read_keeps_its_sum() -> None:
    def build(b: GraphBuilder) -> list[str]:
        first, second = matmuls(4, 4)(b)
        return [first, b.op("Add", first, weight(4)), b.op("Add", second, weight(4, seed=1))]

    new, _ = apply(built(build), PASS)
    assert ops(new) == ["MatMul", "Add", "Split", "Add"]


def test_off_unless_enabled_and_behind_attention() -> None:
    def attention(b: GraphBuilder) -> str:
        x = b.input("x", "float32", (2, 16, 8))
        q, k, v = (
            b.op("Transpose", b.op("Reshape", b.op("Add", b.op("MatMul", x, weight(8, 8, seed=s)), weight(8, seed=s)),
                                   np.array([2, 16, 2, 4])), perm=perm)
            for s, perm in enumerate(((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
        )  # fmt: skip
        return b.op("MatMul", b.op("Softmax", b.op("MatMul", q, k), axis=-1), v)

    graph = built(attention)
    plain, report = run_passes(graph)
    assert ops(plain).count("MatMul") == 3
    assert not report.fired(PASS)
    merged, report = run_passes(graph, enabled=PASS)
    assert [o for o in ops(merged) if o in ("MatMul", "Split", "FusedAttention")] == [
        "MatMul",
        "Split",
        "FusedAttention",
    ]
    assert report.fired("attention") == 1
    assert_same_numbers(graph, merged, 2e-5)
    x = np.random.default_rng(0).standard_normal((2, 16, 8)).astype(F)
    both = [tilewright.compile(graph, progress=False, enabled_pass=e).run({"x": x}) for e in ((), (PASS,))]
    for name in graph.outputs:
        np.testing.assert_allclose(both[1][name], both[0][name], rtol=1e-4, atol=1e-5)


def test_a_file_gets_one_product_on_request() -> None:
    weights = ", ".join(f"float[4,{n}] w{n} = {{{','.join('1' for _ in range(4 * n))}}}" for n in (2, 3))
    rows = ", ".join(f"float[{n}] b{n} = {{{','.join('2' for _ in range(n))}}}" for n in (2, 3))
    text = (
        '<ir_version: 8, opset_import: ["" : 11]>'
        f" agraph (float[N,S,4] x) => (float[] y, float[] z) <{weights}, {rows}>"
        " { p = MatMul(x, w2) y = Add(p, b2) q = MatMul(x, w3) z = Add(q, b3) }"
    )
    model = onnx.parser.parse_model(text)
    assert [n.op_type for n in tilewright.simplify(model).graph.node] == ["MatMul", "Add", "MatMul", "Add"]
    small = tilewright.simplify(model, enabled_pass=[PASS])
    assert [n.op_type for n in small.graph.node] == ["MatMul", "Add", "Split"]
    assert [o.name for o in small.graph.output] == ["y", "z"]
