"""What becomes of an infinity or NaN in the input: what the definition gives, but for implementations that say so."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.choose_implementation import alternatives_of
from tilewright.lowering.table import TABLE


def _few_bits(k: int, n: int) -> onnx.ModelProto:
    """A product with a weight of four bits, in blocks of 16."""
    rng = np.random.default_rng(1)
    packed = rng.integers(0, 256, (n, k // 16, 8)).astype(np.uint8)
    scales = rng.uniform(0.1, 0.2, (n, k // 16)).astype(np.float32)
    attrs = {"K": k, "N": n, "bits": 4, "block_size": 16}
    graph = helper.make_graph(
        [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], "node", domain="com.microsoft", **attrs)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (3, k))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "s")],
    )  # fmt: skip
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    )


def _model(op: str, x: tuple[int, ...], w: tuple[int, ...], attrs: dict[str, object]) -> onnx.ModelProto:
    if op == "MatMulDequantized":
        return _few_bits(x[1], w[1])
    weight = numpy_helper.from_array(np.random.default_rng(1).standard_normal(w).astype(np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "w"], ["y"], "node", **attrs)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], [weight],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


CASES = {
    "image": ("Conv", (1, 32, 17, 17), (32, 32, 3, 3), {"pads": [1] * 4}),
    "stride": ("Conv", (1, 32, 18, 18), (32, 32, 3, 3), {"pads": [1] * 4, "strides": [2, 2]}),
    "groups": ("Conv", (1, 16, 9, 9), (16, 2, 3, 3), {"group": 8}),
    "depthwise": ("Conv", (1, 16, 9, 9), (16, 1, 3, 3), {"group": 16}),
    "transposed": ("ConvTranspose", (1, 16, 8, 8), (16, 16, 3, 3), {"strides": [2, 2]}),
    "product": ("MatMul", (384, 512), (512, 512), {}),
    "row": ("MatMul", (1, 512), (512, 24), {}),
    "many": ("MatMul", (3, 16, 64), (3, 64, 24), {}),
    "few bits": ("MatMulDequantized", (3, 512), (512, 512), {}),
}

BY_A_COST = ("fixed_point_by_rows",)
"""Those of which a cost of the CPU decides whether so few rows take what spreads."""


def _ways(model: onnx.ModelProto) -> tuple[str, list[str]]:
    """The node that has several implementations, and those that apply."""
    graph = tilewright.compile(model, threads=1, stop_after="passes")
    assert isinstance(graph, Graph)
    (found,) = alternatives_of(graph, parse_target(None).with_threads(1))
    return found.node.name, [i.name for i in found.ways if i.refusal(found.facts) is None]


def test_the_cases_reach_every_spreading_implementation() -> None:
    reached = {(case[0], name) for case in CASES.values() for name in _ways(_model(*case))[1]}
    reached |= {("Conv", f"{n}_pairs") for n in ("winograd2", "winograd2_stride2")}  # as those of float32, on bfloat16
    reached |= {("ConvTranspose", f"dot_product{n}") for n in ("", "_rows", "_tiles", "_shifted")}  # likewise
    reached |= {("MatMulDequantized", f"bfloat16_tiles{n}") for n in ("", "_by_rows")}  # where a CPU has tiles
    reached |= {(i.op, i.name) for ways in TABLE.values() for i in ways if i.family == "split"}  # likewise
    assert {(i.op, i.name) for ways in TABLE.values() for i in ways if i.spreads} <= reached


@pytest.mark.parametrize("case", CASES)
def test_only_those_that_say_so_give_other_infinities_and_nan(case: str) -> None:
    op, shape, *rest = CASES[case]
    model = _model(op, shape, *rest)
    imported = from_onnx(model)
    places = [tuple(n // 2 for n in shape), tuple((n - 1) // 3 for n in shape), (0,) * len(shape)]
    feeds: list[dict[str, np.ndarray]] = [{"x": _with(shape, at, value)} for at in places for value in (np.nan, np.inf)]
    wanted = [_not_finite(np.asarray(interpret(imported, f)["y"])) for f in feeds]
    node, names = _ways(model)
    for name in names:
        chosen = tilewright.compile(model, threads=1, implementations={node: name})
        differs = any(_not_finite(chosen.run(f)["y"]) != w for f, w in zip(feeds, wanted, strict=True))
        spreads = next(i.spreads for i in TABLE[op] if i.name == name)
        assert differs == spreads or (spreads and name in BY_A_COST and not differs), name


def _with(shape: tuple[int, ...], at: tuple[int, ...], value: float) -> np.ndarray:
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    x[at] = value
    return x


def _not_finite(y: np.ndarray) -> bytes:
    """Where there are infinities, of which sign, and NaN."""
    return np.where(np.isnan(y), 2, np.where(np.isinf(y), np.sign(y), 0)).astype(np.int8).tobytes()


def test_transposed_convolutions_of_pairs_spread_what_those_of_float32_do() -> None:
    op, shape, *rest = CASES["transposed"]
    model = _model(op, shape, *rest)
    node, _ = _ways(model)
    plain = tilewright.compile(model, threads=1, implementations={node: "subpixel"})
    pairs = tilewright.compile(model, threads=1, implementations={node: "dot_product"}, precision="bf16")
    for value in (np.inf, np.nan):
        feed = {"x": _with(shape, (0, 3, 5, 2), value)}
        assert _not_finite(pairs.run(feed)["y"]) == _not_finite(plain.run(feed)["y"]) != _not_finite(np.zeros(1))
