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


def joined_bytes(ctx: Context, e: Op) -> Value | None:
    """``e`` as words of interleaved bytes; None if it is no such word of vectors that lie together in memory, and at
    least two of them."""
    if ctx.lanes is None or ctx.lanes.count % _LANE or "avx2" not in ctx.target.enabled:
        return None
    parts = _bytes_of_word(ctx, e, ctx.lanes)
    if sum(not isinstance(x, Const) for x in parts.values()) < 2:
        return None
    return _interleaved(ctx.code, [_byte(ctx, parts.get(8 * j, Const(0, e.dtype))) for j in range(4)], ctx.lanes.count)


def _bytes_of_word(ctx: Context, e: Op, lanes: Lanes) -> dict[int, Expr]:
    """The bytes that ``e`` joins, by their first bit; none if it joins anything else."""
    parts: dict[int, Expr] = {}
    pending: list[Expr] = [e]
    while pending:
        x = pending.pop()
        if isinstance(x, Op) and x.name == "bit_or":
            pending += x.args
            continue
        shift, x = _shifted(x)
        if shift % 8 or not 0 <= shift < 32 or shift in parts or not _is_byte(ctx, x, lanes):
            return {}
        parts[shift] = x
    return parts


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


def _byte(ctx: Context, x: Expr) -> Value:
    """One of :func:`_bytes_of_word`, as ``i8``."""
    if isinstance(x, Cast):
        return ctx.evaluate(x.value)
    if not isinstance(x, Select):
        return Value("i8", 0, str(x.value if isinstance(x, Const) else 0))
    condition = ctx.evaluate(x.condition)
    if condition.is_const:
        return _byte(ctx, x.then if condition.text == "true" else x.otherwise)
    return ctx.branch_on(condition.text, lambda: _byte(ctx, x.then), lambda: _byte(ctx, x.otherwise))


def _interleaved(code: Code, parts: Sequence[Value], lanes: int) -> Value:
    """``lanes`` words of the bytes ``parts``, vectors of as many ``i8`` or single ones."""
    n = lanes
    blocks = n // _LANE
    order = [part * blocks + lane for lane in range(blocks) for part in range(4)]
    fours = [code.view(code.splat(p, n), "i32", n // 4) for p in parts]
    a, b, c, d = (code.view(code.shuffle(x, None, order), "i8", n) for x in fours)
    out: list[Value] = []
    for high in (False, True):
        left, right = (code.view(_unpacked(code, x, y, _LANE, high), "i16", n // 2) for x, y in ((a, b), (c, d)))
        out += [code.view(_unpacked(code, left, right, _LANE // 2, h), "i32", n // 4) for h in (False, True)]
    return code.concat(out)


def _unpacked(code: Code, x: Value, y: Value, width: int, high: bool) -> Value:
    """The elements of one half of each lane of ``width`` of them, those of ``x`` and ``y`` in turns."""
    first = width // 2 if high else 0
    at = [lane + first + k for lane in range(0, x.lanes, width) for k in range(width // 2)]
    return code.shuffle(x, y, [side * x.lanes + i for i in at for side in (0, 1)])
