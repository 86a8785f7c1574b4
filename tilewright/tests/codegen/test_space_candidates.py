"""Random points of the search spaces: machine code, and now and then the interpreter, against the function as declared.

Longer: ``python -m tilewright.tests.codegen.test_space_candidates 100``.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tilewright.autotune.base.space import Space
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.kernel import build
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.schedule.rules.facts import is_reduction
from tilewright.tensor_ir.analysis.scopes import blocks_in
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like

Shapes = dict[str, tuple[int, ...]]


def from_onnx(op: str, inputs: Shapes, out: tuple[int, ...], constants: Shapes, tail: str = "", **attributes) -> Func:
    """The kernel of one node (not those that fill borders), with an activation behind it if ``tail``."""
    rng = np.random.default_rng(0)
    names = [*inputs, *constants]
    nodes = [helper.make_node(op, names, ["t" if tail else "y"], **attributes)]
    if tail:
        nodes.append(helper.make_node(tail, ["t"], ["y"]))
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, out)],
        [onnx.numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in constants.items()],
    )
    funcs = compile(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), stop_after="lower"
    ).funcs.values()
    return max(funcs, key=lambda f: (any(map(is_reduction, blocks_in(f.body))), len(str(f.body))))


FUNCS = {
    "matmul": packed_matmul(12, 32, 32),
    "matmul, ragged": packed_matmul(13, 40, 8),
    "matmul, rows pages apart": packed_matmul(17, 32, 1024),
    "convolution": conv(9, 9, 8, 16, 3, 1, 1),
    "stages in rows": softmax_like(16, 33),
    "3x3": from_onnx("Conv", {"x": (1, 8, 8, 12)}, (1, 32, 8, 12), {"w": (32, 8, 3, 3)}, "Relu", pads=[1] * 4),
    "strides": from_onnx(
        "Conv", {"x": (2, 8, 9, 7)}, (2, 24, 5, 4), {"w": (24, 8, 3, 3)}, pads=[1] * 4, strides=[2, 2]
    ),
    "1x1": from_onnx("Conv", {"x": (1, 32, 8, 6)}, (1, 48, 8, 6), {"w": (48, 32, 1, 1)}, "Sigmoid"),
    "depthwise": from_onnx("Conv", {"x": (1, 24, 9, 8)}, (1, 24, 9, 8), {"w": (24, 1, 3, 3)}, pads=[1] * 4, group=24),
    "batched": from_onnx("MatMul", {"x": (2, 3, 16, 32), "z": (2, 3, 32, 48)}, (2, 3, 16, 48), {}),
    "softmax": from_onnx("Softmax", {"x": (32, 40)}, (32, 40), {}, axis=-1),
    "norm": from_onnx("LayerNormalization", {"x": (4, 8, 48)}, (4, 8, 48), {"s": (48,)}, axis=-1),
    "transpose": from_onnx("Transpose", {"x": (3, 24, 36)}, (3, 36, 24), {}, perm=[0, 2, 1]),
    "pool": from_onnx("AveragePool", {"x": (1, 16, 12, 12)}, (1, 16, 6, 6), {}, kernel_shape=[2, 2], strides=[2, 2]),
    "elementwise": from_onnx("Erf", {"x": (16, 100)}, (16, 100), {}, "Tanh"),
}


def run(name: str, count: int, seed: int) -> int:
    """Check ``count`` random candidates; how many there were. Fails with the decisions that show the problem."""
    func, rng = FUNCS[name], np.random.default_rng(seed)
    host = detect_host().with_threads(2)
    target = replace(host, own_costs=replace(host.costs, parallel_ns=0, never_parallel_ns=0))
    inputs = func.params[: len(func.params) - func.outputs]
    args = [rng.standard_normal([d.evaluate({}) for d in b.shape]).astype(b.dtype.numpy) for b in inputs]
    want = interpret(func, args, {})
    done = 0
    space = Space(func, target)
    for n in range(count):
        found = space.sample(rng)
        if found is None:
            continue
        done += 1
        verify(found.func)
        ways = [build(found.func, target, 0)(args, {}, 2)]
        if n % 4 == 0:
            ways.append(interpret(found.func, args, {}))
        for got in ways:
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(g, w, rtol=2e-4, atol=2e-4, err_msg=f"{name}: {found.values()}")
    return done


@pytest.mark.parametrize("name", FUNCS)
def test_every_candidate_computes_the_same(name):
    assert run(name, 4, 1) > 0


if __name__ == "__main__":
    for each in FUNCS:
        print(f"{each}: {run(each, int(sys.argv[1]), 2)} candidates", flush=True)
