"""Winograd's convolutions as stages, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
from tilewright.lowering.choose_implementation import alternatives_of
from tilewright.lowering.implementations.conv.winograd import OF_BYTES
from tilewright.lowering.implementations.conv.winograd_matrices import WINOGRAD
from tilewright.tests.lowering.lowered import lower, require_twin


def conv(implementation: str, x: tuple[Dim, ...], oc: int, bias: bool = True, **attrs: Attribute) -> Graph:
    rng = np.random.default_rng(5)
    b = GraphBuilder("g")
    name = b.input("x", "float32", x)
    last = attrs.setdefault("data_layout", "NHWC") == "NHWC"
    if implementation in WINOGRAD:
        attrs.setdefault("strides", (WINOGRAD[implementation].stride,) * 2)
    w = rng.standard_normal((oc, int(str(x[-1 if last else 1])), 3, 3)).astype(np.float32)
    rest = [rng.standard_normal(oc).astype(np.float32)] if bias else []
    return b.build(b.op("Conv", name, w, *rest, implementation=implementation, **attrs))


def feed(graph: Graph) -> dict[str, np.ndarray]:
    shape = [int(d.value() or 0) for d in graph.values["x"].shape]
    return {"x": np.random.default_rng(6).standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("implementation", WINOGRAD)
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        ((1, 5, 7, 3), (1, 1, 1, 1)), ((2, 4, 4, 2), (0, 1, 2, 0)), ((1, 3, 3, 1), (0, 0, 0, 0)),
        ((3, 1, 9, 2), (1, 1, 1, 1)), ((1, 8, 6, 2), (0, 0, 0, 0)), ((0, 4, 4, 2), (1, 1, 1, 1)),
        ((1, 6, 6, 2), (3, 0, 1, 4)),
    ],
)  # fmt: skip
def test_twin(implementation: str, shape: tuple[int, ...], pads: tuple[int, ...]) -> None:
    for oc in (1, 5):
        graph = conv(implementation, shape, oc, pads=pads)
        require_twin(graph, feed(graph), tolerance=1e-4)


@pytest.mark.parametrize("implementation", WINOGRAD)
def test_automatic_padding_and_the_other_layout(implementation: str) -> None:
    graph = conv(implementation, (1, 5, 7, 3), 4, bias=False, auto_pad="SAME_UPPER")
    require_twin(graph, feed(graph), tolerance=1e-4)
    graph = conv(implementation, (1, 3, 5, 7), 4, pads=(1, 1, 1, 1), data_layout="NCHW")
    require_twin(graph, feed(graph), tolerance=1e-4)


@pytest.mark.parametrize("name", WINOGRAD)
@pytest.mark.parametrize(
    ("shape", "pads"),
    [
        (("n", "h", "w", 3), (1, 1, 1, 1)), (("n", 6, 7, 2), (1, 1, 1, 1)), ((1, "h", 5, 2), (0, 1, 2, 0)),
        ((1, 4, "w", 2), (2, 0, 1, 4)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dims", [(1, 1, 1), (2, 2, 3), (1, 5, 7), (3, 8, 2), (1, 4, 9), (0, 5, 5)])
def test_symbolic_sizes(name: str, shape: tuple[Dim, ...], pads: tuple[int, ...], dims: tuple[int, ...]) -> None:
    graph = conv(name, shape, 5, pads=pads)
    env = dict(zip(("n", "h", "w"), dims, strict=True))
    at = [d.evaluate(env) for d in graph.values["x"].shape]
    rng = np.random.default_rng(6)
    require_twin(graph, {"x": rng.standard_normal(at).astype(np.float32)}, env, tolerance=1e-4)


def test_an_operand_that_ends_with_a_row_nobody_reads_is_not_copied() -> None:
    graph = conv("winograd2_stride2", (1, 10, 10, 4), 4)
    assert "padded" not in str(lower(graph).func)
    require_twin(graph, feed(graph), tolerance=1e-4)


def test_an_operand_of_symbolic_size_is_not_copied() -> None:
    low = lower(conv("winograd4", ("n", "h", "w", 3), 4))
    assert "padded" not in str(low.func)
    assert "padded" in str(lower(conv("winograd4", (1, "h", 5, 3), 4)).func)  # the row of 3 is padded to 4


def test_weights_are_transformed_at_build_time() -> None:
    low = lower(conv("winograd4", (1, 8, 8, 16), 24, pads=(1, 1, 1, 1)))
    packed = next(c for c in low.constants if c.key.startswith("winograd4"))
    shape = next(p.shape for p in low.func.params if p.name == packed.buffer)
    assert [d.value() for d in shape[1:4]] == [6, 6, 16]


@pytest.mark.parametrize(
    ("shape", "attrs", "message"),
    [
        ((1, 8, 8, 4), {"strides": (2, 2)}, "implementation 'winograd4': strides 2, expected 1"),
        ((1, 8, 8, 4), {"strides": (1, 2)}, "implementation 'winograd4': strides 1, 2, expected 1"),
        ((1, 8, 8, 4), {"dilations": (2, 2)}, "implementation 'winograd4': dilations 2, expected 1"),
    ],
)
def test_refusals(shape: tuple[Dim, ...], attrs: dict[str, Attribute], message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        lower(conv("winograd4", shape, 4, **attrs))
    with pytest.raises(UnsupportedError, match="unknown implementation 'other', expected one of depthwise, direct, "):
        lower(conv("other", (1, 8, 8, 4), 4))


def of_bytes(
    implementation: str, x: tuple[Dim, ...], weight: np.ndarray, dtype: str = "uint8", zero: int | str | None = None,
    zeros: np.ndarray | None = None, **attrs: Attribute,
) -> Graph:  # fmt: skip
    """A ConvInteger with channels last; ``zero``: that of ``x``, the name of an input if it comes at run time."""
    b = GraphBuilder("g")
    operands: list[str | None] = [b.input("x", dtype, x), b.constant(weight, "w")]
    if zero is not None or zeros is not None:
        value = b.input(zero, dtype, ()) if isinstance(zero, str) else b.constant(np.array(zero or 0, dtype), "zx")
        operands.append(value)
    if zeros is not None:
        operands.append(b.constant(zeros, "zw"))
    attrs = {"strides": (WINOGRAD[implementation.removesuffix("_shorts")].stride,) * 2, **attrs}
    return b.build(b.op("ConvInteger", *operands, implementation=implementation, data_layout="NHWC", **attrs))


def extremes(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).choice([info.min, info.max], shape).astype(dtype)


WHOLE = [i.name for i in OF_BYTES]


@pytest.mark.parametrize("implementation", WHOLE)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [None, 3, 127, "z"])
def test_bytes_are_exact(implementation: str, dtype: str, zero: int | str | None) -> None:
    for shape, pads in (((1, 5, 7, 3), (1, 1, 1, 1)), ((2, 4, 4, 2), (0, 1, 2, 0)), ((1, 3, 3, 1), (0, 0, 0, 0))):
        graph = of_bytes(implementation, shape, extremes((5, shape[-1], 3, 3), "int8", 1), dtype, zero, pads=pads)
        feed = {"x": extremes(shape, dtype, 2), **({"z": np.array(77, dtype)} if zero == "z" else {})}
        require_twin(graph, {k: v for k, v in feed.items() if k in graph.inputs})


@pytest.mark.parametrize("implementation", WHOLE)
def test_zero_points_of_weights_are_taken_off_at_build_time(implementation: str) -> None:
    weight = np.random.default_rng(3).integers(40, 200, (5, 4, 3, 3)).astype(np.uint8)
    for zeros in (np.array(130, np.uint8), np.array([40, 120, 199, 60, 255], np.uint8)):
        graph = of_bytes(implementation, (1, 6, 6, 4), weight, zero=9, zeros=zeros, pads=(1, 1, 1, 1))
        require_twin(graph, {"x": extremes((1, 6, 6, 4), "uint8", 4)})


@pytest.mark.parametrize("implementation", WHOLE)
@pytest.mark.parametrize("dims", [(1, 1, 1), (2, 2, 3), (1, 5, 7), (3, 8, 2)])
def test_bytes_of_symbolic_sizes(implementation: str, dims: tuple[int, ...]) -> None:
    graph = of_bytes(implementation, ("n", "h", "w", 3), extremes((5, 3, 3, 3), "int8", 5), zero=200, pads=(1, 1, 1, 1))
    env = dict(zip(("n", "h", "w"), dims, strict=True))
    require_twin(graph, {"x": extremes((*dims, 3), "uint8", 6)}, env)


@pytest.mark.parametrize("implementation", [*WINOGRAD, *WHOLE])
def test_the_weight_tells_how_many_channels_there_are(implementation: str) -> None:
    shape: tuple[Dim, ...] = (1, 6, 7, "c")
    if implementation in WINOGRAD:
        graph = conv(implementation, (1, 6, 7, 3), 4, pads=(1, 1, 1, 1))
    else:
        graph = of_bytes(implementation, (1, 6, 7, 3), extremes((4, 3, 3, 3), "int8", 1), zero=7, pads=(1, 1, 1, 1))
    given = graph.values["x"]
    b = GraphBuilder("open")
    name = b.input("x", given.dtype, shape)
    (node,) = graph.nodes
    rest = [b.constant(graph.constants[i].array, i) for i in node.inputs[1:]]
    graph = b.build(b.op(node.op, name, *rest, **dict(node.attrs)))
    x = np.random.default_rng(6).integers(0, 256, (1, 6, 7, 3)).astype(given.dtype.numpy)
    require_twin(graph, {"x": x}, {"c": 3}, tolerance=1e-4)


@pytest.mark.parametrize("sign", [1, -1])
def test_sums_that_wrap_around_are_exact(sign: int) -> None:
    """576 times the sums do not fit in an int32, the largest of them not even without the power of two."""
    weight = np.full((3, 200, 3, 3), sign * 127, np.int8)
    weight[1] //= 2
    weight[2] = extremes(weight[2].shape, "int8", 7)
    graph = of_bytes("winograd4_shorts", (1, 4, 4, 200), weight, pads=(1, 1, 1, 1))
    low = lower(graph)
    assert any(c.key.startswith("middles") for c in low.constants)
    for x in (np.full((1, 4, 4, 200), 255, np.uint8), extremes((1, 4, 4, 200), "uint8", 8)):
        require_twin(graph, {"x": x})


def test_bytes_are_chosen_where_vectors_multiply_int16() -> None:
    weight = extremes((64, 64, 3, 3), "int8", 9)
    graph = of_bytes("winograd4_shorts", (1, 56, 56, 64), weight, pads=(1, 1, 1, 1))
    for cpu, wanted in (
        ("haswell", "winograd4_shorts"), ("icelake-server", "winograd4_shorts"), ("sapphirerapids", "dot_product"),
    ):  # fmt: skip
        (found,) = alternatives_of(graph, parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}"))
        assert found.standard().name.startswith(wanted)
    with pytest.raises(UnsupportedError, match="sums that lie up to 116586000 apart, expected less than 67108864"):
        lower(of_bytes("winograd4_shorts", (1, 8, 8, 400), np.full((1, 400, 3, 3), 127, np.int8)))
    with pytest.raises(UnsupportedError, match="transformed weights of up to 36720, an int16 holds 32767"):
        lower(of_bytes("winograd4_shorts", (1, 8, 8, 4), np.full((1, 4, 3, 3), 255, np.uint8)))
