"""Reshape and its family: targets become constants, chains become one, so that shape arithmetic dies."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.arith.expr import ONE, IntExpr, product
from tilewright.graph_ir.ir import Shape, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, ints_attr
from tilewright.graph_ir.rules.noops import can_pass_through

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


def reshape_target(source: Shape, target: Shape) -> list[int] | None:
    """The shape operand that makes ``target`` from ``source``: numbers, 0 for a dim kept in place, one -1.

    None if two dims or more are neither a number nor kept.
    """
    out: list[int] = []
    for k, d in enumerate(target):
        if d.is_const:
            if d.const == 0:
                return _empty_target(target)
            out.append(d.const)
        elif k < len(source) and source[k] == d:
            out.append(0)
        else:
            out.append(-1)
    if out.count(-1) > 1:
        return None
    if -1 in out and product(d for d, o in zip(target, out, strict=True) if o != -1).value() == 0:
        return None
    return out


def _empty_target(target: Shape) -> list[int] | None:
    """A tensor without elements: only fixed sizes can be written (with allowzero)."""
    return [d.const for d in target] if all(d.is_const for d in target) else None


def reshape(m: Match, x: str, source: Shape, target: Shape) -> str:
    """A Reshape of value ``x`` with a constant operand, which :func:`reshape_target` must be able to write."""
    dims = reshape_target(source, target)
    allow = int(dims is not None and any(d.is_const and d.const == 0 for d in target))
    return m.op("Reshape", x, m.const(dims or []), **({"allowzero": 1} if allow else {}))


def _expressible(m: Match) -> str | None:
    source, target = m.shape("x"), m.out_shape
    if source is None or target is None:
        return NOT_HERE
    if reshape_target(source, target) is None:
        return f"more than one unknown dim in {_show(target)} from {_show(source)}"
    return None


def _show(shape: Sequence[IntExpr]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _to_reshape(m: Match) -> str:
    return reshape(m, m["x"], m.shape("x") or (), m.out_shape or ())


def _target_not_written(m: Match) -> str | None:
    """Guard: the operand is computed, or has a -1 or 0 that is known."""
    reason = _expressible(m)
    if reason is not None:
        return reason
    want = reshape_target(m.shape("x") or (), m.out_shape or ())
    have = m.editor.array(m["shape"])
    return NOT_HERE if have is not None and have.reshape(-1).tolist() == want else None


def _chain(m: Match) -> str | None:
    source, target = m.shape("x"), m.out_shape
    if source is None or target is None:
        return NOT_HERE
    if source == target:
        return can_pass_through(m)
    return _expressible(m)


def _collapse(m: Match) -> str:
    return m["x"] if m.shape("x") == m.out_shape else _to_reshape(m)


def expand_target(source: Shape, target: Shape) -> list[int] | None:
    """The operand of an Expand from ``source`` to ``target``: numbers, and 1 where ``source`` has the dim already."""
    out = []
    offset = len(target) - len(source)
    for k, d in enumerate(target):
        if d.is_const:
            out.append(d.const)
        elif k >= offset and source[k - offset] == d:
            out.append(1)
        else:
            return None
    return out


def _expand(m: Match) -> str | None:
    source, target = m.shape("x"), m.out_shape
    if source is None or target is None or m.editor.constant(m["shape"]) is not None:
        return NOT_HERE
    return None if expand_target(source, target) is not None else f"{_show(target)} is known only at run time"


def _moves_nothing(m: Match) -> str | None:
    """Guard: all axes that a Transpose moves past each other, but one of each pair, have size 1."""
    source = m.shape("x")
    if source is None:
        return NOT_HERE
    perm = ints_attr(m.root, "perm") or tuple(reversed(range(len(source))))
    real = [p for p in perm if source[p].value() != 1]
    if real != sorted(real):
        return NOT_HERE
    return _expressible(m)


def _combined_perm(m: Match) -> tuple[int, ...]:
    rank = len(m.shape("x") or ())
    backwards = tuple(reversed(range(rank)))
    inner = ints_attr(m.node("in"), "perm") or backwards
    outer = ints_attr(m.root, "perm") or backwards
    return tuple(inner[k] for k in outer)


def _compose(m: Match) -> str:
    perm = _combined_perm(m)
    return m["x"] if perm == tuple(range(len(perm))) else m.op("Transpose", m["x"], perm=perm)


def _compose_guard(m: Match) -> str | None:
    if m.shape("x") is None:
        return NOT_HERE
    perm = _combined_perm(m)
    return can_pass_through(m) if perm == tuple(range(len(perm))) else None


def _widens(m: Match) -> str | None:
    """Guard: the Cast under a move makes the elements of an integer type larger."""
    source, target = m.value("x").type, m.editor.value(m.output).type
    if m.shape("x") is None or not isinstance(source, TensorType) or not isinstance(target, TensorType):
        return NOT_HERE
    small = source.dtype.kind in "iu" and 8 <= source.dtype.bits < target.dtype.bits
    return None if small else NOT_HERE


def _cast_last(m: Match) -> str:
    cast = m.node("cast")
    inner = m["x"]
    if "view" in m.nodes:
        view = m.node("view")
        inner = m.op("Reshape", inner, *view.inputs[1:], **dict(view.attrs))
    moved = m.op("Transpose", inner, **dict(m.root.attrs))
    return m.op("Cast", moved, **dict(cast.attrs))


def _flatten(m: Match) -> str | None:
    return NOT_HERE if m.shape("x") is None else _expressible(m)


_REDUCTIONS = tuple(n for n, d in OPS.items() if d.kind is PatternKind.REDUCTION and n.startswith("Reduce"))


def _puts_axes_back(m: Match) -> str | None:
    """Guard: the root gives the reduced axes back with size 1."""
    shape, reduce = m.shape("x"), m.node("reduce")
    axes = m.ints(reduce.inputs[1]) if len(reduce.inputs) > 1 and reduce.inputs[1] else ()
    if shape is None or axes is None or int_attr(reduce, "keepdims", 1):
        return NOT_HERE
    if not axes and int_attr(reduce, "noop_with_empty_axes", 0):
        return NOT_HERE
    reduced = {a % len(shape) for a in axes} or set(range(len(shape)))
    return None if m.out_shape == tuple(ONE if k in reduced else d for k, d in enumerate(shape)) else NOT_HERE


def _keep_axes(m: Match) -> str:
    reduce = m.node("reduce")
    return m.op(reduce.op, *reduce.inputs, **(dict(reduce.attrs) | {"keepdims": 1}))


RULES: tuple[Rule, ...] = (
    Rule(
        "reduce_keeps_axes",
        "Unsqueeze(ReduceMean(x, axes), axes) --> ReduceMean(x, axes, keepdims), other reductions, or a Reshape",
        P(("Unsqueeze", "Reshape"), P(_REDUCTIONS, "x", rest=True, at="reduce"), rest=True),
        _keep_axes,
        _puts_axes_back,
        exclusive=True,
    ),
    Rule(
        "reshape_constant",
        "Reshape(x, computed) --> Reshape(x, constant) when the result's dims are known",
        P("Reshape", "x", "shape"),
        _to_reshape,
        _target_not_written,
    ),
    Rule("flatten_reshape", "Flatten(x) --> Reshape(x, constant)", P("Flatten", "x"), _to_reshape, _flatten),
    Rule(
        "view_view",
        "Reshape(Reshape(x)) --> Reshape(x) or x; also Squeeze, Unsqueeze",
        P(VIEWS, P(VIEWS, "x", rest=True), rest=True),
        _collapse,
        _chain,
    ),
    Rule(
        "expand_constant",
        "Expand(x, computed) --> Expand(x, constant)",
        P("Expand", "x", "shape"),
        lambda m: m.op("Expand", m["x"], m.const(expand_target(m.shape("x") or (), m.out_shape or ()) or [])),
        _expand,
    ),
    Rule(
        "transpose_transpose",
        "Transpose(Transpose(x, p), q) --> Transpose(x, p[q])",
        P("Transpose", P("Transpose", "x", at="in")),
        _compose,
        _compose_guard,
    ),
    Rule(
        "transpose_cast",
        "Transpose(Cast(x)) --> Cast(Transpose(x)) when the Cast widens integers: fewer bytes move",
        P("Transpose", P("Cast", "x", at="cast")),
        _cast_last,
        _widens,
        exclusive=True,
    ),
    Rule(
        "transpose_view_cast",
        "Transpose(Reshape(Cast(x))) --> Cast(Transpose(Reshape(x))) when the Cast widens integers",
        P("Transpose", P("Reshape", P("Cast", "x", at="cast"), "shape", at="view")),
        _cast_last,
        _widens,
        exclusive=True,
    ),
    Rule(
        "transpose_reshape",
        "Transpose(x) that moves only axes of size 1 --> Reshape(x)",
        P("Transpose", "x"),
        _to_reshape,
        _moves_nothing,
    ),
)
