"""Narrow elements side by side in lanes of 32 bits: ``a | b << 8 | c << 16 | d << 24``, or two of 16 bits.

Neighbours in memory are such a word as they lie, so lanes of them are one load, of a word where all lanes have the same
one. Bytes of four vectors are interleaved: written out that is four conversions, three shifts and three operations on
registers of 32-bit lanes. Interleaving bytes, then pairs of them, works on four times as many lanes a register. Pairs
of bytes are interleaved within lanes of 128 bits, as the instructions do (``punpcklbw``, ``punpckhbw``); for the
results to lie in order, the fours of bytes that come together in a lane are brought there first. Two bytes, each as 16
bits, are interleaved and then widened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.codegen.emit.context import Context, Lanes
from tilewright.codegen.emit.memory import gather_words, load_masked, load_word, load_words, reads_memory
from tilewright.codegen.llvm.builder import Code, Value
from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import int8, uint8
from tilewright.tensor_ir.ir import Cast, Const, Expr, Load, Op, Select, expr_free_vars

_WORD = 32
_LANE = 16
"""Bytes of 128 bits."""
_FAR = 16
"""Elements from one word to the next, from which on nothing is gained by loading what lies between."""
_SIGNS = 0x80808080
"""The highest bit of each byte: to turn it is to add 128 to a signed one, which is unsigned then."""


def joined_words(ctx: Context, e: Op) -> Value | None:
    """``e`` as words of neighbours in memory or of interleaved bytes; None if it is neither."""
    if ctx.lanes is None:
        return None
    parts = _parts(e)
    return _neighbours(ctx, parts, ctx.lanes) or _bytes(ctx, e, parts, ctx.lanes)


def _parts(e: Op) -> dict[int, Expr]:
    """What ``e`` joins, by the first bit; none if two have the same."""
    parts: dict[int, Expr] = {}
    pending: list[Expr] = [e]
    while pending:
        x = pending.pop()
        if isinstance(x, Op) and x.name == "bit_or":
            pending += x.args
            continue
        shift, x = _shifted(x)
        if shift in parts:
            return {}
        parts[shift] = x
    return parts


def _shifted(x: Expr) -> tuple[int, Expr]:
    if isinstance(x, Op) and x.name == "shift_left" and isinstance(x.args[1], Const):
        return int(x.args[1].value), x.args[0]
    return 0, x


# -- neighbours ------------------------------------------------------------------------------------------------------
def _neighbours(ctx: Context, parts: dict[int, Expr], lanes: Lanes) -> Value | None:
    """The words as they lie in memory, if ``parts`` are neighbours there, and lanes go on where others end. Parts that
    are there under a condition, else 0, are read under a mask."""
    count = len(parts)
    if count not in (2, 4) or sorted(parts) != list(range(0, _WORD, _WORD // count)):
        return None
    found = [_element(parts[shift]) for shift in sorted(parts)]
    first = found[0]
    if first is None or any(x is None or not x.follows(first, j) for j, x in enumerate(found)):
        return None
    load, begin = first.load, first.load.indices[0]
    form = ctx.split(begin, lanes)
    private = ctx.buffers[load.buffer].private is not None
    if private or load.dtype.bits * count != _WORD or form is None or (form[0] != 0 and reads_memory(begin)):
        return None
    conditions = [x.condition for x in found if x is not None]
    unconditional = all(c is None for c in conditions)
    if form[0] == 0:
        return _moved(ctx, first, load_word(ctx, load.buffer, begin)) if unconditional else None
    if form[0] != count:
        plain = not first.moved and unconditional
        apart = form[0].value() is not None and abs(int(form[0])) >= _FAR
        return gather_words(ctx, load.buffer, begin, lanes) if plain and apart and ctx.target.has_wide_vectors else None
    masks = [lanes.mask if c is None else _condition(ctx, c, lanes) for c in conditions]
    if all(m is None for m in masks):
        return _moved(ctx, first, load_words(ctx, load.buffer, form[1], lanes))
    if "avx512bw" not in ctx.target.enabled:
        return None
    return _under_masks(ctx, first, form[1], masks, lanes)


def _moved(ctx: Context, first: _Element, words: Value) -> Value:
    """Words of elements that are all as ``first`` is, from what lies in memory."""
    return ctx.code.binary("xor", words, ctx.code.const(_SIGNS - (1 << _WORD), words)) if first.moved else words


def _condition(ctx: Context, condition: Expr, lanes: Lanes) -> Value:
    on = ctx.code.splat(ctx.evaluate(condition), lanes.count)
    return on if lanes.mask is None else ctx.code.binary("and", lanes.mask, on)


def _under_masks(ctx: Context, first: _Element, begin: IntExpr, masks: Sequence[Value | None], lanes: Lanes) -> Value:
    """Elements of words of which each has a mask of its own, 0 where it is off."""
    code = ctx.code
    mask = code.interleave([code.splat(Value("i1", 0, "true"), lanes.count) if m is None else m for m in masks])
    raw = load_masked(ctx, first.load.buffer, begin, mask)
    if first.moved:
        raw = code.select(mask, code.binary("xor", raw, code.const(-(1 << 7), raw)), code.const(0, raw))
    return code.view(raw, "i32", lanes.count)


@dataclass(frozen=True, slots=True)
class _Element:
    """The bits of ``load`` with zeros above them; ``moved``: of a signed byte to which 128 is added. ``condition``:
    where it is not 0 instead, None for everywhere."""

    load: Load
    moved: bool
    condition: Expr | None

    def follows(self, first: _Element, by: int) -> bool:
        """True for the same kind of element ``by`` places behind ``first``."""
        same = (self.load.buffer, self.moved) == (first.load.buffer, first.moved)
        return same and self.load.indices[0] - first.load.indices[0] == by


def _element(x: Expr) -> _Element | None:
    condition = None
    if isinstance(x, Select) and isinstance(x.otherwise, Const) and x.otherwise.value == 0:
        condition, x = x.condition, x.then
    moved = False
    if isinstance(x, Op) and x.name == "add" and isinstance(x.args[1], Const) and x.args[1].value in (0, 1 << 7):
        moved, x = x.args[1].value != 0, x.args[0]
    value = x.value if isinstance(x, Cast) else x.args[0] if isinstance(x, Op) and x.name == "bits" else None
    if not isinstance(value, Load) or x.dtype.bits != _WORD:
        return None
    fits = value.dtype == int8 if moved else isinstance(x, Op) or value.dtype.kind == "u"
    return _Element(value, moved, condition) if fits else None


# -- bytes of several vectors ----------------------------------------------------------------------------------------
def _bytes(ctx: Context, e: Op, parts: dict[int, Expr], lanes: Lanes) -> Value | None:
    """Interleaved bytes, if ``parts`` are bytes of vectors that lie together in memory, and at least two of them."""
    if lanes.count % _LANE or "avx2" not in ctx.target.enabled:
        return None
    fit = all(shift % 8 == 0 and 0 <= shift < _WORD and _is_byte(ctx, x, lanes) for shift, x in parts.items())
    if not fit or sum(not isinstance(x, Const) for x in parts.values()) < 2:
        return None
    if parts.keys() == {0, _WORD // 2}:
        return _widened(ctx.code, [_byte(ctx, parts[shift]) for shift in sorted(parts)], lanes.count)
    return _interleaved(ctx.code, [_byte(ctx, parts.get(8 * j, Const(0, e.dtype))) for j in range(4)], lanes.count)


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
    """A part of a word, as ``i8``."""
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


def _widened(code: Code, parts: Sequence[Value], lanes: int) -> Value:
    """``lanes`` words of two bytes, each widened to 16 bits: interleaved first, which is half the work."""
    pairs = code.interleave([code.splat(p, lanes) for p in parts])
    return code.view(code.convert("zext", pairs, "i16"), "i32", lanes)


def _unpacked(code: Code, x: Value, y: Value, width: int, high: bool) -> Value:
    """The elements of one half of each lane of ``width`` of them, those of ``x`` and ``y`` in turns."""
    first = width // 2 if high else 0
    at = [lane + first + k for lane in range(0, x.lanes, width) for k in range(width // 2)]
    return code.shuffle(x, y, [side * x.lanes + i for i in at for side in (0, 1)])
