"""The compute language: operators declared as formulas, by us and by users.

Example::

    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
    >>> A, B = placeholder("A", (4, 8), dtypes.float32), placeholder("B", (8, 3), dtypes.float32)
    >>> k = reduce_axis(8, "k")
    >>> C = compute("C", (4, 3), lambda i, j: sum_over(A[i, k] * B[k, j], k))
    >>> f = build_func("matmul", [A, B], [C])

A tensor is indexed with integers, :class:`IntExpr`, axes, and integer values (gathers). A stage becomes one block in a
perfect nest of its axes, in the order of declaration; scheduling inlines, moves and tiles the stages afterwards.
Sources of the design: Halide (Ragan-Kelley et al., 2013) and TVM's tensor expressions (Chen et al., 2018).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, const, var
from tilewright.core.dtypes import DType
from tilewright.core.errors import ScheduleError
from tilewright.core.options import as_whole
from tilewright.tensor_ir.ir import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    Expr,
    Func,
    Load,
    Loop,
    Op,
    Stmt,
    expr_free_vars,
    seq,
    substitute_expr,
    walk,
    walk_expr,
)
from tilewright.tensor_ir.values import (
    IndexLike,
    ReduceAxis,
    Val,
    ValLike,
    constant,
    equal,
    formula_index,
    greater,
    greater_equal,
    in_range,
    index_of,
    index_value,
    less,
    less_equal,
    lift,
    maximum,
    minimum,
    not_equal,
    op,
    select,
    where,
)


@dataclass(frozen=True, slots=True)
class Reduction:
    """The result of ``sum_over`` and its kin; only allowed as the whole value of a stage."""

    combiner: str
    value: Val
    axes: tuple[ReduceAxis, ...]
    init: Val


def _size(who: str, given: IntLike) -> IntExpr:
    """A size as an expression; numpy's integers are whole numbers, too. Raises TypeError in the name of ``who``."""
    if isinstance(given, IntExpr):
        return given
    number = as_whole(given)
    if number is None:
        raise TypeError(f"{who}: expected whole numbers or expressions as sizes, got {given!r}")
    return as_expr(number)


def reduce_axis(extent: IntLike, name: str) -> ReduceAxis:
    """A reduction axis of ``extent`` steps; ``name`` must be unique within its function."""
    return ReduceAxis(name, _size(f"reduce_axis({name})", extent))


def reduce_over(combiner: str, value: Val, axes: Sequence[ReduceAxis], init: ValLike) -> Reduction:
    """Reduce with any associative scalar operation; ``init`` must be its identity."""
    return Reduction(combiner, value, tuple(axes), lift(init, value.dtype))


def sum_over(value: Val, *axes: ReduceAxis) -> Reduction:
    """Sum over ``axes``."""
    return reduce_over("add", value, axes, 0)


def prod_over(value: Val, *axes: ReduceAxis) -> Reduction:
    """Product over ``axes``."""
    return reduce_over("mul", value, axes, 1)


def lowest(dtype: DType) -> float | int | bool:
    """The identity of ``max`` for ``dtype``."""
    if dtype.kind == "f":
        return float("-inf")
    if dtype.kind == "b":
        return False
    return -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0


def highest(dtype: DType) -> float | int | bool:
    """The identity of ``min`` for ``dtype``."""
    if dtype.kind == "f":
        return float("inf")
    if dtype.kind == "b":
        return True
    return (1 << (dtype.bits - (dtype.kind == "i"))) - 1


def max_over(value: Val, *axes: ReduceAxis) -> Reduction:
    """Maximum over ``axes``."""
    return reduce_over("max", value, axes, lowest(value.dtype))


def min_over(value: Val, *axes: ReduceAxis) -> Reduction:
    """Minimum over ``axes``."""
    return reduce_over("min", value, axes, highest(value.dtype))


class Tensor:
    """A placeholder or a computed stage; ``T[i, j]`` reads an element."""

    __slots__ = ("axes", "body", "dtype", "name", "shape")

    def __init__(
        self, name: str, shape: tuple[IntExpr, ...], dtype: DType, axes: tuple[Axis, ...], body: Val | Reduction | None
    ) -> None:
        self.name, self.shape, self.dtype, self.axes, self.body = name, shape, dtype, axes, body

    def __getitem__(self, indices: IndexLike | tuple[IndexLike, ...]) -> Val:
        idx = indices if isinstance(indices, tuple) else (indices,)
        if len(idx) != len(self.shape):
            raise TypeError(f"{self.name}: expected {len(self.shape)} indices, got {len(idx)}")
        return Val(Load(self.name, tuple(index_of(i) for i in idx), self.dtype))

    @property
    def ndim(self) -> int:
        return len(self.shape)


def placeholder(name: str, shape: Iterable[IntLike], dtype: DType) -> Tensor:
    """An input of the function."""
    return Tensor(name, tuple(_size(f"placeholder({name})", s) for s in shape), dtype, (), None)


def compute(
    name: str,
    shape: Iterable[IntLike],
    formula: Callable[..., Val | Reduction],
    ordered: Sequence[int] = (),
    axis_names: Sequence[str] | None = None,
) -> Tensor:
    """A stage: ``name[i, j, ...] = formula(i, j, ...)``.

    ``formula`` receives one :class:`IntExpr` per dimension. It runs once: what depends on an element or an index is
    written with :func:`where`, :func:`maximum`, :func:`equal` and so on (:mod:`tilewright.tensor_ir.values`), Python's
    own ``if`` and ``max`` raise TypeError. Axis names come from ``axis_names``, else from the formula's parameters,
    prefixed with the stage name. ``ordered`` lists dimensions that must run in increasing order (the formula may then
    read earlier elements of the stage itself through :func:`self_load`).
    """
    dims = tuple(_size(f"compute({name})", s) for s in shape)
    names = list(axis_names) if axis_names is not None else _parameter_names(formula, len(dims))
    full = [f"{name}_{n}" for n in names]
    kinds: list[AxisKind] = ["ordered" if i in set(ordered) else "spatial" for i in range(len(dims))]
    axes = tuple(Axis(n, d, k) for n, d, k in zip(full, dims, kinds, strict=True))
    body = formula(*map(formula_index, full))
    if isinstance(body, Reduction) and not body.axes:
        body = body.value
    value = body.value if isinstance(body, Reduction) else body
    if not isinstance(value, Val):
        raise TypeError(f"{name}: the formula must give a value, got {value!r}; constant and index_value make one")
    return Tensor(name, dims, value.dtype, axes, body)


@dataclass(frozen=True, slots=True)
class Update:
    """A stage that overwrites elements of an earlier stage: ``target[indices] = value`` at each point of ``axes``.

    The value may read the element it overwrites. Axes along which two points can meet must be ordered.
    """

    name: str
    target: Tensor
    axes: tuple[Axis, ...]
    indices: tuple[IntExpr, ...]
    value: Val


def update(
    name: str,
    target: Tensor,
    shape: Iterable[IntLike],
    formula: Callable[..., tuple[Sequence[IndexLike], Val]],
    ordered: Sequence[int] = (),
) -> Update:
    """The update whose ``formula(i0, i1, ...)`` gives the place and the value for each point of ``shape``."""
    dims = tuple(_size(f"compute({name})", s) for s in shape)
    names = [f"{name}_i{d}" for d in range(len(dims))]
    axes = tuple(
        Axis(n, d, "ordered" if k in set(ordered) else "spatial")
        for k, (n, d) in enumerate(zip(names, dims, strict=True))
    )
    place, value = formula(*map(formula_index, names))
    return Update(name, target, axes, tuple(index_of(i) for i in place), value)


@dataclass(frozen=True, slots=True)
class Recurrence:
    """Stages that run together, step by step: at every step all of ``stages`` in order, then the next step.

    ``loops``: names and extents of the loops around the stages, the steps innermost; they are the leading axes of each
    stage. A stage may read what any of them wrote in earlier steps (through an :class:`Update` of a state buffer, whose
    axis of steps must be ordered) and what those before it wrote in this step.
    """

    loops: tuple[tuple[str, IntExpr], ...]
    stages: tuple[Tensor | Update, ...]


def self_load(name: str, dtype: DType, *indices: IndexLike) -> Val:
    """An element of the stage being defined (for ``ordered`` axes)."""
    return Val(Load(name, tuple(index_of(i) for i in indices), dtype))


def _parameter_names(f: Callable[..., object], n: int) -> list[str]:
    params = list(inspect.signature(f).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in params) or len(params) != n:
        return [f"i{d}" for d in range(n)]
    return [p.name for p in params]


def build_func(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    stages: Sequence[Tensor | Update | Recurrence] = (),
) -> Func:
    """The function that computes ``outputs`` from ``inputs``, every stage a nest at the root, intermediates allocated.

    ``stages`` lists every intermediate stage in an order where each reads only earlier ones; outputs may stand among
    them, those that do not come last; of an output without a formula updates write a part. Dims are the free variables
    of the shapes and formulas, sorted. Raises ScheduleError for a name that is used twice and for a stage that reads
    what no earlier stage has computed.
    """
    out_names = {t.name for t in outputs}
    flat = [t for s in stages for t in (s.stages if isinstance(s, Recurrence) else (s,))]
    staged = {t.name for t in flat}
    updated = {t.target.name for t in flat if isinstance(t, Update)}
    parts = [t for t in outputs if t.body is None and t.name in updated]
    last = [t for t in outputs if t.name not in staged and (t.body is not None or t.name not in updated)]
    order = [*flat, *last]
    tensor_names = [t.name for t in (*inputs, *parts, *order)]
    _require_unique(name, "tensor", tensor_names)
    body: Stmt = seq(*(_steps(s) if isinstance(s, Recurrence) else _nest(s) for s in (*stages, *last)))
    _require_unique(name, "loop", [s.var for s in walk(body) if isinstance(s, Loop)])
    known = {t.name for t in (*inputs, *parts)}
    for t in order:
        known.add(t.name)
        for e in walk_expr(_value_of(t)):
            if isinstance(e, Load) and e.buffer not in known:
                missing = f"neither input nor stage; expected it in inputs, or in stages=[{e.buffer}]"
                what = "a later stage" if e.buffer in tensor_names else missing
                raise ScheduleError(f"{name}: stage {t.name} reads {e.buffer}, which is {what}")
    for t in reversed(order):
        if t.name not in out_names and isinstance(t, Tensor):
            body = Alloc(Buffer(t.name, t.dtype, t.shape), body)
    params = tuple(Buffer(t.name, t.dtype, t.shape) for t in (*inputs, *outputs))
    dims = _free_dims([*inputs, *parts, *order])
    _require_unique(name, "dim and loop", [*dims, *(s.var for s in walk(body) if isinstance(s, Loop))])
    return Func(name, params, len(outputs), dims, body, tuple(sorted(t.name for t in parts)))


def _require_unique(func: str, kind: str, names: Sequence[str]) -> None:
    twice = [n for i, n in enumerate(names) if n in names[:i]]
    if twice:
        raise ScheduleError(f"{func}: {kind} names are not unique: {twice[0]}")


def _value_of(t: Tensor | Update) -> Expr:
    if isinstance(t, Update):
        return t.value.expr
    if t.body is None:
        raise ScheduleError(f"{t.name}: a placeholder cannot be a stage")
    return t.body.value.expr if isinstance(t.body, Reduction) else t.body.expr


def _steps(r: Recurrence) -> Stmt:
    """The common loops around the nests of the stages."""
    names = tuple(name for name, _ in r.loops)
    stmt = seq(*(_nest(t, names) for t in r.stages))
    for name, extent in reversed(r.loops):
        stmt = Loop(name, extent, stmt)
    return stmt


def _nest(t: Tensor | Update, outside: tuple[str, ...] = ()) -> Stmt:
    """The loops of a stage around its block; those of the first axes, with the names ``outside``, are there already."""
    value, init, axes = _value_of(t), None, list(t.axes)
    indices = t.indices if isinstance(t, Update) else tuple(var(a.name) for a in t.axes)
    if isinstance(t, Tensor) and isinstance(t.body, Reduction):
        axes += [Axis(a.name, a.extent, "reduce") for a in t.body.axes]
        value = Op(t.body.combiner, (Load(t.name, indices, t.dtype), value), t.dtype)
        init = t.body.init.expr
    names = [a.name for a in axes]
    if len(set(names)) != len(names):
        raise ScheduleError(f"{t.name}: axis names are not unique: {', '.join(names)}")
    # the loop over axis `x` is called `x` as well, but block axes are a scope of their own: prefix them
    renamed = {a.name: var(f"{a.name}_") for a in axes}
    block_axes = tuple(Axis(f"{a.name}_", a.extent, a.kind) for a in axes)
    block = Block(
        t.name,
        block_axes,
        tuple(map(var, (*outside, *names[len(outside) :]))),
        t.target.name if isinstance(t, Update) else t.name,
        tuple(i.substitute(renamed) for i in indices),
        substitute_expr(value, renamed),
        None if init is None else substitute_expr(init, renamed),
    )
    stmt: Stmt = block
    for a in reversed(axes[len(outside) :]):
        stmt = Loop(a.name, a.extent, stmt)
    return stmt


def _free_dims(stages: Sequence[Tensor | Update]) -> tuple[str, ...]:
    out: set[str] = set()
    for t in stages:
        bound = {a.name for a in t.axes}
        exprs = [*t.indices, *(a.extent for a in t.axes)] if isinstance(t, Update) else list(t.shape)
        free: frozenset[str] = frozenset()
        if isinstance(t, Tensor) and isinstance(t.body, Reduction):
            bound |= {a.name for a in t.body.axes}
            exprs += [a.extent for a in t.body.axes]
            free |= expr_free_vars(t.body.init.expr)
        free = free.union(*(e.free_vars() for e in exprs))
        if isinstance(t, Update) or t.body is not None:
            free |= expr_free_vars(_value_of(t))
        out |= free - bound
    return tuple(sorted(out))


__all__ = [
    "IndexLike", "ReduceAxis", "Reduction", "Tensor", "Val", "ValLike", "build_func", "compute", "const", "constant",
    "equal", "greater", "greater_equal", "highest", "in_range", "index_of", "index_value", "less", "less_equal",
    "lift", "lowest", "max_over", "maximum", "min_over", "minimum", "not_equal", "op", "placeholder", "prod_over",
    "reduce_axis", "reduce_over", "select", "self_load", "sum_over", "update", "where",
]  # fmt: skip
