"""Bytes of four vectors side by side in lanes of 32 bits: ``a | b << 8 | c << 16 | d << 24``.

Written out that is four conversions, three shifts and three operations on registers of 32-bit lanes. Interleaving
bytes, then pairs of them, works on four times as many lanes a register. Pairs of bytes are interleaved within lanes of
128 bits, as the instructions do (``punpcklbw``, ``punpckhbw``); for the results to lie in order, the fours of bytes
that come together in a lane are brought there first.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.llvm.builder import Code, Value
from tilewright.core.dtypes import uint8
from tilewright.tensor_ir.ir import Cast, Const, Expr, Load, Op, Select, expr_free_vars

_LANE = 16
"""Bytes of 128 bits."""


def bytes_of_word(ctx: Context, e: Op) -> list[Expr] | None:
    """The four bytes of which ``e`` makes words, vectors that lie together in memory or constants; else None."""
    lanes = ctx.lanes
    if lanes is None or lanes.count % _LANE or "avx2" not in ctx.target.enabled:
        return None
    parts: dict[int, Expr] = {}
    pending: list[Expr] = [e]
    while pending:
        x = pending.pop()
        if isinstance(x, Op) and x.name == "bit_or":
            pending += x.args
            continue
        shift, x = _shifted(x)
        if shift % 8 or not 0 <= shift < 32 or shift in parts or not _is_byte(ctx, x, lanes):
            return None
        parts[shift] = x
    vectors = sum(not isinstance(x, Const) for x in parts.values())
    return [parts.get(8 * j, Const(0, e.dtype)) for j in range(4)] if vectors > 1 else None


def _shifted(x: Expr) -> tuple[int, Expr]:
    if isinstance(x, Op) and x.name == "shift_left" and isinstance(x.args[1], Const):
        return int(x.args[1].value), x.args[0]
    return 0, x


def _is_byte(ctx: Context, x: Expr, lanes: Lanes) -> bool:
    if isinstance(x, Select):
        alike = lanes.var not in expr_free_vars(x.condition)
        return alike and _is_byte(ctx, x.then, lanes) and _is_byte(ctx, x.otherwise, lanes)
    if isinstance(x, Const):
        return 0 <= x.value < 256
    if not isinstance(x, Cast) or x.value.dtype != uint8 or not isinstance(x.value, Load):
        return False
    form = ctx.split(x.value.indices[0], lanes)
    return form is not None and form[0].value() in (0, 1)


def byte(ctx: Context, x: Expr) -> Value:
    """One of :func:`bytes_of_word`, as ``i8``."""
    if isinstance(x, Cast):
        return ctx.evaluate(x.value)
    if not isinstance(x, Select):
        return Value("i8", 0, str(x.value if isinstance(x, Const) else 0))
    condition = ctx.evaluate(x.condition)
    if condition.is_const:
        return byte(ctx, x.then if condition.text == "true" else x.otherwise)
    return ctx.branch_on(condition.text, lambda: byte(ctx, x.then), lambda: byte(ctx, x.otherwise))


def join_bytes(code: Code, parts: Sequence[Value], lanes: int) -> Value:
    """``lanes`` words of the bytes ``parts``, vectors of as many ``i8`` or single ones."""
    n = lanes
    blocks = n // _LANE
    order = [part * blocks + lane for lane in range(blocks) for part in range(4)]
    fours = [_as(code, code.splat(p, n), "i32", n // 4) for p in parts]
    a, b, c, d = (_as(code, code.shuffle(x, None, order), "i8", n) for x in fours)
    out: list[Value] = []
    for high in (False, True):
        left, right = (_as(code, _unpacked(code, x, y, _LANE, high), "i16", n // 2) for x, y in ((a, b), (c, d)))
        out += [_as(code, _unpacked(code, left, right, _LANE // 2, h), "i32", n // 4) for h in (False, True)]
    halves = [code.shuffle(out[k], out[k + 1], range(n // 2)) for k in (0, 2)]
    return code.shuffle(halves[0], halves[1], range(n))


def _unpacked(code: Code, x: Value, y: Value, width: int, high: bool) -> Value:
    """The elements of one half of each lane of ``width`` of them, those of ``x`` and ``y`` in turns."""
    first = width // 2 if high else 0
    at = [lane + first + k for lane in range(0, x.lanes, width) for k in range(width // 2)]
    return code.shuffle(x, y, [side * x.lanes + i for i in at for side in (0, 1)])


def _as(code: Code, v: Value, type_: str, lanes: int) -> Value:
    return code.emit(type_, lanes, f"bitcast {v.full} {v.text} to <{lanes} x {type_}>")
