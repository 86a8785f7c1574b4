"""What lowering a node sees: the node, its operands as tensors, and a place to put stages.

``Lower = Callable[[LowerContext], tuple[Tensor, ...]]`` returns one tensor for each output of its node (it
may return more or fewer than the node names; what nobody reads is dropped). Formulas are made of simple stages: a
reduction stage holds only the reduction, everything around it is a stage of its own that schedules can inline.
"""

from __future__ import annotations

import hashlib
import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, const
from tilewright.core.arith.minmax import maximum, minimum
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError
from tilewright.core.io.stored import Scratch, loaded
from tilewright.graph_ir.ir import Constant, Shape
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.indexing import choose, linear_index
from tilewright.tensor_ir.compute import (
    IndexLike,
    Recurrence,
    ReduceAxis,
    Tensor,
    Update,
    Val,
    index_of,
    index_value,
    lift,
    op,
    reduce_axis,
    select,
)
from tilewright.tensor_ir.ir import Const


@dataclass(frozen=True, slots=True, eq=False)
class PackedConstant:
    """A parameter whose contents are known at build time.

    ``buffer``: the parameter's name in the function. ``source``: the graph constant it is made from, or None if
    ``array`` is the content itself. ``dtype``: the parameter's element type, to which the content is converted.
    Two entries with the same ``source`` and ``key`` have the same content, so
    that a weight which several functions share is packed once.
    """

    buffer: str
    source: str | None
    key: str
    dtype: DType
    transform: Callable[[np.ndarray], np.ndarray] | None = None
    array: np.ndarray | None = None

    def evaluate(self, constants: Mapping[str, Constant], scratch: Scratch | None = None) -> np.ndarray:
        """The content as a contiguous array; ``constants`` are those of the graph. ``scratch``: it may lie there."""
        if self.source is None:
            if self.array is None:
                raise InternalError(f"{self.buffer}: a constant needs a source or an array")
            return np.ascontiguousarray(self.array, self.dtype.numpy)
        array = loaded(constants[self.source].content, scratch)
        return np.ascontiguousarray(array if self.transform is None else self.transform(array), self.dtype.numpy)


class ScalarTensor(Tensor):
    """A constant of one element: reading it gives the literal."""

    __slots__ = ("value",)

    def __init__(self, name: str, shape: tuple[IntExpr, ...], dtype: DType, value: float | int | bool) -> None:
        super().__init__(name, shape, dtype, (), None)
        self.value = value

    def __getitem__(self, indices: IndexLike | tuple[IndexLike, ...]) -> Val:
        count = len(indices) if isinstance(indices, tuple) else 1
        if count != len(self.shape):
            raise TypeError(f"{self.name}: expected {len(self.shape)} indices, got {count}")
        return lift(self.value, self.dtype)


class KnownTensor(Tensor):
    """A small integer operand whose elements are known as expressions: reading it loads nothing."""

    __slots__ = ("elements",)

    def __init__(self, name: str, shape: tuple[IntExpr, ...], dtype: DType, elements: tuple[IntExpr, ...]) -> None:
        super().__init__(name, shape, dtype, (), None)
        self.elements = elements

    def __getitem__(self, indices: IndexLike | tuple[IndexLike, ...]) -> Val:
        idx = indices if isinstance(indices, tuple) else (indices,)
        if len(idx) != len(self.shape):
            raise TypeError(f"{self.name}: expected {len(self.shape)} indices, got {len(idx)}")
        flat = linear_index([index_of(i) for i in idx], self.shape)
        ends = [const(k + 1) for k in range(len(self.elements))]
        return choose(flat, ends, lambda k: index_value(self.elements[k])).cast(self.dtype)


def identifier(hint: str) -> str:
    """``hint`` as a name that the text form can read: ``and`` becomes ``and_``."""
    name = "".join(c if c.isalnum() else "_" for c in hint)
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"{name}_"


class Names:
    """Unique names of one function, handed out in a deterministic order."""

    __slots__ = ("_taken",)

    def __init__(self, reserved: Sequence[str] = ()) -> None:
        self._taken: set[str] = set(reserved)

    def unique(self, hint: str) -> str:
        """``hint`` as an identifier, or ``hint_1``, ``hint_2``, ... if it is taken."""
        name = base = identifier(hint)
        n = 0
        while name in self._taken:
            n += 1
            name = f"{base}_{n}"
        self._taken.add(name)
        return name


@dataclass(slots=True)
class FunctionParts:
    """What lowering the nodes of one group gathers: names, stages in order, and the constants they asked for."""

    names: Names
    stages: list[Tensor | Update | Recurrence] = field(default_factory=list)
    constants: dict[tuple[str, str], tuple[Tensor, PackedConstant]] = field(default_factory=dict)

    def constant(
        self, source: str | None, key: str, shape: Sequence[IntLike], dtype: DType,
        transform: Callable[[np.ndarray], np.ndarray] | None, array: np.ndarray | None,
    ) -> Tensor:  # fmt: skip
        """The placeholder of a build-time constant; the same one for the same source and key."""
        known = self.constants.get((source or "", key))
        if known is None:
            name = self.names.unique(f"c{len(self.constants)}")
            tensor = Tensor(name, tuple(as_expr(s) for s in shape), dtype, (), None)
            known = tensor, PackedConstant(name, source, key, dtype, transform, array)
            self.constants[(source or "", key)] = known
        return known[0]


@dataclass(frozen=True, slots=True, eq=False)
class LowerContext(NodeFacts):
    """One node to lower, its operands as tensors. ``clamps``: the formula alone decides what an index outside its range
    reads; else there is no such index, or what is computed is not used, and only memory must not be left."""

    inputs: tuple[Tensor | None, ...]
    parts: FunctionParts
    clamps: bool = False

    # -- making stages ---------------------------------------------------------------------------------------------
    def name(self, hint: str) -> str:
        """A buffer name that is unique in the function."""
        return self.parts.names.unique(hint)

    def stage(self, tensor: Tensor) -> Tensor:
        """Record an intermediate stage; stages are kept in this order."""
        if tensor.body is not None and all(t is not tensor for t in self.parts.stages):
            self.parts.stages.append(tensor)
        return tensor

    def update(self, change: Update) -> None:
        """Record a stage that overwrites elements of an earlier stage of the same node."""
        self.parts.stages.append(change)

    def recurrence(self, loops: Sequence[tuple[str, IntExpr]], stages: Sequence[Tensor | Update]) -> None:
        """Record stages that run together in common ``loops`` over their first axes, the steps innermost."""
        self.parts.stages.append(Recurrence(tuple(loops), tuple(stages)))

    def axis(self, extent: IntLike, hint: str) -> ReduceAxis:
        """A reduction axis with a unique name."""
        return reduce_axis(extent, self.parts.names.unique(hint))

    def packed(
        self, operand: int, transform: Callable[[np.ndarray], np.ndarray], shape: Sequence[IntLike], hint: str,
        dtype: DType | None = None,
    ) -> Tensor:  # fmt: skip
        """Constant input ``operand`` transformed at build time, as a constant parameter of ``shape``.

        ``hint`` must describe the transform: with the shape it is the key under which the result is shared.
        """
        value = self.input_values[operand]
        if value is None or self.constants[operand] is None:
            raise InternalError(f"{self.node.name}: input {operand} is not a constant and cannot be packed")
        result = dtype or value.dtype
        key = f"{hint}[{', '.join(map(str, shape))}]:{result}"
        return self.parts.constant(value.name, key, shape, result, transform, None)

    def table(self, array: np.ndarray, hint: str) -> Tensor:
        """A constant parameter with the given content."""
        key = f"{hint}:{array.dtype}{array.shape}:{hashlib.sha1(array.tobytes()).hexdigest()}"
        return self.parts.constant(None, key, array.shape, dtypes.from_numpy(array.dtype), None, array)

    # -- reading the node --------------------------------------------------------------------------------------------
    def input(self, i: int) -> Tensor:
        """Input ``i``, which must be present."""
        t = self.inputs[i] if i < len(self.inputs) else None
        if t is None:
            raise self.unsupported(f"input {i} is absent, expected a tensor")
        return t

    def optional(self, i: int) -> Tensor | None:
        """Input ``i``, None if it is absent."""
        return self.input(i) if self.has_input(i) else None

    def input_shape(self, i: int) -> Shape:
        """The shape of input ``i`` as the group computes it."""
        return self.input(i).shape

    def constant_ints(self, i: int, what: str) -> list[int] | None:
        """The integers of constant input ``i``; None if it is absent. Raises UnsupportedError if not constant."""
        if not self.has_input(i):
            return None
        constant = self.constants[i]
        if constant is not None:
            return [int(x) for x in constant.array.reshape(-1)]
        data = self.elements(i)
        if data is not None and all(d.is_const for d in data):
            return [int(d) for d in data]
        raise self.unsupported(f"{what} (input {i}) must be a constant")

    def elements(self, i: int) -> tuple[IntExpr, ...] | None:
        """The elements of a small integer input as expressions over dimension symbols, where they are known."""
        if not self.has_input(i):
            return None
        constant, value = self.constants[i], self.input_values[i]
        if constant is not None and constant.dtype.kind in "iu" and constant.size <= 4096:
            return tuple(const(int(x)) for x in constant.array.reshape(-1))
        if value is None:
            return None
        return () if value.data is None and any(d == 0 for d in value.shape) else value.data

    def wrapped(self, v: Val, extent: IntLike) -> IntExpr:
        """A loaded index with negative values counted from the end, kept inside ``0 .. extent - 1``."""
        size = as_expr(extent)
        if not isinstance(v.expr, Const):
            v = v.cast(dtypes.int64)
            n = index_value(size)
            return clamped_index(select(v < 0, v + n, v), size)
        i = const(int(v.expr.value))
        i = size + i if i.const < 0 else i
        return maximum(minimum(i, size - 1), 0) if self.clamps or size.is_const else i

    def length(self, v: Val, most: IntLike) -> Val:
        """A loaded length of a sequence that has room for ``most`` steps."""
        v = v.cast(dtypes.int64)
        return op("max", op("min", v, index_value(most)), 0) if self.clamps else v

    def scalar(self, i: int) -> Val:
        """Input ``i``, a tensor of one element, as a value."""
        t = self.input(i)
        return t[tuple(const(0) for _ in t.shape)]


Lower: TypeAlias = Callable[[LowerContext], tuple[Tensor, ...]]


def wide(dtype: DType) -> DType:
    """The type in which values of ``dtype`` are computed: float32 for narrow floats."""
    return dtypes.float32 if dtype.is_narrow_float else dtype


def widen(v: Val) -> Val:
    """``v`` in the type in which it is computed."""
    return v.cast(wide(v.dtype))


def clamped_index(v: Val, extent: IntLike) -> IntExpr:
    """An index of int64 kept inside ``0 .. extent - 1``."""
    return op("max", op("min", v, index_value(extent) - 1), 0).as_index()
