"""A graph under construction: every value with its arrays, one for each size assignment ("variant") of the run.

A dim is a tuple of sizes, one per variant. Where they differ the dim of an input is symbolic: the compiled model gets a
name for it and runs at each size. Constants are the same in all variants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from tilewright.core import dtypes
from tilewright.tests.fuzz_graphs import data
from tilewright.tests.fuzz_graphs.node import NodeRun, run_node
from tilewright.tests.fuzz_graphs.protos import reads

Dim: TypeAlias = tuple[int, ...]
Dims: TypeAlias = tuple[Dim, ...]

SIZES = (1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 16, 17, 33)
MAX_ELEMENTS = 6000


class Rejected(Exception):
    """The node that a generator proposed is not valid, or too large."""


@dataclass(frozen=True, slots=True, eq=False)
class Val:
    """One value. ``kind``: ``input``, ``const`` or ``node``. ``arrays``: one per variant; a list for a sequence."""

    name: str
    kind: str
    arrays: tuple[object, ...]

    @property
    def is_tensor(self) -> bool:
        return all(isinstance(a, np.ndarray) for a in self.arrays)

    @property
    def array(self) -> np.ndarray:
        """The array in the first variant."""
        a = self.arrays[0]
        if not isinstance(a, np.ndarray):
            raise TypeError(f"{self.name} is no tensor")
        return a

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def rank(self) -> int:
        return self.array.ndim

    @property
    def dims(self) -> Dims:
        shapes = [a.shape for a in self.arrays if isinstance(a, np.ndarray)]
        return tuple(zip(*shapes, strict=True))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in the first variant."""
        return self.array.shape

    @property
    def is_static(self) -> bool:
        return all(len(set(d)) == 1 for d in self.dims)

    @property
    def size(self) -> int:
        """The number of elements in the largest variant."""
        return max(a.size for a in self.arrays if isinstance(a, np.ndarray))


@dataclass(slots=True)
class Draft:
    """The graph so far, and the choices that every family makes in the same way."""

    rng: np.random.Generator
    opset: int
    variants: int
    wild: str
    """What floats have now and then: ``""`` ordinary numbers alone, ``odd`` NaN and infinities, ``huge`` numbers near
    the type's limits."""
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    runs: list[NodeRun] = field(default_factory=list)
    vals: list[Val] = field(default_factory=list)
    names: dict[str, Dim] = field(default_factory=dict)
    """Symbol -> its sizes."""
    input_dims: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    explained: set[str] = field(default_factory=set)
    """Operators on which onnxruntime differed by a rule."""
    alone: bool = False
    """Without onnxruntime."""
    outer: Draft | None = None
    inner: set[str] = field(default_factory=set)
    """Values inside a pattern: nothing else reads them, and they are no outputs."""
    _count: int = 0

    # -- chance ----------------------------------------------------------------------------------------------------
    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def integer(self, low: int, high: int) -> int:
        """An integer in ``[low, high]``."""
        return int(self.rng.integers(low, high + 1))

    def one_of(self, items: Sequence[object]):  # type: ignore[no-untyped-def]
        if not items:
            raise Rejected("nothing to choose from")
        return items[int(self.rng.integers(0, len(items)))]

    def axis(self, rank: int, negative: float = 0.4) -> int:
        """An axis of a tensor of this rank, often counted from the end. Rejects rank 0."""
        if rank == 0:
            raise Rejected("no axis")
        a = self.integer(0, rank - 1)
        return a - rank if self.chance(negative) else a

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Some axes of a tensor of this rank, in any order, some counted from the end."""
        n = self.integer(min(least, rank), rank)
        order = [int(a) for a in self.rng.permutation(rank)[:n]]
        return [a - rank if self.chance(0.3) else a for a in order]

    # -- sizes -----------------------------------------------------------------------------------------------------
    def size(self, small: bool = False) -> int:
        if self.chance(0.02):
            return 0
        return int(self.one_of(SIZES[:8] if small else SIZES))

    def dim(self, small: bool = False) -> Dim:
        """A dim: fixed, or (in a graph with several variants) one that differs between them."""
        if self.variants > 1 and self.chance(0.4):
            known = [d for d in self.root.names.values() if not small or max(d) <= 9]
            if known and self.chance(0.6):
                return self.one_of(known)
            return tuple(self.size(small) for _ in range(self.variants))
        return self.fixed(self.size(small))

    def fixed(self, size: int) -> Dim:
        return (size,) * self.variants

    def dims(self, rank: int, small: bool = False) -> Dims:
        """A shape of at most MAX_ELEMENTS elements."""
        out = [self.dim(small or rank > 3) for _ in range(rank)]
        while rank and _elements(out) > MAX_ELEMENTS:
            out[int(np.argmax([max(d) for d in out]))] = self.fixed(self.integer(1, 4))
        return tuple(out)

    @property
    def root(self) -> Draft:
        return self if self.outer is None else self.outer.root

    # -- values ----------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str = "v") -> str:
        root = self.root
        root._count += 1
        return f"{prefix}{root._count}"

    def visible(self) -> list[Val]:
        """Values that a node may read: of this graph and of those around it."""
        return self.vals + (self.outer.visible() if self.outer else [])

    def pick(self, ok: Callable[[Val], bool]) -> Val | None:
        """A value that is there already, later ones rather than earlier ones; None without one."""
        fitting = [v for v in self.visible() if v.name not in self.root.inner and ok(v)]
        if not fitting:
            return None
        weights = np.array([1.0 + (v.kind == "node") * 2 for v in fitting]) * np.linspace(0.5, 1.5, len(fitting))
        return fitting[int(self.rng.choice(len(fitting), p=weights / weights.sum()))]

    def tensor(
        self, types: Sequence[object], rank: int | Sequence[int] | None = None,
        ok: Callable[[Val], bool] = lambda v: True, small: bool = False, reuse: float = 0.75,
    ) -> Val:  # fmt: skip
        """A tensor of one of these element types and ranks: one that is there, or a new input or constant."""
        wanted = [np.dtype(t) for t in types]
        ranks = range(5) if rank is None else (rank,) if isinstance(rank, int) else rank
        if self.chance(reuse):
            v = self.pick(lambda v: v.is_tensor and v.dtype in wanted and v.rank in ranks and ok(v))
            if v is not None:
                return v
        for _ in range(20):
            v = self.new(self.one_of(wanted), self.dims(int(self.one_of(list(ranks))), small), constant=0.2)
            if ok(v):
                return v
            self.forget(v)
        raise Rejected("no fitting tensor")

    def new(
        self, dtype: object, dims: Dims | Sequence[Dim | int], constant: float = 0.5, kind: str = "any",
        named: float = 0.1,
    ) -> Val:  # fmt: skip
        """A new constant (where all variants have one shape) or input with random data; ``kind`` as in ``data``.

        ``named``: how often a dim of an input is symbolic although it is the same in all variants.
        """
        full: Dims = tuple(self.fixed(d) if isinstance(d, (int, np.integer)) else d for d in dims)
        if _elements(full) > MAX_ELEMENTS:
            raise Rejected("too large")
        shapes = list(zip(*full, strict=True)) if full else [()] * self.variants
        arrays = [data.random_array(self.rng, np.dtype(dtype), tuple(map(int, s)), kind, self.wild) for s in shapes]
        return self.given(arrays, constant, named)

    def weight(self, dtype: object, dims: Dims | Sequence[Dim | int], constant: float = 0.85, kind: str = "any") -> Val:
        """A new operand whose fixed dims stay fixed: a kernel, a table."""
        kind = "finite" if kind == "any" else kind
        return self.new(dtype, dims, constant, kind, named=0.0)

    def given(self, arrays: Sequence[np.ndarray] | np.ndarray, constant: float = 0.8, named: float = 0.1) -> Val:
        """A constant or an input with these contents; one array stands for all variants."""
        if isinstance(arrays, np.ndarray):
            arrays = [arrays] * self.variants
        same = all(a.shape == arrays[0].shape for a in arrays)
        if same and self.chance(constant):
            first = arrays[0]
            v = Val(self.fresh("c"), "const", (first,) * self.variants)
            self.vals.append(v)
            return v
        # inputs belong to the outermost graph
        root = self.root
        v = Val(self.fresh("x"), "input", tuple(arrays))
        root.vals.append(v)
        root.input_dims[v.name] = tuple(root._name_dim(d, named) for d in v.dims)
        return v

    def ints(self, numbers: Sequence[int], dtype: object = np.int64, constant: float = 0.85) -> Val:
        """A one-dimensional integer operand (axes, a shape, pads), mostly constant."""
        return self.given(np.array(numbers, dtype), constant)

    def scalar(self, number: object, dtype: object, constant: float = 0.85) -> Val:
        return self.given(np.array(number, dtype), constant)

    def hide(self, first: int, *results: Val) -> None:
        """The values that nodes have made since there were ``first`` are inner ones, but for the results."""
        names = {v.name for v in self.vals[first:] if v.kind == "node"}
        self.root.inner |= names - {v.name for v in results}

    def forget(self, v: Val) -> None:
        """Takes back a value that no node reads."""
        holder = self if v in self.vals else self.root
        if v in holder.vals:
            holder.vals.remove(v)
            holder.input_dims.pop(v.name, None)

    def _name_dim(self, d: Dim, named: float) -> int | str:
        constant = len(set(d)) == 1
        if constant and not (self.variants > 1 and self.chance(named)):
            return d[0]
        same = [n for n, sizes in self.names.items() if sizes == d]
        if same and self.chance(0.75):
            return str(self.one_of(same))
        name = f"n{len(self.names)}"
        self.names[name] = d
        return name

    def like(self, v: Val, dtype: object | None = None, constant: float = 0.3, kind: str = "any") -> Val:
        """A new operand of the shape of ``v``."""
        return self.new(v.dtype if dtype is None else dtype, v.dims, constant, kind)

    def broadcastable(self, v: Val, dtype: object | None = None, constant: float = 0.4, kind: str = "any") -> Val:
        """An operand that broadcasts with ``v``: one that is there, or a new one with fewer axes or ones among them."""
        wanted = np.dtype(v.dtype if dtype is None else dtype)
        if self.chance(0.5):
            found = self.pick(lambda o: o.is_tensor and o.dtype == wanted and broadcasts(o, v))
            if found is not None:
                return found
        return self.broadcastable_new(v, wanted, kind, constant)

    def broadcastable_new(self, v: Val, dtype: object | None = None, kind: str = "any", constant: float = 0.4) -> Val:
        """The same, always a new one, so that ``kind`` holds."""
        wanted = np.dtype(v.dtype if dtype is None else dtype)
        rank = self.integer(0, v.rank) if self.chance(0.5) else v.rank
        own = [self.fixed(1) if self.chance(0.25) else d for d in v.dims[v.rank - rank :]]
        if self.chance(0.1):
            own = [self.fixed(self.integer(1, 3)), *own]
        return self.new(wanted, own, constant, kind)

    # -- nodes -----------------------------------------------------------------------------------------------------
    def emit(
        self, op: str, inputs: Sequence[Val | None], attrs: Mapping[str, object] | None = None,
        outputs: int | Sequence[bool] = 1, domain: str = "",
    ) -> list[Val]:  # fmt: skip
        """Append a node and return its outputs (those that are wanted). Raises Rejected for an invalid one."""
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        out_names = [self.fresh() if w else "" for w in wanted]
        in_names = ["" if v is None else v.name for v in inputs]
        given = {k: a for k, a in (attrs or {}).items() if a is not None}
        empty = [k for k, a in given.items() if isinstance(a, list) and not a]
        plain = {k: a for k, a in given.items() if k not in empty}
        node = helper.make_node(op, in_names, out_names, name=self.fresh("node_"), domain=domain, **plain)
        node.attribute.extend(onnx.AttributeProto(name=k, type=onnx.AttributeProto.INTS) for k in empty)
        return self.append(node)

    def append(self, node: onnx.NodeProto) -> list[Val]:
        """The same for a node with its names, as control flow has it. Captured values must be visible."""
        scope = {v.name: v for v in self.visible()}
        read = [scope[n] for n in reads(node) if n in scope]
        arrays: list[list[object]] = []
        for k in range(self.variants):
            run = run_node(node, {v.name: v.arrays[k] for v in read}, self.opset, self.alone, self.root.explained)
            if run.rule:
                self.root.explained.add(node.op_type)
            if run.finding or (k == 0 and not run.rejected):
                self.root.runs.append(run)
            if run.rejected:
                raise Rejected(run.rejected)
            arrays.append(list(run.outputs))
        made = []
        for i, name in enumerate(n for n in node.output if n):
            column = [a[i] for a in arrays]
            if any(isinstance(a, np.ndarray) and a.size > MAX_ELEMENTS for a in column):
                raise Rejected("result too large")
            if len({a.ndim if isinstance(a, np.ndarray) else -1 for a in column}) > 1:
                raise Rejected("ranks differ between variants")
            made.append(Val(name, "node", tuple(column)))
        self.nodes.append(node)
        self.vals.extend(made)
        return made

    def types_of(self, op: str, variable: str, domain: str = "") -> list[np.dtype]:
        """Element types that the standard allows for a type variable of an operator at this opset."""
        try:
            schema = onnx.defs.get_schema(op, self.opset, domain)
        except onnx.defs.SchemaError as e:
            raise Rejected(f"{op} is not in opset {self.opset}") from e
        for c in schema.type_constraints:
            if c.type_param_str == variable:
                return [t for t in map(_type_named, c.allowed_type_strs) if t is not None]
        raise KeyError(f"{op} has no type variable {variable}")

    def type_of(self, op: str, variable: str = "T", domain: str = "") -> list[np.dtype]:
        """One element type to build with, as a list for ``tensor``: float32 in half of the cases."""
        allowed = self.types_of(op, variable, domain)
        common = [t for t in allowed if t in _COMMON]
        if common and self.chance(0.7):
            return [self.one_of(common)] if np.dtype(np.float32) not in common or self.chance(0.35) else [_COMMON[0]]
        return [self.one_of(allowed)]


def broadcasts(a: Val, b: Val) -> bool:
    """True if the shapes broadcast in all variants, to a result that is not too large."""
    for x, y in zip(a.arrays, b.arrays, strict=True):
        try:
            shape = np.broadcast_shapes(x.shape, y.shape)  # type: ignore[attr-defined]
        except ValueError:
            return False
        if int(np.prod(shape)) > MAX_ELEMENTS:
            return False
    return True


def _elements(dims: Sequence[Dim]) -> int:
    return max((int(np.prod(s)) for s in zip(*dims, strict=True)), default=1)


_COMMON = [np.dtype(t) for t in (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.int8, np.bool_)]
_TYPES: dict[str, np.dtype] = {
    "tensor(float)": np.dtype(np.float32), "tensor(double)": np.dtype(np.float64),
    "tensor(bool)": np.dtype(np.bool_),
    **{f"tensor({t.name})": t.numpy for t in dtypes.ALL if t.kind in "iuf"},
}  # fmt: skip


def _type_named(name: str) -> np.dtype | None:
    return _TYPES.get(name)
