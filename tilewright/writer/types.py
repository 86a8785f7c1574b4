"""Types of values as messages, sizes under the names that the file has for them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tilewright.core.arith.expr import IntExpr, as_var, var
from tilewright.graph_ir.ir import OptionalType, SequenceType, Shape, TensorType, Type, Value


class TypeWriter:
    """``dims``: symbol -> the file's name of a size, "" for one without a name (written without)."""

    def __init__(self, dims: Mapping[str, str]) -> None:
        self._dims = dims
        self._renamed = {s: var(text) for s, text in dims.items() if text and text != s and text.isidentifier()}

    def value_info(self, value: Value) -> onnx.ValueInfoProto | None:
        """The message of a value; None if its type is unknown."""
        message = onnx.ValueInfoProto(name=value.name)
        return message if self._write(value.type, message.type) else None

    def _write(self, t: Type | None, message: onnx.TypeProto) -> bool:
        match t:
            case TensorType():
                message.tensor_type.elem_type = t.dtype.onnx
                if t.shape is not None:
                    self.write_shape(t.shape, message.tensor_type.shape)
                return True
            case SequenceType():
                return self._write(t.element, message.sequence_type.elem_type)
            case OptionalType():
                return self._write(t.element, message.optional_type.elem_type)
        return False

    def write_shape(self, shape: Shape, message: onnx.TensorShapeProto) -> None:
        """Fill ``message`` with the sizes of ``shape``."""
        message.SetInParent()
        for d in shape:
            dim, size = message.dim.add(), d.value()
            if size is not None:
                dim.dim_value = size
            elif text := self._text(d):
                dim.dim_param = text

    def _text(self, d: IntExpr) -> str:
        symbol = as_var(d)
        if symbol is not None:
            return self._dims.get(symbol, symbol)
        if any(not self._dims.get(s, s).isidentifier() for s in d.free_vars()):
            return ""
        return str(d.substitute(self._renamed))
