"""Values: the tree of a flat expression as instructions, scalar where lanes agree and vector where they differ.

``add(x, mul(a, b))`` on float32 and float64 becomes one fused multiply-add where the CPU has it, always: one
rounding fewer than the two operations written out. Nothing else about floating-point arithmetic is changed.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright.codegen.emit.context import Context
from tilewright.codegen.emit.joined_words import joined_words
from tilewright.codegen.emit.memory import index_uniform, index_vector, load, reads_memory
from tilewright.codegen.llvm.builder import Value
from tilewright.codegen.llvm.types import literal, register_type
from tilewright.codegen.math.casts import cast
from tilewright.codegen.math.dot_products import EMITTERS
from tilewright.codegen.math.rounded_integers import converts, rounded_integer
from tilewright.codegen.math.scalar_operations import operation
from tilewright.core.arith.expr import FloorDiv, IntExpr, as_atom
from tilewright.core.dtypes import int32, int64
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.ir import Cast, Const, Expr, Index, Load, Op, Select, expr_children, walk_index

_COMPARISONS = {
    "less": "slt", "less_equal": "sle", "greater": "sgt", "greater_equal": "sge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_OF_DIVIDENDS = {"slt": ("slt", 0), "sle": ("slt", 1), "sgt": ("sge", 1), "sge": ("sge", 0)}
"""What ``x // c PREDICATE b`` says of ``x``: a predicate, and what is added to ``b`` before ``c`` multiplies it."""
_EXACT = 1 << 22
"""Sums of two whole numbers below it are exact in float32."""
_MIRRORED = {"slt": "sgt", "sle": "sge", "sgt": "slt", "sge": "sle", "eq": "eq", "ne": "ne"}


def evaluate(ctx: Context, e: Expr) -> Value:
    """The value of a flat expression; equal subexpressions (the same object) are computed once."""
    known = ctx.memo.get(id(e))
    if known is not None:
        return known
    if isinstance(e, Const):
        value = Value(register_type(e.dtype), 0, literal(e.value, e.dtype))
    elif isinstance(e, Load):
        value = load(ctx, e.buffer, e.indices[0])
    elif isinstance(e, Index):
        value = _index(ctx, e)
    elif isinstance(e, Cast):
        value = _cast(ctx, e)
    elif isinstance(e, Select):
        value = _select(ctx, e)
    else:
        value = _operation(ctx, e)
    ctx.memo[id(e)] = value
    return value


def _index(ctx: Context, e: Index) -> Value:
    lanes = ctx.lanes
    if lanes is None or lanes.var not in e.expr.free_vars():
        wide = index_uniform(ctx, e.expr)
    else:
        wide = index_vector(ctx, e.expr, lanes)
    if e.dtype.kind == "f" or e.dtype.kind == "b":
        return cast(ctx.code, wide, int64, e.dtype)
    return cast(ctx.code, wide, int64, e.dtype) if e.dtype.bits != 64 else wide


def _cast(ctx: Context, e: Cast) -> Value:
    code, limits = ctx.code, _limits(e)
    if limits is None:
        return cast(code, evaluate(ctx, e.value), e.value.dtype, e.dtype)
    inner, low, high = limits
    if (found := _rounded(inner, low, high)) is not None:
        source, zero = found
        x = evaluate(ctx, source)
        if converts(code, x.lanes):
            return rounded_integer(code, x, zero, low, high, e.dtype)
    number = code.convert("fptosi", evaluate(ctx, e.value), "i32")  # needs no test for numbers that it does not hold
    return code.resize(number, register_type(e.dtype), True)


def _limits(e: Cast) -> tuple[Expr, int, int] | None:
    """``x``, ``low`` and ``high`` of an integer of at most 32 bits made of the float32 ``clamp(x, low, high)``, if they
    are whole numbers and it holds them."""
    value, to = e.value, e.dtype
    if not isinstance(value, Op) or value.name != "clamp" or value.dtype.name != "float32":
        return None
    low, high = (_whole(b) for b in value.args[1:])
    if low is None or high is None or low > high or to.bits not in (8, 16, 32):
        return None
    return (value.args[0], low, high) if to.holds(low, high) and int32.holds(low, high) else None


def _rounded(e: Expr, *bounds: int) -> tuple[Expr, int] | None:
    """``x`` and ``zero`` of ``round(x) + zero``, where float32 has all whole numbers up to ``zero`` and ``bounds``."""
    zero: int | None = 0
    if isinstance(e, Op) and e.name == "add":
        zero, e = _whole(e.args[1]), e.args[0]
    if zero is None or not isinstance(e, Op) or e.name != "round":
        return None
    return (e.args[0], zero) if all(abs(n) < _EXACT for n in (zero, *bounds)) else None


def _whole(e: Expr) -> int | None:
    return int(e.value) if isinstance(e, Const) and float(e.value).is_integer() else None


def _operation(ctx: Context, e: Op) -> Value:
    code = ctx.code
    if e.name in _COMPARISONS and ctx.lanes is not None:
        quick = _compare_lanes(ctx, e)
        if quick is not None:
            return quick
    if e.name == "bit_or" and (words := joined_words(ctx, e)) is not None:
        return words
    if e.name == "add":
        for other, product in (e.args, e.args[::-1]):
            if isinstance(product, Op) and product.name in EMITTERS and id(product) not in ctx.memo:
                emit, (left, right) = EMITTERS[product.name], product.args
                return emit(code, evaluate(ctx, left), evaluate(ctx, right), evaluate(ctx, other))
    wide = e.dtype.kind == "f" and not e.dtype.is_narrow_float
    if e.name in ("add", "sub") and wide and ctx.target.has_fma:
        a, b = e.args
        if _is_product(b):
            return _fused(ctx, b, a, negate_product=e.name == "sub", negate_other=False)
        if _is_product(a):
            return _fused(ctx, a, b, negate_product=False, negate_other=e.name == "sub")
    args = [evaluate(ctx, a) for a in e.args]
    return operation(code, e.name, e.args[0].dtype, args)


def _is_product(e: Expr) -> bool:
    return isinstance(e, Op) and e.name == "mul"


def _fused(ctx: Context, product: Expr, other: Expr, negate_product: bool, negate_other: bool) -> Value:
    if not isinstance(product, Op):
        raise InternalError("codegen: a fused multiply-add needs a product")
    code = ctx.code
    c = evaluate(ctx, other)
    a, b = (evaluate(ctx, x) for x in product.args)
    if negate_product:
        a = code.fneg(a)
    if negate_other:
        c = code.fneg(c)
    return code.fma(a, b, c)


def _compare_lanes(ctx: Context, e: Op) -> Value | None:
    """A comparison of indices that differ by the lane number plus or minus something uniform, in 32-bit lanes, or a
    scalar where all lanes are on the same side."""
    lanes = ctx.lanes
    left, right = (_as_index(a) for a in e.args)
    if lanes is None or left is None or right is None:
        return None
    predicate, difference = _without_division(_COMPARISONS[e.name], left, right)
    form = ctx.split(difference, lanes)
    if form is None or form[0].value() not in (1, -1):
        return None
    if lanes.mask is not None and not lanes.tail and reads_memory(form[1]):
        return None
    bound = -form[1]
    if form[0] == -1:
        predicate, bound = _MIRRORED[predicate], form[1]
    # lane PREDICATE bound, the bound cut to just outside the lanes
    code, n = ctx.code, lanes.count
    numbers = code.lane_numbers(n)
    value = ctx.indexer.value(bound)
    if predicate in ("slt", "sge") and (bound % n).value() == 0:
        side = "sgt" if predicate == "slt" else "sle"
        return code.compare(side, Value("i64", 0, str(value)), Value("i64", 0, "0"))
    if isinstance(value, int):
        return code.compare(predicate, numbers, Value("i32", 0, str(max(-1, min(value, n)))))
    low = code.intrinsic("smax", Value("i64", 0, value), Value("i64", 0, "-1"))
    cut = code.intrinsic("smin", low, Value("i64", 0, str(n)))
    return code.compare(predicate, numbers, code.convert("trunc", cut, "i32"))


def _without_division(predicate: str, left: IntExpr, right: IntExpr) -> tuple[str, IntExpr]:
    """``left PREDICATE right`` as a predicate and a difference that it compares with 0: ``x // c < b`` is
    ``x < c * b``, in which lanes may be neighbours."""
    for quotient, other, name in ((left, right, predicate), (right, left, _MIRRORED[predicate])):
        atom = as_atom(quotient)
        if isinstance(atom, FloorDiv) and name in _OF_DIVIDENDS and (c := atom.args[1].value()) is not None and c > 0:
            onwards, more = _OF_DIVIDENDS[name]
            return onwards, atom.args[0] - (other + more) * c
    return predicate, left - right


def _as_index(e: Expr) -> IntExpr | None:
    if isinstance(e, Index):
        return e.expr
    if isinstance(e, Const) and e.dtype.is_integer:
        return IntExpr((), int(e.value))
    return None


# -- select ------------------------------------------------------------------------------------------------------
def _select(ctx: Context, e: Select) -> Value:
    condition = evaluate(ctx, e.condition)
    if condition.is_const and not condition.lanes:
        return evaluate(ctx, e.then if condition.text == "true" else e.otherwise)
    then_loads, else_loads = _needs_memory(ctx, e.then), _needs_memory(ctx, e.otherwise)
    if not then_loads and not else_loads:
        return ctx.code.select(condition, evaluate(ctx, e.then), evaluate(ctx, e.otherwise))
    if not condition.lanes:
        return ctx.branch_on(condition.text, lambda: evaluate(ctx, e.then), lambda: evaluate(ctx, e.otherwise))
    both = then_loads and else_loads  # as in a concatenation: parts of two tensors, which may be far from each other
    a = _under_mask(ctx, e.then, condition, then_loads, elsewhere=both)
    b = _under_mask(ctx, e.otherwise, condition, else_loads, inverted=True, elsewhere=both)
    return ctx.code.select(condition, a, b)


def _needs_memory(ctx: Context, e: Expr) -> bool:
    """True if evaluating ``e`` would touch memory that was not read already."""
    if id(e) in ctx.memo:
        return False
    if isinstance(e, Load):
        if ctx.stored == (e.buffer, e.indices[0]):
            return False
        info = ctx.buffers[e.buffer]
        if info.local and info.capacity is not None and next(walk_index(e.indices[0]), None) is None:
            lo, hi = ctx.indexer.bounds(e.indices[0])
            return not (lo is not None and hi is not None and lo >= 0 and hi < info.capacity)
        return True
    if isinstance(e, Index):
        return reads_memory(e.expr)
    return any(_needs_memory(ctx, c) for c in expr_children(e))


def _under_mask(
    ctx: Context, e: Expr, condition: Value, loads: bool, inverted: bool = False, elsewhere: bool = False
) -> Value:
    """``e`` evaluated with the lanes where it is not wanted switched off."""
    if not loads:
        return evaluate(ctx, e)
    code, lanes = ctx.code, ctx.lanes
    if lanes is None:
        raise InternalError("codegen: a vector condition outside a vectorized loop")
    on = code.binary("xor", condition, code.const(True, condition)) if inverted else condition
    mask = on if lanes.mask is None else code.binary("and", lanes.mask, on)
    saved_memo = ctx.memo
    ctx.memo = dict(saved_memo)
    ctx.lanes = replace(lanes, mask=mask, tail=False, elsewhere=lanes.elsewhere or elsewhere)
    value = evaluate(ctx, e)
    ctx.lanes, ctx.memo = lanes, saved_memo
    return value
