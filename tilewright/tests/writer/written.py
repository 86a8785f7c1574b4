"""One way to test what is written: ONNX's checker takes it, and read again it computes the same, here and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, TensorType
from tilewright.tests.graph_ir.rewriting import SIZES, random_array
from tilewright.writer import to_onnx

Feed = Mapping[str, np.ndarray]


def assert_written(
    graph: Graph, opset: int, ops: str | None = None, tolerance: float = 1e-5, ort: bool = True, **sizes: int
) -> onnx.ModelProto:
    """The model of ``graph`` in ``opset``, after all checks. ``ops``: the operators that it should have, in order.

    ``sizes``: of dimension symbols, which are set to each of SIZES in turn otherwise. ``ort``: onnxruntime runs it.
    """
    model = to_onnx(graph, opset)
    onnx.checker.check_model(model, full_check=True)
    assert [(o.domain, o.version) for o in model.opset_import] == [("", opset)]
    if ops is not None:
        assert [n.op_type for n in model.graph.node] == ops.split()
    again = from_onnx(model)
    assert again.inputs == graph.inputs
    assert again.outputs == graph.outputs
    for feed in feeds(graph, sizes):
        want = interpret(graph, feed)
        require_same(want, interpret(again, feed), tolerance)
        if ort and all(x.dtype.isbuiltin == 1 for x in feed.values()):
            require_same(want, run_in_ort(model, feed), tolerance)
    return model


def feeds(graph: Graph, sizes: Mapping[str, int]) -> list[dict[str, np.ndarray]]:
    """Seeded inputs of a graph at the sizes that tests take."""
    symbols = {s for i in graph.inputs for d in graph.values[i].shape for s in d.free_vars()}
    out = []
    for size in SIZES if symbols - sizes.keys() else (1,):
        env = {**dict.fromkeys(symbols, size), **sizes}
        rng = np.random.default_rng(size)
        out.append({i: random_array(rng, graph, i, env) for i in graph.inputs})
    return out


def run_in_ort(model: onnx.ModelProto, feed: Feed) -> dict[str, object]:
    """Outputs of onnxruntime by name; without optimisation, so that it runs what was written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, dict(feed)), strict=True))


def require_same(want: Mapping[str, object], got: Mapping[str, object], tolerance: float) -> None:
    """Results are equal in name, element type and shape, and nearly in value."""
    assert got.keys() == want.keys()
    for k, x in want.items():
        y = got[k]
        assert isinstance(x, np.ndarray)
        assert isinstance(y, np.ndarray)
        assert (y.dtype, y.shape) == (x.dtype, x.shape), k
        if x.dtype.kind in "biu":
            np.testing.assert_array_equal(y, x, err_msg=k)
        else:
            np.testing.assert_allclose(y.astype(np.float64), x.astype(np.float64), tolerance, tolerance, err_msg=k)


def types_of(graph: Graph) -> dict[str, TensorType]:
    """Types of the values of a graph that are tensors."""
    return {n: v.type for n, v in graph.values.items() if isinstance(v.type, TensorType)}
