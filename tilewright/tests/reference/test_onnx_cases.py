"""A sample of ONNX's own node cases: inference, interpreter and reference against the stored outputs."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Attribute, Constant, TensorType

onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.filterwarnings("ignore")

_TYPES = ("to", "dtype", "output_dtype", "output_datatype")
_PREFIXES = (
    "test_averagepool", "test_maxpool", "test_lppool", "test_basic_conv", "test_basic_deform", "test_conv",
    "test_convtranspose", "test_convinteger", "test_qlinear", "test_matmulinteger", "test_globalaveragepool",
    "test_globalmaxpool", "test_gelu", "test_erf", "test_einsum", "test_slice", "test_resize", "test_softmax",
    "test_layer_normalization", "test_gather", "test_reduce_sum", "test_top_k", "test_pad", "test_nonmaxsuppression",
    "test_quantizelinear", "test_dequantizelinear", "test_lstm", "test_gru", "test_split", "test_batchnorm",
    "test_cumsum", "test_range", "test_unique", "test_onehot", "test_wrap_pad", "test_reflect_pad", "test_squeeze",
)  # fmt: skip

_LEFT_OUT = ("expanded", "training", "sequence")


def _cases() -> list[object]:
    from onnx.backend.test.loader import load_model_tests

    found = []
    for c in load_model_tests(kind="node"):
        if c.model is None or not c.name.startswith(_PREFIXES) or any(s in c.name for s in _LEFT_OUT):
            continue
        newest = {i.version for i in c.model.opset_import if i.domain in ("", "ai.onnx")}
        if newest and min(newest) >= 21:
            found.append(c)
    return found


def _attribute(a: object) -> Attribute:
    value = onnx.helper.get_attribute_value(a)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return Constant(onnx.numpy_helper.to_array(value))
    if a.name in _TYPES:
        return dtypes.from_onnx(value) if value else None
    return tuple(value) if isinstance(value, list) else value


def _array(x: object) -> object:
    x = onnx.numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x
    x = np.asarray(x) if isinstance(x, np.generic) else x
    return x.astype(object) if isinstance(x, np.ndarray) and x.dtype.kind in "SU" else x


def test_sampled_node_cases() -> None:
    failures = []
    cases = _cases()
    for c in cases:
        (node,) = c.model.graph.node
        attrs = {a.name: _attribute(a) for a in node.attribute}
        for given, wanted in c.data_sets:
            arrays = [_array(x) for x in given]
            b = GraphBuilder(c.name)
            for i, x in zip(c.model.graph.input, arrays, strict=True):
                shape = tuple(const(d) for d in x.shape)
                b.typed_input(i.name, TensorType(dtypes.from_numpy(x.dtype), shape))
            b.ops(node.op_type, *(i or None for i in node.input), outputs=list(node.output), **attrs)
            g = b.build(*(o.name for o in c.model.graph.output))
            got = interpret(g, {i.name: x for i, x in zip(c.model.graph.input, arrays, strict=True)})
            for o, want in zip(c.model.graph.output, map(_array, wanted), strict=True):
                if not _same(got[o.name], want, g.values[o.name].type):
                    failures.append(c.name)
    assert len(cases) > 150
    assert failures == []


def _same(got: object, want: object, declared: object) -> bool:
    if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray) or not isinstance(declared, TensorType):
        return False
    if got.shape != want.shape or got.dtype != want.dtype or declared.dtype.numpy != want.dtype:
        return False
    dims = declared.shape or ()
    if len(dims) != want.ndim or any(d.is_const and d.const != n for d, n in zip(dims, want.shape, strict=True)):
        return False
    if want.dtype.kind == "V" or dtypes.from_numpy(want.dtype).is_narrow_float:
        got, want = got.astype(np.float32), want.astype(np.float32)
    elif dtypes.from_numpy(want.dtype).kind in "iu":
        got, want = got.astype(object), want.astype(object)
        return bool((got == want).all())
    return np.allclose(got, want, rtol=1e-3, atol=1e-6, equal_nan=True)
