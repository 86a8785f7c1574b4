"""Arithmetic of a value by kind, for features: how many operations of each sort one point computes."""

from __future__ import annotations

from tilewright.machine.costs import Cycles
from tilewright.tensor_ir.ir import Block, Cast, Const, Expr, Index, Load, Op, Select
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

KINDS: tuple[str, ...] = ("add", "mul", "fma", "minmax", "div", "special", "logic", "integer", "cast", "select")
"""Columns of :func:`count_operations`. ``special``: transcendental functions, by their cost; ``div`` includes roots."""

_COLUMN = {name: n for n, name in enumerate(KINDS)}
_FLOAT_KINDS = {"add": "add", "sub": "add", "neg": "add", "abs": "add", "mul": "mul", "fma": "fma", "max": "minmax",
                "min": "minmax", "clamp": "minmax", "div": "div", "sqrt": "div", "floor": "add", "ceil": "add",
                "round": "add", "trunc": "add", "sign": "logic", "floor_mod": "div", "trunc_mod": "div"}  # fmt: skip


def count_operations(value: Expr, loads: list[Load]) -> list[float]:
    """Operations per point, one entry per kind; the loads met on the way are appended to ``loads`` (once each)."""
    counts = [0.0] * len(KINDS)
    _count(value, counts, loads)
    return counts


def operation_cycles(c: Cycles) -> list[float]:
    """Cycles that a vector instruction of each kind occupies the arithmetic units (``special``: for each flop)."""
    other = {"div": c.division, "special": c.transcendental, "cast": c.cast}
    return [other.get(kind, c.operation) for kind in KINDS]


def _count(e: Expr, counts: list[float], found: list[Load]) -> None:
    if isinstance(e, Load):
        if e not in found:
            found.append(e)
    elif isinstance(e, Op):
        _count_op(e, counts)
        for a in e.args:
            _count(a, counts, found)
    elif isinstance(e, Cast):
        counts[_COLUMN["cast"]] += 1
        _count(e.value, counts, found)
    elif isinstance(e, Select):
        counts[_COLUMN["select"]] += 1
        for a in (e.condition, e.then, e.otherwise):
            _count(a, counts, found)
    elif isinstance(e, Index):
        counts[_COLUMN["integer"]] += 1
    elif not isinstance(e, Const):
        raise TypeError(f"expected a value of the tensor IR, got {e!r}")


def _count_op(e: Op, counts: list[float]) -> None:
    if e.dtype.kind == "b":
        counts[_COLUMN["logic"]] += 1
    elif e.dtype.kind != "f":
        counts[_COLUMN["integer"]] += SCALAR_OPS[e.name].flops
    elif e.name == "add" and any(isinstance(a, Op) and a.name == "mul" for a in e.args):
        counts[_COLUMN["fma"]] += 1
        counts[_COLUMN["mul"]] -= 1
    elif e.name in _FLOAT_KINDS:
        counts[_COLUMN[_FLOAT_KINDS[e.name]]] += 1
    else:
        counts[_COLUMN["special"]] += SCALAR_OPS[e.name].flops


def has_self_load(block: Block, found: list[Load]) -> bool:
    """True if the block reads the element it stores: an accumulator."""
    return any(x.buffer == block.buffer and x.indices == block.indices for x in found)
