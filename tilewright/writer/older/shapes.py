"""Shapes, repetition, parts of matrices, and what else came as an operator of its own."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.graph_ir.ir import Constant, OptionalType, UnknownType
from tilewright.writer.forms import Site

_TO_END = np.iinfo(np.int64).max


def shape(s: Site) -> None:
    """Until 14: the whole shape, of which a Slice takes a part."""
    x = s.input(0)
    start, end = int(s.number("start", 0)), s.node.attr("end")
    if start == 0 and end is None:
        s.raw(x)
        return
    whole = s.op("Shape", x)
    last = end if isinstance(end, int) else _TO_END
    low, high = (s.const(np.array([k], np.int64), "place") for k in (start, last))
    s.instead("Slice", whole, low, high)


def reshape(s: Site) -> None:
    """Until 13: a 0 always was the size that stands there in the operand."""
    if s.node.attr("allowzero"):
        _require_no_zero(s)
    s.raw(s.input(0), s.input(1), drop=("allowzero",))


def _require_no_zero(s: Site) -> None:
    """Raises Refused for a size that may be 0, unless the operand's size at its place is 0 then, too."""
    sizes, known = s.value(s.input(1)).data, s.ints(s.input(1))
    if known is not None and 0 not in known:
        return
    old = s.value(s.input(0)).shape if s.is_ranked(s.input(0)) else ()
    for k, d in enumerate(sizes or ()):
        if not (_is_positive(d) or (k < len(old) and _is_zero_with(old[k], d))):
            raise s.refusal(f"a size that may be 0: {d}")
    if sizes is None:
        raise s.refusal("sizes that may be 0")


def _is_positive(d: IntExpr) -> bool:
    value = d.value()
    return value is not None and value != 0


def _is_zero_with(d: IntExpr, size: IntExpr) -> bool:
    symbol = as_var(size)
    return d == size or (symbol is not None and d.substitute({symbol: 0}).value() == 0)


def constant_of_shape(s: Site) -> None:
    """Until 8, and of types that the opset does not know: an Expand of the number."""
    value = s.node.attr("value")
    number = value.array.reshape(()) if isinstance(value, Constant) else np.zeros((), np.float32)
    sizes = s.ints(s.input(0))
    if sizes is not None and np.prod(sizes) <= _FEW:
        s.instead("Identity", s.const(np.full(sizes, number), "filled"))
    else:
        s.instead("Expand", s.const(number, "number"), s.input(0))


_FEW = 1024


def cast_like(s: Site) -> None:
    """Until 14: a Cast to the type."""
    s.instead("Cast", s.input(0), to=s.dtype(s.input(1)), saturate=s.node.attr("saturate"))


def trilu(s: Site) -> None:
    """Until 13: a Where with places on one side of a diagonal."""
    x = s.input(0)
    upper = bool(s.number("upper", 1))
    k = s.ints(s.input(1)) if s.input(1) else (0,)
    if k is None:
        raise s.refusal("a diagonal that the run gives")
    rows, columns = s.value(x).shape[-2:] if s.rank(x) >= 2 else ()
    n, m = rows.value(), columns.value()
    if n is None or m is None:
        raise s.refusal("a matrix whose size the run gives")
    full = np.ones((n, m), bool)
    kept = s.const(np.triu(full, k[0]) if upper else np.tril(full, k[0]), "kept")
    if s.dtype(x) == dtypes.bool_:
        s.instead("And", kept, x)
    else:
        s.instead("Where", kept, x, s.scalar(0, s.dtype(x), "zero"))


def gemm(s: Site) -> None:
    """Until 10: the third operand had to be there."""
    a, b = s.input(0), s.input(1)
    s.raw(a, b, s.input(2) or s.const(np.zeros(1, s.dtype(a).numpy), "nothing"))


def scatter(s: Site) -> None:
    """Until 10: called Scatter, and without a reduction."""
    if s.text("reduction", "none") != "none":
        raise s.refusal(f"reduction {s.text('reduction', 'none')}")
    axis = s.node.attr("axis")
    first = axis + s.rank(s.input(0)) if isinstance(axis, int) and axis < 0 else axis
    s.raw(*s.node.inputs, op="Scatter", drop=("reduction",), axis=first)


def power(s: Site) -> None:
    """Until 11: of floats of one type."""
    base, exponent = s.input(0), s.input(1)
    if s.is_unknown(base) or s.is_unknown(exponent) or s.dtype(base) == s.dtype(exponent):
        s.raw(base, exponent)
    elif s.dtype(base).is_float:
        s.instead("Pow", base, s.op("Cast", exponent, to=s.dtype(base)))
    else:
        raise s.refusal(f"{s.dtype(base)} to the power of {s.dtype(exponent)}")


def element_of_optional(s: Site) -> None:
    """Until 17: of an optional value only."""
    if isinstance(s.value(s.input(0)).type, OptionalType | UnknownType):
        s.raw(s.input(0))
    else:
        s.instead("Identity", s.input(0))


def modulo(s: Site) -> None:
    """Until 27: of floats with the sign of the first operand only."""
    if s.is_float(s.input(0)) and not s.is_unknown(s.input(0)) and not s.node.attr("fmod"):
        raise s.refusal("the remainder of floats with the sign of the divisor")
    s.raw(*s.node.inputs)


def batch_norm(s: Site) -> None:
    """Until 13: training was told by the number of outputs."""
    if s.node.attr("training_mode") or any(s.node.outputs[1:]):
        raise s.refusal("a normalization of training")
    s.raw(*s.node.inputs, drop=("training_mode",))


def batch_axis_first(s: Site) -> None:
    """RNN, GRU and LSTM until 13: the axis of steps came first (layout 0)."""
    if not s.node.attr("layout"):
        s.raw(*s.node.inputs, drop=("layout",))
        return
    turned = [s.op("Transpose", x, perm=(1, 0, 2)) if x and k in _WITH_BATCH else x
              for k, x in enumerate(s.node.inputs)]  # fmt: skip
    attrs = s.attrs_without("layout")
    made = tuple(o and s.body.names.fresh(f"{o}_steps_first") for o in s.node.outputs)
    s.to(made, s.node.op, *turned, **attrs)
    for k, (o, name) in enumerate(zip(s.node.outputs, made, strict=True)):
        if o:
            s.to((o,), "Transpose", name, perm=(2, 0, 1, 3) if k == 0 else (1, 0, 2))


_WITH_BATCH = (0, 5, 6)
"""Operands with a batch axis: the sequence and the initial states."""
