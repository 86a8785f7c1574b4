"""If, Loop, Scan: the subgraphs are inferred in the scope of the node.

A loop-carried value whose size changes from one iteration to the next gets a fresh symbol for that dim (inside the
body and after the loop), which stands for another number in every iteration; a changing rank becomes unknown. Symbols
that inference makes inside a subgraph mean nothing outside: sizes with them get symbols of the graph around it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr
from tilewright.core.errors import ModelError
from tilewright.graph_ir.ir import Constant, Graph, OptionalType, SequenceType, TensorType, Type, UnknownType, Value
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import Data, InferContext, Inferred, OpDef, table
from tilewright.graph_ir.ops.operands import require_single
from tilewright.graph_ir.ops.shapes import merge_dims

_ROUNDS = 4


def join_types(ctx: InferContext, a: Type | None, b: Type | None) -> Type | None:
    """A type for values that have one type or the other; where they differ it says less."""
    if a == b or b is None:
        return a
    if a is None:
        return b
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        ctx.require(a.dtype == b.dtype, f"element type {a.dtype}", b.dtype)
        if a.shape is None or b.shape is None or len(a.shape) != len(b.shape):
            return TensorType(a.dtype, None)
        return TensorType(a.dtype, tuple(x if x == y else ctx.fresh() for x, y in zip(a.shape, b.shape, strict=True)))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(join_types(ctx, a.element, b.element))
    if isinstance(a, OptionalType) or isinstance(b, OptionalType):
        left = a.element if isinstance(a, OptionalType) else a
        right = b.element if isinstance(b, OptionalType) else b
        return OptionalType(join_types(ctx, left, right))
    ctx.error(str(a), str(b))


def _output_types(graph: Graph) -> list[Type]:
    """Types of a subgraph's outputs; a value of the outer scope is looked up by the driver beforehand."""
    return [graph.values[o].type for o in graph.outputs]


def _if(ctx: InferContext) -> tuple[Inferred, ...]:
    ctx.require(ctx.dtype(0) == dtypes.bool_, "a bool condition", ctx.dtype(0))
    require_single(ctx, 0)
    decided = ctx.ints(0)
    branches: dict[str, Graph] = {}
    before = ctx.made_count()
    keys = ("then_branch", "else_branch")
    if decided is None:
        branches = {key: ctx.infer_subgraph(ctx.graph_attr(key), ()) for key in keys}
    else:
        live, dead = keys if decided[0] else keys[::-1]
        branches[live] = ctx.infer_subgraph(ctx.graph_attr(live), ())
        branches[dead] = _infer_dead(ctx, ctx.graph_attr(dead), branches[live])
    ctx.new_attrs.update(branches)
    then, other = branches["then_branch"], branches["else_branch"]
    ctx.require(
        len(then.outputs) == len(other.outputs) == len(ctx.node.outputs),
        f"{len(ctx.node.outputs)} outputs of both branches",
        f"{len(then.outputs)} and {len(other.outputs)}",
    )
    out = []
    outside = _Outside(ctx, before)
    for a, b in zip(_values(then), _values(other), strict=True):
        if decided is not None:
            chosen = a if decided[0] else b
            out.append(Inferred(outside.type(chosen.type), outside.data(chosen.data)))
            continue
        joined = join_types(ctx, a.type, b.type)
        out.append(Inferred(joined or a.type, a.data if a.data == b.data and a.type == b.type else None))
    return tuple(out)


class _Outside:
    """Sizes of a subgraph's results as the graph around it sees them: those that mention a symbol made inside (after
    the first ``before`` symbols) get a symbol each."""

    def __init__(self, ctx: InferContext, before: int) -> None:
        self._ctx = ctx
        self._inside = ctx.made_since(before)
        self._sizes: dict[IntExpr, IntExpr] = {}

    def size(self, d: IntExpr) -> IntExpr:
        if self._inside.isdisjoint(d.free_vars()):
            return d
        if d not in self._sizes:
            self._sizes[d] = self._ctx.fresh()
        return self._sizes[d]

    def type(self, t: Type) -> Type:
        if isinstance(t, TensorType):
            return TensorType(t.dtype, None if t.shape is None else tuple(map(self.size, t.shape)))
        if isinstance(t, UnknownType):
            return t
        return dataclasses.replace(t, element=None if t.element is None else self.type(t.element))

    def data(self, data: Data | None) -> Data | None:
        return data if all(self._inside.isdisjoint(d.free_vars()) for d in data or ()) else None


def _infer_dead(ctx: InferContext, dead: Graph, live: Graph) -> Graph:
    """A branch that never runs may be inconsistent with the inputs' types (exporters write a branch a rank).

    Then empty constants of the live branch's types take its place.
    """
    try:
        return ctx.infer_subgraph(dead, ())
    except ModelError:
        if len(dead.outputs) != len(live.outputs) or set(dead.outputs) & set(live.outputs):
            raise
        constants: dict[str, Constant] = {}
        for name, v in zip(dead.outputs, _values(live), strict=True):
            if not isinstance(v.type, TensorType) or v.type.shape is None:
                raise
            constants[name] = Constant(np.zeros([d.value() or 0 for d in v.type.shape], v.type.dtype.numpy))
        return ctx.infer_subgraph(Graph(dead.name, (), dead.outputs, (), {}, constants), ())


def _values(graph: Graph) -> list[Value]:
    return [graph.values[o] for o in graph.outputs]


def _require_body(ctx: InferContext, body: Graph, inputs: int, outputs: int) -> None:
    ctx.require(len(body.inputs) == inputs, f"a body with {inputs} inputs", len(body.inputs))
    ctx.require(len(body.outputs) == outputs, f"a body with {outputs} outputs", len(body.outputs))


def _iterate(
    ctx: InferContext, body: Graph, before: Sequence[Type], carried: list[Type], after: Sequence[Type], skip: int
) -> tuple[Graph, list[Type]]:
    """Infer the body until the carried types no longer change; they start at output ``skip``."""
    initial = tuple(carried)
    for _ in range(_ROUNDS):
        done = ctx.infer_subgraph(body, (*before, *carried, *after))
        got = _output_types(done)[skip : skip + len(carried)]
        joined = [_widen(ctx, *types) for types in zip(initial, carried, got, strict=True)]
        if joined == carried:
            return done, carried
        carried = joined
    carried = [TensorType(t.dtype, None) if isinstance(t, TensorType) else t for t in carried]
    return ctx.infer_subgraph(body, (*before, *carried, *after)), carried


def _widen(ctx: InferContext, first: Type, was: Type, now: Type) -> Type:
    """The carried type after one more look at the body: a dim that differs from that before the loop gets a symbol, and
    keeps it."""
    if isinstance(was, TensorType) and isinstance(now, TensorType) and isinstance(first, TensorType):
        ctx.require(was.dtype == now.dtype, f"a carried value of type {was.dtype}", now.dtype)
        if first.shape is None or was.shape is None or now.shape is None or len(was.shape) != len(now.shape):
            return TensorType(was.dtype, None)
        dims = zip(first.shape, was.shape, now.shape, strict=True)
        return TensorType(was.dtype, tuple(b if b == c or b != a else ctx.fresh() for a, b, c in dims))
    return join_types(ctx, was, now) or was


def _after_loop(ctx: InferContext, initial: Type, carried: Type) -> Inferred:
    """The carried value once the loop is done: changing dims get new symbols of their own."""
    if isinstance(initial, TensorType) and isinstance(carried, TensorType):
        if carried.shape is None or initial.shape is None:
            return Inferred(carried)
        pairs = zip(initial.shape, carried.shape, strict=True)
        return Inferred(TensorType(carried.dtype, tuple(b if a == b else ctx.fresh() for a, b in pairs)))
    return Inferred(carried)


def _loop(ctx: InferContext) -> tuple[Inferred, ...]:
    body = ctx.graph_attr("body")
    n = len(ctx.inputs) - 2
    if ctx.has(0):
        ctx.require(ctx.dtype(0) == dtypes.int64, "an int64 trip count", ctx.dtype(0))
    if ctx.has(1):
        ctx.require(ctx.dtype(1) == dtypes.bool_, "a bool condition", ctx.dtype(1))
    require_single(ctx, 0, 1)
    _require_body(ctx, body, n + 2, 1 + len(ctx.node.outputs))
    initial = [ctx.value(i + 2).type for i in range(n)]
    scalars = (TensorType(dtypes.int64, ()), TensorType(dtypes.bool_, ()))
    before = ctx.made_count()
    done, carried = _iterate(ctx, body, scalars, list(initial), (), 1)
    ctx.new_attrs["body"] = done
    outside = _Outside(ctx, before)
    out = [_after_loop(ctx, a, b) for a, b in zip(initial, carried, strict=True)]
    for t in _output_types(done)[1 + n :]:
        if not isinstance(t, TensorType):
            ctx.error("tensors as scan outputs", str(t))
        shape = None if t.shape is None else (ctx.fresh(), *map(outside.size, t.shape))
        out.append(Inferred(TensorType(t.dtype, shape)))
    return tuple(out)


def _scan(ctx: InferContext) -> tuple[Inferred, ...]:
    body = ctx.graph_attr("body")
    n_scan = ctx.int_attr("num_scan_inputs")
    ctx.require(1 <= n_scan <= len(ctx.inputs), f"num_scan_inputs in [1, {len(ctx.inputs)}]", n_scan)
    n_state = len(ctx.inputs) - n_scan
    n_out = len(ctx.node.outputs) - n_state
    _require_body(ctx, body, len(ctx.inputs), len(ctx.node.outputs))
    in_axes = ctx.ints_attr("scan_input_axes") or (0,) * n_scan
    out_axes = ctx.ints_attr("scan_output_axes") or (0,) * n_out
    for key, n in (("scan_input_axes", n_scan), ("scan_input_directions", n_scan), ("scan_output_axes", n_out),
                   ("scan_output_directions", n_out)):  # fmt: skip
        given = ctx.ints_attr(key) or ()
        ctx.require(len(given) in (0, n), f"{n} {key}", given)
        ctx.require("axes" in key or set(given) <= {0, 1}, f"{key} 0 or 1", given)
    states = [ctx.value(i).type for i in range(n_state)]
    elements: list[Type] = []
    length: IntExpr | None = None
    for k in range(n_scan):
        shape = ctx.shape(n_state + k)
        axis = ctx.normal_axis(in_axes[k], len(shape))
        length = shape[axis] if length is None else merge_dims(ctx, length, shape[axis], broadcast=False)
        elements.append(TensorType(ctx.dtype(n_state + k), shape[:axis] + shape[axis + 1 :]))
    before = ctx.made_count()
    done, carried = _iterate(ctx, body, (), list(states), elements, 0)
    outside = _Outside(ctx, before)
    ctx.new_attrs["body"] = done
    out = [_after_loop(ctx, a, b) for a, b in zip(states, carried, strict=True)]
    for t, raw_axis in zip(_output_types(done)[n_state:], out_axes, strict=True):
        if not isinstance(t, TensorType):
            ctx.error("tensors as scan outputs", str(t))
        if t.shape is None:
            out.append(Inferred(t))
            continue
        axis = ctx.normal_axis(raw_axis, len(t.shape) + 1)
        steps = as_expr(0) if length is None else length
        sizes = [*map(outside.size, t.shape)]
        out.append(Inferred(TensorType(t.dtype, (*sizes[:axis], steps, *sizes[axis:]))))
    return tuple(out)


OPS = table(
    OpDef("If", PatternKind.CONTROL, _if, 1, 1, 1, None),
    OpDef("Loop", PatternKind.CONTROL, _loop, 2, None, 1, None),
    OpDef("Scan", PatternKind.CONTROL, _scan, 1, None, 1, None),
)
