"""Arithmetic and logic: strength reduction, adjacent constants merged, casts joined."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule

_SMALL = 1 << 16


def _same_dtype(m: Match) -> str | None:
    return None if m.editor.value(m.output).dtype == m.dtype("x") else NOT_HERE


def _float_same(m: Match) -> str | None:
    if not m.dtype("x").is_float or m.shape("x") is None or m.shape("x") != m.out_shape:
        return NOT_HERE
    return _same_dtype(m)


def _power_of_two(m: Match) -> str | None:
    """Guard: every divisor is a power of two whose inverse is a normal number, so that the product is exact."""
    c = m.constant("c")
    if not m.dtype("x").is_float or c.size == 0 or c.size > _SMALL or m.dtype("x").bits < 16:
        return NOT_HERE
    mantissa, exponent = np.frexp(c.array.astype(np.float64))
    if not bool(np.all(np.abs(mantissa) == 0.5)):
        return "the divisor is not a power of two, so multiplying by its inverse would round differently"
    if bool(np.any(np.abs(exponent) > 14)):
        return "the divisor's inverse could leave the range of normal numbers"
    return None


def _has_inverse(m: Match) -> str | None:
    """Guard: every inverse is a normal number."""
    c = m.constant("c")
    if not m.dtype("x").is_float or c.size == 0 or c.size > _SMALL or m.dtype("x").bits < 16:
        return NOT_HERE
    info = ml_dtypes.finfo(c.dtype)  # type: ignore[no-untyped-call]
    with np.errstate(divide="ignore"):
        inverses = 1.0 / np.abs(m.array("c").astype(np.float64))
    if float(info.smallest_normal) <= inverses.min() and inverses.max() <= float(info.max):
        return None
    return "a divisor has no inverse among the normal numbers"


def _whole_divisor(m: Match) -> str | None:
    """Guard: there are as many inverses as products; fewer are cheaper to keep than as many divisions as products."""
    return None if m.shape("y") is not None and m.shape("y") == m.out_shape else NOT_HERE


@dataclass(frozen=True, slots=True)
class _Affine:
    """``source * factor + shift``, in ``steps`` nodes."""

    source: str
    factor: np.ndarray
    shift: np.ndarray
    steps: int


_LONGEST = 8
_LINEAR = ("Add", "Sub", "Mul", "Div")


def _affine(m: Match) -> _Affine | None:
    """The longest chain of operators with one constant each that ends in the root; None if its numbers do not stay
    few, finite and normal."""
    ed, steps, name = m.editor, list[tuple[Node, np.ndarray]](), m.output
    while len(steps) < _LONGEST:
        node = ed.producer(name)
        if node is None or node.op not in _LINEAR or node.domain:
            break
        if steps and (ed.use_count(name) != 1 or ed.is_output(name)):
            break
        at = 1 if ed.constant(node.inputs[1]) is not None else 0
        c = ed.constant(node.inputs[at])
        source = node.inputs[1 - at]
        if c is None or ed.constant(source) is not None or c.size > _SMALL or (node.op == "Div" and at == 0):
            break
        if ed.value(source).type != ed.value(name).type:
            break
        steps.append((node, c.array))
        name = source
    factor, shift = np.ones(()), np.zeros(())
    with np.errstate(all="ignore"):
        for node, array in reversed(steps):
            c64 = array.astype(np.float64)
            if node.op in ("Mul", "Div"):
                c64 = 1.0 / c64 if node.op == "Div" else c64
                factor, shift = factor * c64, shift * c64
            elif node.op == "Sub" and ed.constant(node.inputs[0]) is not None:
                factor, shift = -factor, c64 - shift
            else:
                shift = shift + (c64 if node.op == "Add" else -c64)
    return _Affine(name, factor, shift, len(steps)) if _are_plain(m, name, factor, shift) else None


def _are_plain(m: Match, name: str, factor: np.ndarray, shift: np.ndarray) -> bool:
    """True if all numbers are finite and the factors normal in the element type, and few."""
    info = ml_dtypes.finfo(m.editor.value(name).dtype.numpy)  # type: ignore[no-untyped-call]
    sizes = np.abs(factor)
    if factor.size > _SMALL or shift.size > _SMALL or not factor.size:
        return False
    limit = float(info.max)
    return bool(
        np.all(sizes <= limit) and np.all(np.abs(shift) <= limit) and np.all(sizes >= float(info.smallest_normal))
    )


def _long_chain(m: Match) -> str | None:
    if not m.editor.value(m.output).dtype.is_float or m.editor.value(m.output).dtype.bits < 16:
        return NOT_HERE
    if m.editor.use_count(m.output) == 1 and not m.editor.is_output(m.output):
        above = m.editor.users(m.output)[0]
        if above.op in _LINEAR and any(m.editor.constant(i) is not None for i in above.inputs):
            return NOT_HERE  # the chain goes on, and is seen from its end
    found = _affine(m)
    return None if found is not None and found.steps > 2 else NOT_HERE


def _product_and_sum(m: Match) -> str:
    found = _affine(m)
    if found is None:
        return m.output
    m.names["source"] = found.source
    product = m.op("Mul", found.source, m.const(found.factor, like="source"))
    return m.op("Add", product, m.const(found.shift, like="source"))


def _beside_a_sum(m: Match) -> str | None:
    """Guard: an Add of another constant stands next to it, with which the new one merges."""
    ed, inner = m.editor, m.editor.producer(m["x"])
    if not m.dtype("x").is_float or m.constant("c").size > _SMALL:
        return NOT_HERE
    beside = [*ed.users(m.output), *([] if inner is None else [inner])]
    return None if any(_has_constant(ed, n, "Add") for n in beside) else NOT_HERE


def _inverse(m: Match) -> str:
    return m.op("Mul", m["x"], m.const(1.0 / m.array("c").astype(np.float64), like="c"))


def is_lossless(source: DType, target: DType) -> bool:
    """True if every number of type ``source`` is one of type ``target``."""
    if source == target:
        return True
    if source.kind == "b":
        return target.kind in "iuf" and target.bits >= 8
    if source.is_integer and target.is_integer:
        if source.kind == target.kind:
            return source.bits <= target.bits
        return source.kind == "u" and source.bits < target.bits
    mantissa = {"float64": 53, "float32": 24, "float16": 11, "bfloat16": 8}
    if source.is_integer and target.name in mantissa:
        return source.bits <= mantissa[target.name] and target.name != "float16"
    if source.is_float and target.name in ("float32", "float64"):
        return source.bits < target.bits
    return False


def _casts(m: Match) -> str | None:
    first, middle = m.dtype("x"), m.editor.value(m.root.inputs[0]).dtype
    last = m.editor.value(m.output).dtype
    if "s" in (first.kind, middle.kind, last.kind):
        return NOT_HERE
    if not is_lossless(first, middle):
        return f"{first} -> {middle} loses information"
    return None


def _merge_scalars(m: Match) -> str | None:
    """Guard: the constants are small together, and the inner node goes, since all that read it merge with it."""
    if not m.dtype("x").is_float:
        return NOT_HERE
    inner, ed = m.node("in").outputs[0], m.editor
    if ed.is_output(inner) or not all(_has_constant(ed, u, m.root.op) for u in ed.users(inner)):
        return f"'{inner}' is also used elsewhere"
    a, b = m.constant("a"), m.constant("b")
    if max(a.size, b.size) > _SMALL or np.broadcast_shapes(a.shape, b.shape) not in (a.shape, b.shape):
        return "the merged constant would be larger than both"
    return None


def _has_constant(ed: GraphEditor, node: Node, op: str) -> bool:
    return node.op == op and not node.domain and any(ed.constant(i) is not None for i in node.inputs)


def _merged(op: str, m: Match) -> str:
    a, b = m.array("a").astype(np.float64), m.array("b").astype(np.float64)
    return m.op(op, m["x"], m.const(a * b if op == "Mul" else a + b, like="a"))


def _cast_once(m: Match) -> Node | str:
    return m.op("Cast", m["x"], to=m.editor.value(m.output).dtype)


RULES: tuple[Rule, ...] = (
    Rule(
        "div_power_of_two",
        "Div(x, 2^k) --> Mul(x, 2^-k)",
        P("Div", "x", C("c")),
        _inverse,
        _power_of_two,
    ),
    Rule(
        "cast_cast",
        "Cast(Cast(x, a), b) --> Cast(x, b) when a holds every value of x",
        P("Cast", P("Cast", "x")),
        _cast_once,
        _casts,
    ),
    Rule(
        "mul_mul",
        "Mul(Mul(x, a), b) --> Mul(x, a*b)",
        P("Mul", P("Mul", "x", C("a"), at="in"), C("b")),
        lambda m: _merged("Mul", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "add_add",
        "Add(Add(x, a), b) --> Add(x, a+b)",
        P("Add", P("Add", "x", C("a"), at="in"), C("b")),
        lambda m: _merged("Add", m),
        _merge_scalars,
        Exactness.REASSOCIATING,
    ),
)

AFFINE: tuple[Rule, ...] = (
    Rule(
        "affine_chain",
        "((x + a)*b - c)/d ..., three or more steps with constants --> Add(Mul(x, k), s)",
        P(_LINEAR, "x", "y"),
        _product_and_sum,
        _long_chain,
        Exactness.REASSOCIATING,
    ),
)

STRENGTH: tuple[Rule, ...] = (
    Rule(
        "pow_two",
        "Pow(x, 2) --> Mul(x, x)",
        P("Pow", "x", C("two", 2.0)),
        lambda m: m.op("Mul", m["x"], m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_three",
        "Pow(x, 3) --> Mul(Mul(x, x), x)",
        P("Pow", "x", C("three", 3.0)),
        lambda m: m.op("Mul", m.op("Mul", m["x"], m["x"]), m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_half",
        "Pow(x, 0.5) --> Sqrt(x); differs at -inf only",
        P("Pow", "x", C("half", 0.5)),
        lambda m: m.op("Sqrt", m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_minus_one",
        "Pow(x, -1) --> Reciprocal(x)",
        P("Pow", "x", C("minus_one", -1.0)),
        lambda m: m.op("Reciprocal", m["x"]),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "pow_minus_half",
        "Pow(x, -0.5) --> Reciprocal(Sqrt(x)); differs at -inf only",
        P("Pow", "x", C("minus_half", -0.5)),
        lambda m: m.op("Reciprocal", m.op("Sqrt", m["x"])),
        _float_same,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "one_over",
        "Div(1, x) --> Reciprocal(x)",
        P("Div", C("one", 1.0), "x"),
        lambda m: m.op("Reciprocal", m["x"]),
        _float_same,
    ),
    Rule(
        "mul_reciprocal",
        "Mul(x, Reciprocal(y)) --> Div(x, y)",
        P("Mul", "x", P("Reciprocal", "y")),
        lambda m: m.op("Div", m["x"], m["y"]),
        _whole_divisor,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "sub_constant",
        "Sub(x, c) --> Add(x, -c) beside an Add of another constant",
        P("Sub", "x", C("c")),
        lambda m: m.op("Add", m["x"], m.const(-m.array("c"))),
        _beside_a_sum,
    ),
    Rule(
        "div_constant",
        "Div(x, c) --> Mul(x, 1/c); the inverse of a number that is no power of two is rounded",
        P("Div", "x", C("c")),
        _inverse,
        _has_inverse,
        Exactness.APPROXIMATE,
    ),
    Rule(
        "log_softmax",
        "Log(Softmax(x)) --> LogSoftmax(x)",
        P("Log", P("Softmax", "x", at="softmax")),
        lambda m: m.op("LogSoftmax", m["x"], **dict(m.node("softmax").attrs)),
        exactness=Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
