"""Einsum as the operators that it is: which, on which sizes the same numbers, and where it stays."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.pipeline import run_passes
from tilewright.tests.graph_ir.rewriting import apply, assert_same_numbers, built, ops, require_refused
from tilewright.tests.replay.outputs import TARGETS

RULES = ("einsum_as_one_node", "einsum_as_product", "einsum_of_pairs")
SIZES = dict(zip("abhijkmn", (1, 2, 3, 4, 5, 7, 6, 5), strict=True))
OPEN: dict[str, Dim] = {"b": "b", "i": "i", "j": "j"}
Build = Callable[[GraphBuilder], str]


def einsum(equation: str, sizes: dict[str, Dim] | None = None, constant: Sequence[int] = (), dtype: str = "float32"
           ) -> Build:  # fmt: skip
    """``...`` has the axes ``b``; operands in ``constant`` are constants."""
    every: dict[str, Dim] = {**SIZES, **(sizes or {})}
    shapes = [[every[x] for x in t] for t in equation.partition("->")[0].replace("...", "b").split(",")]

    def build(b: GraphBuilder) -> str:
        rng = np.random.default_rng(0)
        operands = [
            rng.standard_normal([int(d) for d in s]).astype(dtype) if k in constant else b.input(f"x{k}", dtype, s)
            for k, s in enumerate(shapes)
        ]
        return b.op("Einsum", *operands, equation=equation)

    return build


ONE = [
    ("ij,jk->ik", "MatMul"), ("bij,bjk->bik", "MatMul"), ("...ij,...jk->...ik", "MatMul"), ("ijk,k->ij", "MatMul"),
    ("j,bj->b", "MatMul"), ("i,i", "MatMul"), ("bhij,bhjk->bhik", "MatMul"), ("bij,jk->bik", "MatMul"),
    ("ij,bjk->bik", "MatMul"),
    ("ij->ji", "Transpose"), ("bij->jbi", "Transpose"), ("ij->", "ReduceSum"), ("bij->bj", "ReduceSum"),
    ("bij,bij->bij", "Mul"), ("bij,ij->bij", "Mul"), ("...i,i->...i", "Mul"), ("ij->ij", "Identity"),
]  # fmt: skip


def test_the_axes_of_a_constant_are_moved_at_build_time() -> None:
    for equation, moved in (("bij,kj->bik", ["Transpose"]), ("bik,hkj->bihj", ["Transpose", "Reshape"])):
        graph = built(einsum(equation, {"b": "b"}, constant=(1,)))
        first, _ = apply(graph, *RULES)
        assert ops(first)[: len(moved) + 1] == [*moved, "MatMul"]
        after, _ = run_passes(graph)
        assert ops(after)[0] == "MatMul"
        assert_same_numbers(graph, after, 2e-5)


def test_a_constant_that_others_read_is_no_free_move() -> None:
    def build(b: GraphBuilder) -> list[str]:
        w = b.constant(np.ones((3, 5), np.float32), "w")
        return [b.op("Einsum", b.input("x", "float32", ("n", 5)), w, equation="ij,kj->ik"), b.op("Relu", w)]

    graph = built(build)
    assert apply(graph, "einsum_as_one_node")[0] is graph


CONSTANT = {"bik,hkn->bihn": (1,), "bihk,hkn->bin": (1,)}
SEVERAL = [
    ("ij,kj->ki", "Transpose MatMul"), ("bhij,bhjk->bihk", "MatMul Transpose"),
    ("bhik,bhjk->bhij", "Transpose MatMul"), ("bihn,bjhn->bhij", "Transpose Transpose MatMul"),
    ("bhij,bjhn->bihn", "Transpose MatMul Transpose"), ("i,j->ij", "Unsqueeze Mul"), ("bi,bi->b", "Mul ReduceSum"),
    ("bj,i->bij", "Unsqueeze Unsqueeze Mul"), ("bik,hkn->bihn", "Transpose Reshape MatMul Reshape"),
    ("bihk,hkn->bin", "Reshape Reshape MatMul"), ("bij,ik->bk", "ReduceSum MatMul"),
    ("ijk,jk->", "ReduceSum Mul ReduceSum"), ("ai,bi->ab", "Transpose MatMul"),
    ("bij,bj->bi", "Unsqueeze MatMul Squeeze"),
]  # fmt: skip


PAIRS = [
    ("ij,jk,km->im", "MatMul MatMul"), ("bi,ij,jb->b", "Transpose Transpose MatMul Mul ReduceSum"),
    ("i,j,k->", "ReduceSum ReduceSum Mul ReduceSum Mul"), ("mb,bi,ij,jk->mk", "MatMul MatMul MatMul"),
]  # fmt: skip

FIRES = [(rule, *case) for rule, cases in zip(RULES, (ONE, SEVERAL, PAIRS), strict=True) for case in cases]


@pytest.mark.parametrize("sizes", [{}, OPEN], ids=["static", "dynamic"])
@pytest.mark.parametrize(("rule", "equation", "want"), FIRES)
def test_fires(rule: str, equation: str, want: str, sizes: dict[str, Dim]) -> None:
    names = RULES[:1] if rule == RULES[0] else RULES
    new, ctx = apply(built(einsum(equation, sizes, constant=CONSTANT.get(equation, ()))), *names)
    assert rule in {f.what for f in ctx.log.fired}
    assert ops(new) == want.split()


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(4, 2, 3), (1, 3, 5)]), ("...ij,...jk->...ik", [(1, 2, 3), (4, 3, 5)]),
        ("...ij,...jk->...ik", [("n", 2, 3), ("m", 3, 5)]), ("...ij,...jk->...ik", [(6, 1, 2, 3), (4, 3, 5)]),
        ("ij,jk->ik", [(2, 1), (3, 4)]), ("ij,jk->ik", [("n", 1), ("m", 4)]), ("bi,bi->b", [(1, 3), (4, 3)]),
        ("bi,bi->b", [(4, 1), (4, 3)]), ("bij,bjk->bik", [(1, 2, 3), (1, 3, 5)]),
    ],
)  # fmt: skip
def test_axes_of_size_one_broadcast(equation: str, shapes: list[tuple[Dim, ...]]) -> None:
    graph = built(
        lambda b: b.op("Einsum", *(b.input(f"x{k}", "float32", s) for k, s in enumerate(shapes)), equation=equation)
    )
    new, _ = apply(graph, *RULES)
    assert "Einsum" not in ops(new)


@pytest.mark.parametrize("equation", [e for e, _ in (*ONE, *SEVERAL)])
def test_nothing_and_awkward_sizes(equation: str) -> None:
    graph = built(einsum(equation, dict.fromkeys("bhijkmn", "n")))
    new, _ = apply(graph, *RULES)
    assert_same_numbers(graph, new, 2e-5, (0, 2, 13))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64", "float16"])
def test_types(dtype: str) -> None:
    graph = built(einsum("bij,bjk->bik", OPEN, dtype=dtype))
    new, _ = apply(graph, "einsum_as_one_node")
    assert ops(new) == ["MatMul"]


@pytest.mark.parametrize(
    ("equation", "sizes", "dtype", "reason"),
    [
        ("ii->i", {}, "float32", "a label stands twice in a term of 'ii->i'"),
        ("iij,jk->ik", {}, "float32", "a label stands twice"),
        ("bij,bjk->ikb", {}, "float32", "1 tensors would be copied to lie as MatMul has them"),
        ("bihn,hnk->bki", {"h": "h", "n": "n"}, "float32", "would be copied"),
        ("ij,kj->ki", {}, "int8", "MatMul and ReduceSum have no int8"),
        ("bij,ik->bk", {}, "float16", "float16 would be rounded between two sums"),
        ("bihj,hk->bihjk", dict(zip("bihjk", "bihjk", strict=True)), "float32", ""),
    ],
)  # fmt: skip
def test_refused(equation: str, sizes: dict[str, Dim], dtype: str, reason: str) -> None:
    if reason:
        require_refused(einsum(equation, sizes, dtype=dtype), "einsum_as_product", reason)
    else:
        assert ops(apply(built(einsum(equation, sizes, dtype=dtype)), *RULES)[0]) == ["Unsqueeze", "Unsqueeze", "Mul"]


def uneven(b: GraphBuilder) -> str:
    return b.op(
        "Einsum", b.input("x", "float32", ("n", "k")), b.input("y", "float32", ("l", "m")), equation="ij,jk->ik"
    )


def test_sizes_that_may_differ() -> None:
    """A file has no check of sizes: one of them may be 1, which MatMul does not broadcast."""
    require_refused(uneven, "einsum_as_product", "sizes k, l of label j may differ")


def test_batch_axes_that_may_differ_broadcast_in_both() -> None:
    shapes: list[tuple[Dim, ...]] = [("n", 2, 3), ("m", 3, 5)]
    graph = built(
        lambda b: b.op("Einsum", *(b.input(f"x{k}", "float32", s) for k, s in enumerate(shapes)),
                       equation="bij,bjk->bik")
    )  # fmt: skip
    either = infer_graph(graph.replace(broadcasts=True, assumptions=()))
    assert ops(apply(either, "einsum_as_one_node")[0]) == ["MatMul"]


def test_two_open_sizes_cannot_be_told_apart_again() -> None:
    sizes: dict[str, Dim] = dict(zip("bij", "bij", strict=True))
    require_refused(einsum("bij,ijk->bk", sizes), "einsum_as_product", "a view would have more than one open size")


def test_the_cheapest_pair_is_first() -> None:
    new, _ = apply(built(einsum("ij,jk,km->im", {"i": 50, "j": 40, "k": 3, "m": 2})), "einsum_of_pairs")
    assert [n.attr("equation") for n in new.nodes] == ["bc,cd->bd", "ab,bd->ad"]


def test_pairs_refuse() -> None:
    require_refused(einsum("ij,jk,km->im", dtype="float16"), "einsum_of_pairs", "float16 would be rounded between")
    shapes: list[tuple[Dim, ...]] = [(2, "n"), ("m", 3), (3, 4)]
    require_refused(
        lambda b: b.op("Einsum", *(b.input(f"x{k}", "float32", s) for k, s in enumerate(shapes)),
                       equation="ij,jk,km->im"),
        "einsum_of_pairs", "sizes n, m of label j may differ",
    )  # fmt: skip
    require_refused(einsum("ii,ij,jk->k"), "einsum_of_pairs", "a label stands twice")


def attention(b: GraphBuilder) -> str:
    q, k, v = (b.input(x, "float32", ("b", "s", 4, 8)) for x in "qkv")
    scores = b.op("Mul", b.op("Einsum", q, k, equation="bihd,bjhd->bhij"), np.float32(0.25))
    return b.op("Einsum", b.op("Softmax", scores, axis=-1), v, equation="bhij,bjhd->bihd")


def test_attention_of_two_einsums_is_one_kernel() -> None:
    graph = built(attention)
    after, report = run_passes(graph)
    assert report.fired("attention") == 1
    assert_same_numbers(graph, after, 2e-5)


KERNELS = [
    "bhik,bhjk->bhij", "bihn,bjhn->bhij", "bhij,bjhn->bihn", "ij,kj->ki", "bij,bjk->kbi", "bijk,jkmn->bimn", "bi,bi->b",
    "bj,i->bij",
]  # fmt: skip


@pytest.mark.parametrize("equation", KERNELS)
def test_what_replaces_an_einsum_is_one_kernel(equation: str) -> None:
    def kernels(graph: Graph, disabled: Sequence[str]) -> int:
        lowered = tilewright.compile(
            graph, target=TARGETS["avx2"], stop_after="lower", progress=False, disabled_pass=disabled
        )
        return len(lowered.plan.steps)

    graph = built(einsum(equation, OPEN))
    assert kernels(graph, ()) == kernels(graph, ("replace_einsum",)) == 1


def test_a_file_gets_one_node_and_no_more() -> None:
    def simple(equation: str, **more: Sequence[str]) -> list[str]:
        terms = equation.partition("->")[0].split(",")
        inputs = ", ".join(f"float[{','.join(str(SIZES[x]) for x in t)}] x{k}" for k, t in enumerate(terms))
        names = ", ".join(f"x{k}" for k in range(len(terms)))
        text = (f'<ir_version: 8, opset_import: ["" : 17]> agraph ({inputs}) => (float[] y) '
                f'{{ y = Einsum<equation="{equation}">({names}) }}')  # fmt: skip
        model = onnx.parser.parse_model(text)
        return [n.op_type for n in tilewright.simplify(model, **more).graph.node]

    assert simple("bij,bjk->bik") == ["MatMul"]
    assert simple("ij,kj->ik") == ["Einsum"]
    assert simple("ij,kj->ik", enabled_pass=["einsum_as_product"]) == ["Transpose", "MatMul"]
