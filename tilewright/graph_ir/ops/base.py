"""What an operator's definition is, and what its inference rule sees.

Grammar::

    OpDef    ::= name, kind, infer, arity, traits
    infer    ::= InferContext -> tuple of Inferred, one per output of the node
    Inferred ::= Type [with data]           data: known elements as expressions (see Value.data)

Attributes that name an element type (``to``, ``dtype``, ``output_dtype``, ...) are ``DType``; the ONNX number is
accepted too. Attributes that hold a tensor are ``Constant``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn, TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, const, product, var
from tilewright.core.assumptions import Assumption, Ones
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError
from tilewright.core.limits import require_rank
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, Shape, TensorType, Type, Value
from tilewright.graph_ir.kinds import DataLayout, ElementCost, PatternKind

MAX_DATA = 64
MAX_FORMULA = 128
"""Variables and operations of an element that is followed; what follows one that is longer finds it when it runs."""
Data: TypeAlias = tuple[IntExpr, ...]
Elements: TypeAlias = "tuple[IntExpr | None, ...]"


class UnknownRank(Exception):
    """Raised by :meth:`InferContext.shape` when an input's rank is unknown; the driver then gives up on shapes."""


@dataclass(frozen=True, slots=True)
class Inferred:
    """The type of one output and, if known, its elements; ``known``: see :class:`Value`."""

    type: Type
    data: Data | None = None
    known: tuple[int | None, ...] | None = None


def tensor(
    dtype: DType, shape: Sequence[IntExpr | int] | None, data: Sequence[IntExpr] | None = None,
    known: Elements | None = None,
) -> Inferred:  # fmt: skip
    """A tensor output. ``data`` is dropped where it does not match the shape, or is too long, or an element is.
    ``known``: elements of a list, if not all of them are known."""
    if known is not None and len(known) <= MAX_DATA and any(d is not None and d.is_const for d in known):
        numbers = tuple(d.const if d is not None and d.is_const else None for d in known)
        return Inferred(TensorType(dtype, (const(len(known)),)), None, numbers)
    if shape is None:
        return Inferred(TensorType(dtype, None))
    dims = tuple(const(d) if isinstance(d, int) else d for d in shape)
    if data is not None and (product(dims).value() != len(data) or not _is_followed(data)):
        data = None
    return Inferred(TensorType(dtype, dims), None if data is None else tuple(data))


def _is_followed(data: Sequence[IntExpr]) -> bool:
    return len(data) <= MAX_DATA and all(d.size <= MAX_FORMULA for d in data)


InferRule: TypeAlias = "Callable[[InferContext], tuple[Inferred, ...]]"
Definition: TypeAlias = "Callable[[Mapping[str, object], Sequence[object], int], list[object]]"
"""What an operator means: attributes, operands and the number of results, to the results."""
DTypeRule: TypeAlias = "Callable[[InferContext], tuple[DType, ...]]"


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator.

    ``max_inputs``/``max_outputs`` None: any number. ``host``: why it runs on the host, or None. ``dtypes`` gives the
    outputs' element types when ranks are unknown (default: the first input's). ``own``: not an ONNX operator.

    Traits, which passes, fusion and the choice of the host read instead of names:

    ``shape_operands``: positions of operands that give sizes, axes or places. A kernel takes their elements as
    expressions where all are known; a result whose size inference cannot give is sized by their contents.
    ``queries_shape``: reads the shape of its operand and no element.
    ``mixed_operands``: of kind BROADCAST, but some operand or result has other dims than the rest: numbers for one
    axis, a shape, a type.
    ``cost``: of computing an element of the result again.
    ``window``: reads each element once for every place of a sliding window over it.
    ``rowwise``: reads the rows along ``axis`` (-1 if not given) two or three times, each by itself.
    ``reads_once``: reads no element of an operand more than once, so that what makes it may be computed there.
    ``ends_elementwise``: each element of the result is made by itself in the end, from what was reduced before, so that
    what moves whole rows may take its place.
    ``updates``: position of the operand that the result is, but for some elements that are replaced; with an attribute
    ``reduction``, that are combined with what was there.
    ``layout``: has the attribute ``data_layout``.
    ``output_dtype``: has our attribute of that name: operands may be narrower than the result, whose type it gives.
    ``arithmetic``: has arithmetic weight; where native code cannot take it, it is refused and not run on the host.
    ``fold_limit``: operands and results together, in elements, for which constant folding evaluates it (a second or
    two where the reference definition goes through elements in Python); 0: never; None: any number.

    ``evaluate``: what it means, of an operator that the reference room does not have.
    """

    name: str
    kind: PatternKind
    infer: InferRule
    min_inputs: int
    max_inputs: int | None
    min_outputs: int = 1
    max_outputs: int | None = 1
    host: str | None = None
    commutative: bool = False
    deterministic: bool = True
    dtypes: DTypeRule | None = None
    own: bool = False
    shape_operands: tuple[int, ...] = ()
    queries_shape: bool = False
    mixed_operands: bool = False
    cost: ElementCost = ElementCost.ARITHMETIC
    window: bool = False
    rowwise: bool = False
    reads_once: bool = False
    ends_elementwise: bool = False
    updates: int | None = None
    layout: DataLayout | None = None
    output_dtype: bool = False
    arithmetic: bool = False
    fold_limit: int | None = None
    evaluate: Definition | None = None

    @property
    def is_elementwise(self) -> bool:
        """True if every operand broadcasts to the one result, and layouts and row views pass through."""
        return self.kind is PatternKind.BROADCAST and not self.mixed_operands


class FreshSymbols:
    """Gives ``u0, u1, ...`` and skips names that the model itself uses. One per inference, so it is deterministic.

    ``taken``: these names, looked at when the first symbol is asked for. ``made``: all that it gave. ``broadcasts``:
    see :class:`Graph`. ``assumed``: by the nodes so far of the graph that is being inferred.
    """

    def __init__(self, taken: Iterable[str], broadcasts: bool = False) -> None:
        self._taken = taken
        self._next = 0
        self.made: list[str] = []
        self.broadcasts = broadcasts
        self.assumed: dict[Assumption, None] = {}

    def fresh(self) -> IntExpr:
        if not isinstance(self._taken, set):
            self._taken = set(self._taken)
        while (name := f"u{self._next}") in self._taken:
            self._next += 1
        self._next += 1
        self.made.append(name)
        return var(name)


Places: TypeAlias = Sequence[tuple[int, int]]
"""Sizes of operands: an input and an axis each."""

SubgraphRule: TypeAlias = Callable[[Graph, Sequence[Type | None]], Graph]


class InferContext:
    """What a rule may look at: the node, its inputs' values and constants, fresh symbols, subgraph inference."""

    __slots__ = ("_constants", "_infer_subgraph", "_symbols", "inputs", "new_attrs", "node", "repeated")

    def __init__(
        self,
        node: Node,
        inputs: tuple[Value | None, ...],
        constants: Sequence[Constant | None],
        symbols: FreshSymbols,
        infer_subgraph: SubgraphRule,
    ) -> None:
        self.node = node
        self.inputs = inputs
        self._constants = constants
        self._symbols = symbols
        self._infer_subgraph = infer_subgraph
        self.new_attrs: dict[str, Attribute] = {}
        self.repeated: dict[int, dict[int, Places]] = {}

    # -- dims of unknown relation --------------------------------------------------------------------------------
    @property
    def broadcasts(self) -> bool:
        """True if dims of unknown relation broadcast; else they are taken to be equal."""
        return self._symbols.broadcasts

    def assume(self, a: IntExpr, b: IntExpr, ones: Ones = Ones.NEITHER) -> None:
        """Note that two sizes must turn out equal, or 1 as ``ones`` says; the runtime checks it at each call."""
        if a != b:
            self._symbols.assumed[Assumption(a, b, self.node.name, ones)] = None

    def repeat(self, i: int, axis: int, places: Places) -> None:
        """Note that input ``i`` has to be repeated along ``axis`` to what the sizes at ``places`` broadcast to."""
        self.repeated.setdefault(i, {})[axis] = places

    # -- inputs --------------------------------------------------------------------------------------------------
    def has(self, i: int) -> bool:
        """True if input ``i`` is there."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def value(self, i: int) -> Value:
        v = self.inputs[i] if i < len(self.inputs) else None
        if v is None:
            self.error(f"input {i}", "none")
        return v

    def tensor_type(self, i: int) -> TensorType:
        t = self.value(i).type
        if not isinstance(t, TensorType):
            self.error(f"a tensor as input {i}", str(t))
        return t

    def dtype(self, i: int) -> DType:
        return self.tensor_type(i).dtype

    def shape(self, i: int, rank: int | None = None) -> Shape:
        """Shape of input ``i``: symbols where not even its rank is known, but the operator asks for this ``rank``.
        Raises UnknownRank, which the driver handles."""
        s = self.tensor_type(i).shape
        if s is None and rank is not None:
            return tuple(self.fresh() for _ in range(rank))
        if s is None:
            raise UnknownRank
        return s

    def rank(self, i: int) -> int:
        return len(self.shape(i))

    def data(self, i: int) -> Data | None:
        """Known elements of input ``i``, or None. A tensor without elements is known."""
        v = self.inputs[i] if i < len(self.inputs) else None
        if v is None:
            return None
        if v.data is None and isinstance(v.type, TensorType) and any(d == 0 for d in v.type.shape or ()):
            return ()
        return v.data

    def elements(self, i: int) -> Elements | None:
        """Elements of input ``i``, or of a list of integers those that are known and None for the others."""
        data = self.data(i)
        v = self.value(i)
        if data is not None or not isinstance(v.type, TensorType) or not v.dtype.is_integer:
            return data
        if v.known is not None:
            return tuple(None if k is None else const(k) for k in v.known)
        shape = v.type.shape
        count = shape[0].value() if shape is not None and len(shape) == 1 else None
        return None if count is None or count > MAX_DATA else (None,) * count

    def ints(self, i: int) -> tuple[int, ...] | None:
        """Elements of an integer input when all are known numbers (also of large constants); else None."""
        array = self.constant(i)
        if array is not None:
            return tuple(int(x) for x in array.reshape(-1))
        data = self.data(i)
        if data is None or any(not d.is_const for d in data):
            return None
        return tuple(d.const for d in data)

    def constant(self, i: int) -> np.ndarray | None:
        """The array of input ``i`` if it is a constant."""
        c = self._constants[i] if i < len(self._constants) else None
        return None if c is None else c.array

    def count(self, i: int) -> int | None:
        """Number of elements of input ``i`` if it is fixed."""
        return product(self.shape(i)).value()

    # -- attributes ----------------------------------------------------------------------------------------------
    def int_attr(self, key: str, default: int = 0) -> int:
        v = self.node.attr(key)
        if v is None:
            return default
        if not isinstance(v, int):
            self.error(f"an integer attribute {key}", repr(v))
        return v

    def ints_attr(self, key: str) -> tuple[int, ...] | None:
        v = self.node.attr(key)
        if v is None:
            return None
        if not isinstance(v, tuple) or any(not isinstance(x, int) for x in v):
            self.error(f"integers as attribute {key}", repr(v))
        return v  # type: ignore[return-value]

    def str_attr(self, key: str, default: str) -> str:
        v = self.node.attr(key)
        if v is None:
            return default
        if not isinstance(v, str):
            self.error(f"a string attribute {key}", repr(v))
        return v

    def dtype_attr(self, key: str, default: DType | None = None) -> DType | None:
        """An element type attribute; absent or the number 0 gives ``default``."""
        v = self.node.attr(key)
        if v is None or v == 0:
            return default
        if isinstance(v, DType):
            return v
        if isinstance(v, int):
            return dtypes.from_onnx(v)
        self.error(f"an element type as attribute {key}", repr(v))

    def array_attr(self, key: str) -> np.ndarray | None:
        v = self.node.attr(key)
        return v.array if isinstance(v, Constant) else None

    def graph_attr(self, key: str) -> Graph:
        v = self.node.attr(key)
        if not isinstance(v, Graph):
            self.error(f"a subgraph as attribute {key}", repr(v))
        return v

    def axis(self, rank: int, key: str = "axis", default: int = 0, inclusive: bool = False) -> int:
        """The attribute ``key`` as an axis in ``[0, rank)`` (``rank`` itself allowed with ``inclusive``)."""
        return self.normal_axis(self.int_attr(key, default), rank, inclusive)

    def normal_axis(self, axis: int, rank: int, inclusive: bool = False) -> int:
        top = rank + 1 if inclusive else rank
        if not -rank <= axis < top:
            self.error(f"an axis in [{-rank}, {top})", str(axis))
        return axis + rank if axis < 0 else axis

    # -- services ------------------------------------------------------------------------------------------------
    def fresh(self) -> IntExpr:
        """A new symbol for a size that only the run knows."""
        return self._symbols.fresh()

    def fresh_shape(self, rank: int) -> list[IntExpr]:
        """New symbols for all sizes of a result."""
        self.require_rank(rank)
        return [self.fresh() for _ in range(rank)]

    def made_count(self) -> int:
        """How many symbols there are by now, for :meth:`made_since`."""
        return len(self._symbols.made)

    def made_since(self, count: int) -> frozenset[str]:
        """The symbols made after the first ``count``, in subgraphs too."""
        return frozenset(self._symbols.made[count:])

    def infer_subgraph(self, graph: Graph, inputs: Sequence[Type | None]) -> Graph:
        """The subgraph inferred with these input types, in the scope of this node."""
        return self._infer_subgraph(graph, inputs)

    @property
    def who(self) -> str:
        """The node, as errors name it."""
        return f"node '{self.node.name}' ({self.node.op})"

    def error(self, expected: str, got: str) -> NoReturn:
        raise ModelError(f"{self.who}: expected {expected}, got {got}")

    def require(self, ok: bool, expected: str, got: object) -> None:
        if not ok:
            self.error(expected, str(got))

    def require_rank(self, rank: int) -> None:
        """Raises UnsupportedError for a result of more dimensions than tensors can have here."""
        require_rank(self.who, rank)


def table(*defs: OpDef) -> Mapping[str, OpDef]:
    """The definitions by name."""
    return {d.name: d for d in defs}
