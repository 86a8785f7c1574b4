"""Operators by ``onnx.reference`` at the newest operator set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError


def evaluate_onnx(op: str, attrs: Mapping[str, object], inputs: Sequence[object], n_outputs: int) -> list[object]:
    """Outputs of the ONNX operator ``op``."""
    import onnx
    from onnx.defs import SchemaError, onnx_opset_version
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import RuntimeContextError
    from onnx.reference.ops import load_op

    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = onnx.helper.make_node(op, names, outputs)
    for key, value in attrs.items():
        if not (isinstance(value, tuple) and not value):
            node.attribute.append(_attribute(key, value))
    version = onnx_opset_version()
    params = {
        "log": lambda *_: None,
        "opsets": {"": version},
        "verbose": 0,
        "new_ops": None,
        "existing_functions": {},
        "evaluator_cls": ReferenceEvaluator,
    }
    types = [_input_type(x) for x in inputs[: len(names)]]
    try:
        cls = load_op("", op, version, node=node, input_types=types, evaluator_cls=ReferenceEvaluator)
        instance = cls(node, params)
    except (NotImplementedError, SchemaError, RuntimeContextError) as e:
        raise UnsupportedError(f"{op}: no reference definition") from e
    args = list(inputs[: len(names)])
    try:
        return list(instance.run(*args))[:n_outputs]
    except ImportError as e:
        raise UnsupportedError(f"{op}: {e}") from e


def _attribute(key: str, value: object) -> Any:
    import onnx

    if isinstance(value, np.ndarray):
        return onnx.helper.make_attribute(key, onnx.numpy_helper.from_array(value))
    if isinstance(value, (bool, np.integer)):
        value = int(value)
    return onnx.helper.make_attribute(key, list(value) if isinstance(value, tuple) else value)


def _input_type(x: object) -> Any:
    import onnx

    if isinstance(x, list):
        element = _input_type(x[0]) if x else onnx.helper.make_tensor_type_proto(1, None)
        return onnx.helper.make_sequence_type_proto(element)
    if isinstance(x, np.ndarray):
        return onnx.helper.make_tensor_type_proto(dtypes.from_numpy(x.dtype).onnx if x.dtype != object else 8, x.shape)
    return onnx.TypeProto()
