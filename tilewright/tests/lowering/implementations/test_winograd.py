"""Winograd's convolutions as stages, against the definition."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Attribute, Graph
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
