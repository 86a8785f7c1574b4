"""Dimensions and types of a model's inputs: symbols for named dims, checks, the user's overrides."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_var, const, var
from tilewright.core.errors import InputError, ModelError, UnsupportedError
from tilewright.core.limits import MAX_DIM, require_rank
from tilewright.core.options import as_whole, require_mapping, shown
from tilewright.core.suggestions import did_you_mean
from tilewright.frontend.model_file.tensors import check_dims
from tilewright.graph_ir.ir import OptionalType, SequenceType, Shape, TensorType, Type

_RESERVED = frozenset(("min", "max"))


def identifier(text: str) -> str:
    """``text`` as an identifier: other characters become ``_``; never empty, never a keyword."""
    name = re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_") or "d"
    if name[0].isdigit() or keyword.iskeyword(name) or name in _RESERVED:
        name = f"d_{name}"
    return name


class Dims:
    """Names for the dims of one model. The same text is the same symbol everywhere; other texts get other names."""

    def __init__(
        self, fixed: Mapping[str, int] | None = None, ranges: Mapping[str, tuple[int, int]] | None = None
    ) -> None:
        """``fixed``: sizes, and ``ranges``: least and greatest sizes, by what the model calls a dim."""
        self._fixed = dict(fixed or {})
        self._ranges = dict(ranges or {})
        self._by_text: dict[str, IntExpr] = {}
        self._taken: set[str] = set()

    def named(self, text: str) -> IntExpr:
        """The symbol (or the fixed size) of a dim that the model calls ``text``."""
        if text not in self._by_text:
            size = self._fixed.get(text)
            self._by_text[text] = var(self._unique(text)) if size is None else const(size)
        return self._by_text[text]

    def anonymous(self, owner: str, axis: int) -> IntExpr:
        """A fresh symbol for a dim that has no name."""
        return var(self._unique(f"{owner}_d{axis}"))

    def ranges(self) -> tuple[tuple[str, int, int], ...]:
        """Symbol, least and greatest size of the dims that have a range."""
        found = ((as_var(self._by_text[text]), r) for text, r in self._ranges.items() if text in self._by_text)
        return tuple((symbol, *r) for symbol, r in found if symbol is not None)

    def texts(self) -> dict[str, str]:
        """Symbol -> what the model calls that dim; "" for one without a name."""
        named = {s: text for text, e in self._by_text.items() if (s := as_var(e)) is not None}
        return {s: named.get(s, "") for s in self._taken}

    def _unique(self, text: str) -> str:
        base = identifier(text)
        name, n = base, 0
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._taken.add(name)
        return name


def read_type(proto: onnx.TypeProto, owner: str, dims: Dims, override: Sequence[int | str] | None = None) -> Type:
    """The type that the model declares for ``owner``. Raises ModelError."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        code = proto.tensor_type.elem_type
        if not code:
            raise ModelError(f"value {owner!r}: expected an element type, got none")
        dtype = dtypes.from_onnx(code)
        if override is not None:
            declared = proto.tensor_type.shape.dim
            if proto.tensor_type.HasField("shape") and len(declared) != len(override):
                raise InputError(f"input_shapes[{owner!r}]: expected {len(declared)} dims, got {list(override)}")
            return TensorType(dtype, _override_shape(owner, dims, override))
        if not proto.tensor_type.HasField("shape"):
            return TensorType(dtype, None)
        return TensorType(dtype, _declared_shape(proto.tensor_type.shape, owner, dims))
    if kind == "sequence_type":
        return SequenceType(_element_type(proto.sequence_type, owner, dims))
    if kind == "optional_type":
        return OptionalType(_element_type(proto.optional_type, owner, dims))
    if kind is None:
        raise ModelError(f"value {owner!r}: expected a type, got none")
    raise UnsupportedError(f"value {owner!r}: type {kind.removesuffix('_type')} is not supported")


def _element_type(proto: onnx.TypeProto.Sequence | onnx.TypeProto.Optional, owner: str, dims: Dims) -> Type | None:
    return read_type(proto.elem_type, owner, dims) if proto.elem_type.WhichOneof("value") else None


def _declared_shape(proto: onnx.TensorShapeProto, owner: str, dims: Dims) -> Shape:
    out: list[IntExpr] = []
    for axis, d in enumerate(proto.dim):
        if d.WhichOneof("value") == "dim_value":
            out.append(const(d.dim_value))
        elif d.dim_param:
            out.append(dims.named(d.dim_param))
        else:
            out.append(dims.anonymous(owner, axis))
    _check_known(out, f"value {owner!r}")
    return tuple(out)


def _override_shape(owner: str, dims: Dims, sizes: Sequence[int | str]) -> Shape:
    out: list[IntExpr] = []
    for axis, size in enumerate(sizes):
        if isinstance(size, str):
            out.append(dims.named(size) if size else dims.anonymous(owner, axis))
        else:
            out.append(const(require_size(f"input_shapes[{owner!r}]", size)))
    _check_known(out, f"input_shapes[{owner!r}]")
    return tuple(out)


def require_size(who: str, size: object) -> int:
    """``size``, a possible dimension. Raises InputError for what is none."""
    number = as_whole(size)
    if number is None or not 0 <= number <= MAX_DIM:
        raise InputError(f"{who}: expected sizes in 0..2**40 or names, got {shown(size)}")
    return number


def _check_known(shape: Sequence[IntExpr], who: str) -> None:
    """The rank, the fixed dims, and the product of those that are not zero, must be possible."""
    require_rank(who, len(shape))
    check_dims(tuple(v for d in shape if (v := d.value())), who)


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the user says of inputs: ``shapes`` by the name of an input, ``sizes`` and ``ranges`` by that of a dim."""

    shapes: Mapping[str, Sequence[int | str]]
    sizes: Mapping[str, int]
    ranges: Mapping[str, tuple[int, int]]

    def dims(self) -> Dims:
        """Names for the dims of the model."""
        return Dims(self.sizes, self.ranges)


def split_overrides(overrides: Mapping[str, Sequence[int | str] | int] | None, model: onnx.GraphProto) -> Overrides:
    """The user's ``input_shapes``. A range of one size is that size. Raises InputError."""
    shapes: dict[str, Sequence[int | str]] = {}
    sizes: dict[str, int] = {}
    ranges: dict[str, tuple[int, int]] = {}
    inputs = {i.name for i in model.input} - {t.name for t in model.initializer}
    params = dict.fromkeys(
        d.dim_param for i in model.input if i.type.HasField("tensor_type") for d in i.type.tensor_type.shape.dim
        if d.dim_param
    )  # fmt: skip
    for name, value in require_mapping("input_shapes", overrides or {}).items():
        if isinstance(value, str | bytes):
            raise InputError(f"input_shapes[{name!r}]: expected a shape or a size, got {value!r}")
        raw = [p for p in params if name in (p, identifier(p))]
        if isinstance(value, Sequence) and (name in inputs or not raw):
            if name not in inputs:
                near = did_you_mean(name, inputs)
                raise InputError(f"input_shapes: no input {name!r}, inputs are {sorted(inputs)[:20]}{near}")
            shapes[name] = value
            continue
        if isinstance(value, Sequence):
            low, high = _require_range(f"input_shapes[{name!r}]", value)
            if low < high:
                ranges.update(dict.fromkeys(raw, (low, high)))
                continue
            value = low
        size = require_size(f"input_shapes[{name!r}]", value)
        if not raw:
            near = did_you_mean(name, params)
            raise InputError(f"input_shapes: no dimension {name!r}, dimensions are {list(params)[:20]}{near}")
        sizes.update(dict.fromkeys(raw, size))
    return Overrides(shapes, sizes, ranges)


def _require_range(who: str, value: Sequence[object]) -> tuple[int, int]:
    """The least and the greatest size of a dim. Raises InputError."""
    if len(value) != 2:
        raise InputError(f"{who}: expected a size, or the least and the greatest one, got {shown(value)}")
    low, high = (require_size(who, x) for x in value)
    if low > high:
        raise InputError(f"{who}: expected the least size and then the greatest one, got {shown(value)}")
    return low, high
