"""Concat and padding without copies: whole models against onnx's reference, and what their plans still hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper
from onnx.reference import ReferenceEvaluator

import tilewright
from tilewright.core.plan import KernelStep
from tilewright.tests.frontend.models import model_of

RNG = np.random.default_rng(5)


class Net:
    """Nodes put together one after the other; weights are random."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.constants: dict[str, np.ndarray] = {}

    def op(self, op: str, *inputs: str, **attrs: object) -> str:
        out = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [out], f"n{len(self.nodes)}", **attrs))
        return out

    def conv(self, x: str, channels: int, out: int, kernel: int = 1, relu: bool = True, **attrs: object) -> str:
        group = int(str(attrs.get("group", 1)))
        weight = f"w{len(self.constants)}"
        shape = (out, channels // group, kernel, kernel)
        self.constants[weight] = (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        y = self.op("Conv", x, weight, **attrs)
        return self.op("Relu", y) if relu else y


Case = Callable[[Net], Sequence[str]]


def branches(n: Net) -> Sequence[str]:
    x = n.conv("x", 3, 8)
    return [n.conv(n.op("Concat", n.conv(x, 8, 5), n.conv(x, 8, 16, 3, pads=[1] * 4), axis=1), 21, 4)]


def dense_block(n: Net) -> Sequence[str]:
    parts, channels = [n.op("MaxPool", n.conv("x", 3, 8), kernel_shape=[3, 3], pads=[1] * 4)], 8
    for _ in range(3):
        x = n.op("Concat", *parts, axis=1) if len(parts) > 1 else parts[0]
        parts.append(n.conv(n.conv(x, channels, 6), 6, 4, 3, relu=False, pads=[1] * 4))
        channels += 4
    return [n.conv(n.op("Relu", n.op("Concat", *parts, axis=1)), channels, 3)]


def nested(n: Net) -> Sequence[str]:
    inner = n.op("Concat", n.conv("x", 3, 4), n.conv("x", 3, 4), axis=2)
    outer = n.op("Concat", inner, n.conv("x", 3, 4, 3, strides=[1, 1], pads=[3, 1, 3, 1]), axis=2)
    return [n.conv(outer, 4, 3, 3, pads=[1, 1, 1, 1])]


def operands_that_stay(n: Net) -> Sequence[str]:
    x = n.conv("x", 3, 4)
    own = n.conv("x", 3, 2)
    return [n.conv(n.op("Concat", "x", x, x, own, n.op("Relu", x), axis=1), 17, 4), own]


def two_paddings(n: Net) -> Sequence[str]:
    x = n.conv("x", 3, 8)
    small, large = n.conv(x, 8, 8, 3, pads=[1] * 4), n.conv(x, 8, 8, 5, group=8, pads=[2] * 4)
    return [n.op("Add", n.op("Add", small, large), x)]


def uneven_padding(n: Net) -> Sequence[str]:
    x = n.conv("x", 3, 8)
    return [n.conv(x, 8, 8, 3, group=8, strides=[2, 2], pads=[0, 1, 2, 1]), n.conv(x, 8, 5, 3, pads=[2, 0, 1, 3])]


def depthwise_chain(n: Net) -> Sequence[str]:
    x = n.conv(n.conv("x", 3, 24, 3, strides=[2, 2], pads=[1] * 4), 24, 24, 3, group=24, pads=[1] * 4)
    x = n.conv(n.conv(x, 24, 19), 19, 19, 3, group=19, strides=[2, 2], pads=[1] * 4, dilations=[1, 1])
    return [n.conv(x, 19, 7, 3, relu=False, pads=[2] * 4, dilations=[2, 2])]


def read_in_another_layout(n: Net) -> Sequence[str]:
    x = n.conv("x", 3, 8)
    return [n.conv(x, 8, 4, 3, pads=[1] * 4), n.op("Flatten", x)]


CASES: dict[str, Case] = {
    f.__name__: f
    for f in (
        branches, dense_block, nested, operands_that_stay, two_paddings, uneven_padding, depthwise_chain,
        read_in_another_layout,
    )
}  # fmt: skip


def _model(case: str, shape: Sequence[int | str]) -> onnx.ModelProto:
    net = Net()
    outputs = CASES[case](net)
    return model_of(net.nodes, {"x": list(shape)}, list(outputs), 18, constants=net.constants)


def _require_same(proto: onnx.ModelProto, model: tilewright.CompiledModel, shape: Sequence[int]) -> None:
    feed = {"x": RNG.standard_normal(shape).astype(np.float32)}
    expected = ReferenceEvaluator(proto).run(None, feed)
    for _ in range(2):  # the second run finds what the first has left in the arena
        for got, want in zip(model.run(None, feed), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("shape", [(1, 3, 8, 8), (2, 3, 7, 11)])
def test_static(case: str, shape: tuple[int, ...]) -> None:
    proto = _model(case, shape)
    _require_same(proto, tilewright.compile(proto, threads=2), shape)


@pytest.mark.parametrize("case", CASES)
def test_symbolic(case: str) -> None:
    proto = _model(case, ("b", 3, "h", "w"))
    model = tilewright.compile(proto, threads=2)
    for shape in ((1, 3, 6, 6), (3, 3, 13, 4), (1, 3, 5, 17)):
        _require_same(proto, model, shape)


@pytest.mark.parametrize(
    ("case", "copies", "borders"),
    [("branches", 0, 1), ("dense_block", 0, 3), ("nested", 0, 2), ("operands_that_stay", 1, 0), ("two_paddings", 0, 1),
     ("uneven_padding", 0, 1), ("depthwise_chain", 0, 4), ("read_in_another_layout", 0, 1)],
)  # fmt: skip
def test_what_is_left(case: str, copies: int, borders: int) -> None:
    plan = tilewright.compile(_model(case, (1, 3, 8, 8)), threads=1).plan
    kernels = [s.kernel for s in plan.steps if isinstance(s, KernelStep)]
    assert sum("concat" in k for k in kernels) == 0
    assert sum("identity" in k for k in kernels) >= copies
    assert sum("border" in k for k in kernels) == borders
