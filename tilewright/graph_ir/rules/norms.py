"""Normalizations of rows spelled out with means, as exporters before opset 17 (or 23) write them.

The variance may be the mean of squared differences, or the mean of squares minus the square of the mean: means of one
pass over the row. Both become LayerNormalization, which takes the differences.
"""

from __future__ import annotations

import numpy as np

from tilewright.graph_ir.ir import Attribute
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, Operand, P, Rule, int_attr


def _mean(name: str, of: Operand = "x") -> P:
    return P("ReduceMean", of, C(f"{name}_axes"), at=name)


def _square(of: Operand, again: Operand | None = None, two: str = "two") -> Either:
    return Either(P("Mul", of, of if again is None else again), P("Pow", of, C(two, 2.0)))


def _centred(mean: str) -> P:
    return P("Sub", "x", _mean(mean))


def _root(of: Operand) -> Either:
    return Either(P("Sqrt", of), P("Pow", of, C("half", 0.5)))


def _inverse_root(of: Operand) -> Either:
    spread = _root(of)
    return Either(P("Reciprocal", spread), P("Div", C("one", 1.0), spread), P("Pow", of, C("minus_half", -0.5)))


_VARIANCE = Either(
    _mean("var", _square(_centred("mean2"), _centred("mean3"))),
    P("Sub", _mean("squares", _square("x")), _square(_mean("mean2"), _mean("mean3"), "two_of_mean")),
)
_SHIFTED = P("Add", _VARIANCE, C("eps"))
_INVERSE = _inverse_root(_SHIFTED)
NORMALIZED = Either(P("Div", _centred("mean"), _root(_SHIFTED)), P("Mul", _centred("mean"), _INVERSE))
"""What has a mean of 0 and a variance of 1: the input without its mean, over its deviation."""
_FACTOR = Either(P("Mul", _INVERSE, C("gain")), _INVERSE)
_MEAN_SQUARE = P("Add", _mean("squares", _square("x")), C("eps"))


def first_axis(m: Match) -> int | str:
    """The first of the axes that all means of :data:`NORMALIZED` run over, which are the last ones. A reason, or
    NOT_HERE, if they are others."""
    shape = m.shape("x")
    if shape is None or not m.dtype("x").is_float or m.out_shape != shape:
        return NOT_HERE
    rank, found = len(shape), set[int]()
    for key in ("mean", "mean2", "mean3", "var", "squares"):
        if key not in m.nodes:
            continue
        axes = sorted(int(a) % rank for a in m.array(f"{key}_axes").reshape(-1))
        if axes != [*range(rank - len(axes), rank)] or not axes:
            return f"the mean runs over axes {axes}, not the last ones"
        if int_attr(m.node(key), "keepdims", 1) != 1:
            return "a mean does not keep its axis"
        found.add(axes[0])
    if len(found) != 1:
        return f"the means start at axes {sorted(found)}"
    return "epsilon is not one number" if m.constant("eps").size != 1 else found.pop()


def _trailing(m: Match) -> int | str:
    """The same, where the sizes of these axes are numbers."""
    first = first_axis(m)
    unknown = [d for d in (m.shape("x") or ())[first:] if d.value() is None] if isinstance(first, int) else []
    return f"the last dim {unknown[-1]} is not a number" if unknown else first


def _rows(m: Match) -> str | None:
    first = _trailing(m)
    if isinstance(first, str):
        return first
    widths = [d.const for d in (m.shape("x") or ())[first:]]
    for key in ("gain", "shift"):
        if key in m.names and not _fits(m, key, widths):
            return f"the {key} has other sizes than a row"
    return None


def _fits(m: Match, key: str, widths: list[int]) -> bool:
    """True if a constant broadcasts to one row: not beyond it, and not along axes in front of it."""
    shape = m.constant(key).shape
    own = (1,) * (len(widths) - len(shape)) + shape
    front, row = own[: len(own) - len(widths)], own[len(own) - len(widths) :]
    return all(d == 1 for d in front) and all(d in (1, w) for d, w in zip(row, widths, strict=True))


def _normalized(m: Match, op: str, shift: bool) -> str:
    first = _trailing(m)
    shape = m.shape("x") or ()
    if not isinstance(first, int):
        return m.output
    widths = tuple(d.const for d in shape[first:])

    def row(key: str) -> str:
        array = m.array(key) if key in m.names else np.ones(1)
        array = array.reshape(array.shape[max(0, array.ndim - len(widths)) :])
        return m.const(np.ascontiguousarray(np.broadcast_to(array, widths)), like="x")

    operands = [row("gain")] + ([row("shift")] if shift else [])
    epsilon = float(m.array("eps").reshape(-1)[0])
    attrs: dict[str, Attribute] = {"axis": first - len(shape), "epsilon": epsilon}
    return m.op(op, m["x"], *operands, **attrs)


def _one_row(m: Match) -> str | None:
    """Guard: ``c`` is constant along all axes in front of the normalized ones, and so is what it is combined with."""
    shape, widths = m.shape("x"), _widths(m)
    if shape is None or widths is None or shape != m.out_shape:
        return NOT_HERE
    return None if _fits(m, "c", widths) and _fits(m, "s", widths) else NOT_HERE


def _widths(m: Match) -> list[int] | None:
    """The sizes of the axes that the matched norm runs over; None if some is not a number."""
    shape = m.shape("x") or ()
    sizes = [d.value() for d in shape[int_attr(m.node("ln"), "axis", -1) % max(len(shape), 1) :]]
    known = [n for n in sizes if n is not None]
    return known if len(known) == len(sizes) else None


def _row_of(m: Match, array: np.ndarray) -> np.ndarray:
    widths = tuple(_widths(m) or ())
    array = array.reshape(array.shape[max(0, array.ndim - len(widths)) :])
    return np.ascontiguousarray(np.broadcast_to(array, widths))


def _with_scale(m: Match) -> str:
    ln = m.node("ln")
    scale = m.const(_row_of(m, m.array("c")) * _row_of(m, m.array("s")), like="s")
    return m.op(ln.op, m["x"], scale, **dict(ln.attrs))


def _with_bias(m: Match) -> str:
    bias = m.const(_row_of(m, m.array("c")), like="s")
    return m.op("LayerNormalization", m["x"], m["s"], bias, **dict(m.node("ln").attrs))


def _same_means(m: Match) -> str | None:
    """Guard: all means run over the same axes and keep them."""
    shape = m.shape("x")
    if shape is None or not m.dtype("x").is_float:
        return NOT_HERE
    means = [key for key in ("mean2", "mean3", "var") if key in m.nodes]
    axes = {tuple(sorted(int(a) % len(shape) for a in m.array(f"{key}_axes").reshape(-1))) for key in means}
    if len(axes) != 1 or any(int_attr(m.node(key), "keepdims", 1) != 1 for key in means if key != "var"):
        return "the means run over other axes"
    return None


def _mean_of_squares(m: Match) -> str:
    x, axes, mean = m["x"], m["var_axes"], m.node("mean2").outputs[0]
    if not int_attr(m.node("var"), "keepdims", 1):
        mean = m.op("Squeeze", mean, axes)
    squares = m.op("ReduceMean", m.op("Mul", x, x), axes, **dict(m.node("var").attrs))
    return m.op("Sub", squares, m.op("Mul", mean, mean))


_NORMS = ("LayerNormalization", "RMSNormalization")

RULES: tuple[Rule, ...] = (
    Rule(
        "layer_norm",
        "(x - mean(x)) / sqrt(var + eps) --> LayerNormalization(x, ones), var = mean((x - mean(x))^2)"
        " or mean(x^2) - mean(x)^2",
        NORMALIZED,
        lambda m: _normalized(m, "LayerNormalization", False),
        _rows,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "layer_norm_as_affine",
        "x*k + (shift - mean(x)*k), k = gain / sqrt(var + eps) --> LayerNormalization(x, gain, shift)",
        P("Add", P("Mul", "x", _FACTOR), P("Sub", C("shift"), P("Mul", _mean("mean"), _FACTOR))),
        lambda m: _normalized(m, "LayerNormalization", True),
        _rows,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "rms_norm",
        "x / sqrt(mean(x^2) + eps) --> RMSNormalization(x, ones)",
        Either(P("Div", "x", _root(_MEAN_SQUARE)), P("Mul", "x", _inverse_root(_MEAN_SQUARE))),
        lambda m: _normalized(m, "RMSNormalization", False),
        _rows,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "variance_in_one_pass",
        "mean((x - mean(x))^2) --> mean(x^2) - mean(x)^2, two means that do not wait for each other; cancels where the"
        " mean is large beside the deviation",
        P("ReduceMean", _square(_centred("mean2"), _centred("mean3")), C("var_axes"), at="var"),
        _mean_of_squares,
        _same_means,
        Exactness.APPROXIMATE,
        exclusive=True,
    ),
    Rule(
        "layer_norm_scale",
        "Mul(LayerNormalization(x, s), c) --> LayerNormalization(x, s*c), and RMSNormalization",
        P("Mul", P(_NORMS, "x", C("s", 1.0), at="ln"), C("c")),
        _with_scale,
        _one_row,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "layer_norm_bias",
        "Add(LayerNormalization(x, s), c) --> LayerNormalization(x, s, c)",
        P("Add", P("LayerNormalization", "x", C("s"), at="ln"), C("c")),
        _with_bias,
        _one_row,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
