"""Element by element: unary and binary functions, comparisons, logic, bits, casts, Where, Clip, variadic sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core import dtypes
from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val

SHARE = 5.0

_UNARY: dict[str, str] = {
    **dict.fromkeys(("Abs Neg Sign Relu Ceil Floor Round Not BitwiseNot Identity Sigmoid Tanh Erf Exp Sin Cos Tan Atan "
                     "Asinh Sinh Cosh Softplus Softsign HardSwish Mish Reciprocal IsNaN").split(), "any"),
    **dict.fromkeys("Sqrt Log".split(), "positive"), **dict.fromkeys("Asin Acos Atanh".split(), "unit"),
}  # fmt: skip
_BINARY = "Add Sub Mul Div Pow Max Min And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual PRelu".split()
_BITS = "BitwiseAnd BitwiseOr BitwiseXor".split()
_WITH_ATTRS: dict[str, tuple[tuple[str, tuple[float, ...]], ...]] = {
    "Elu": (("alpha", (1.0, 0.3, -0.5)),), "LeakyRelu": (("alpha", (0.01, 0.5, -0.2)),),
    "ThresholdedRelu": (("alpha", (1.0, 0.1, -0.5)),), "Celu": (("alpha", (1.0, 0.5)),),
    "Selu": (("alpha", (1.67, 1.0)), ("gamma", (1.05, 2.0))),
    "HardSigmoid": (("alpha", (0.2, 0.5)), ("beta", (0.5, 0.1))),
    "Shrink": (("lambd", (0.5, 0.1)), ("bias", (0.0, 0.3))), "Swish": (("alpha", (1.0, 0.7)),),
}  # fmt: skip


def _unary(op: str, kind: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        variable = d.one_of(["T1"]) if op in ("IsNaN", "IsInf") else "T"
        types = d.type_of(op, variable) if op != "Identity" else d.type_of("Add")
        if kind == "any" or d.wild or d.chance(0.15):
            return d.emit(op, [d.tensor(types)])
        return d.emit(op, [d.new(types[0], d.dims(d.integer(0, 4)), 0.2, kind)])

    return generate


def _with_attrs(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        attrs = {k: float(d.one_of(v)) for k, v in _WITH_ATTRS[op] if d.chance(0.6)}
        return d.emit(op, [d.tensor(d.type_of(op))], attrs)

    return generate


def _binary(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        types = d.types_of(op, "T")
        types = [np.dtype(np.bool_)] if op in ("And", "Or", "Xor") else d.type_of(op) if types else types
        a = d.tensor(types)
        if op == "PRelu":
            rank = d.integer(0, a.rank)
            slope = [d.fixed(1) if d.chance(0.4) else x for x in a.dims[a.rank - rank :]]
            return d.emit(op, [a, d.new(a.dtype, slope, 0.7)])
        if op == "Pow":
            return d.emit(op, _power(d, a))
        b = d.broadcastable(a)
        if op == "Div" and a.dtype.kind in "iu":
            b = d.broadcastable_new(a, kind="positive")
        return d.emit(op, [a, b] if d.chance(0.7) or op == "Div" else [b, a])

    return generate


def _power(d: Draft, a: Val) -> list[Val]:
    exponents = d.types_of("Pow", "T1") if d.opset >= 12 else [a.dtype]
    exponent = d.one_of([t for t in exponents if t.name != "bfloat16"] or [a.dtype])
    if d.chance(0.6):
        whole = exponent.kind in "iu" or a.dtype.kind in "iu"
        numbers = [2, 3, 1, 0, 2] if whole else [2.0, 0.5, 3.0, -1.0, 0.0, 1.0, 1.5, -2.0]
        return [a, d.scalar(d.one_of(numbers), exponent)]
    if a.dtype.kind in "iu" or exponent.kind in "iu":
        return [a, d.broadcastable_new(a, exponent, "small")]
    return [d.like(a, kind="positive"), d.broadcastable_new(a, exponent)]


def _bits(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        a = d.tensor(d.type_of(op))
        return d.emit(op, [a, d.broadcastable(a)])

    return generate


def shift(d: Draft) -> object:
    a = d.tensor([d.one_of([np.uint8, np.uint16, np.uint32, np.uint64])])
    by = d.broadcastable_new(a, kind="small")
    return d.emit("BitShift", [a, by], {"direction": d.one_of(["LEFT", "RIGHT"])})


def modulo(d: Draft) -> object:
    a = d.tensor(d.type_of("Mod"))
    if a.dtype.kind in "iu":
        return d.emit("Mod", [a, d.broadcastable_new(a, kind="positive")], {"fmod": d.integer(0, 1)})
    return d.emit("Mod", [a, d.broadcastable_new(a, kind="positive" if d.chance(0.7) else "any")], {"fmod": 1})


def is_inf(d: Draft) -> object:
    attrs = {k: d.integer(0, 1) for k in ("detect_negative", "detect_positive") if d.chance(0.5)}
    return d.emit("IsInf", [d.tensor([np.float32, np.float64])], attrs)


def gelu(d: Draft) -> object:
    return d.emit("Gelu", [d.tensor(d.type_of("Gelu"))], {"approximate": d.one_of(["none", "tanh"])})


def where(d: Draft) -> object:
    a = d.tensor(d.type_of("Where"))
    b = d.broadcastable(a)
    c = d.broadcastable(a if d.chance(0.5) or b.rank < 1 else b, np.bool_)
    return d.emit("Where", [c, a, b])


def clip(d: Draft) -> object:
    x = d.tensor(d.type_of("Clip"))
    if d.opset < 11:
        if x.dtype.kind != "f":
            raise Rejected("floats only")
        return d.emit("Clip", [x], {"min": -0.5, "max": d.one_of([0.5, 1.0, 6.0])})
    low = d.scalar(d.one_of([0, 1]) if x.dtype.kind == "u" else d.one_of([-1, 0]), x.dtype)
    high = d.scalar(d.one_of([1, 3, 6]), x.dtype)
    which = d.integer(0, 3)
    bounds = ([low, high], [low, None], [None, high], [high, low])[which]
    return d.emit("Clip", [x, *bounds])


def cast(d: Draft) -> object:
    # through floats of every width, integers that wrap are left to the same sign and to numbers in range
    source = d.tensor(d.type_of("Cast", "T1"))
    allowed = [t for t in d.types_of("Cast", "T2") if t.name not in _SMALL or d.chance(0.3)]
    target = dtypes.from_numpy(d.one_of(allowed))
    if source.dtype.kind not in "iub" and target.kind in "iu":
        kind = "positive" if target.kind == "u" else "unit"
        source = d.like(source, kind=kind)  # the standard leaves numbers out of range open
    attrs: dict[str, object] = {"to": target.onnx}
    if target.name.startswith("float8") and d.chance(0.5):
        attrs["saturate"] = d.integer(0, 1)
    return d.emit("Cast", [source], attrs)


_SMALL = ("int4", "uint4", "int2", "uint2", "float4_e2m1fn", "float8_e8m0fnu")


def cast_like(d: Draft) -> object:
    source = d.tensor(d.type_of("Add"))
    target = d.tensor([t for t in d.types_of("Add", "T") if t.kind == "f" or source.dtype.kind in "iu"])
    return d.emit("CastLike", [source, target])


def _variadic(op: str):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        first = d.tensor(d.type_of(op))
        return d.emit(op, [first, *(d.broadcastable(first) for _ in range(d.integer(0, 3)))])

    return generate


GENERATORS: Mapping[str, object] = {
    **{op: _unary(op, kind) for op, kind in _UNARY.items()}, **{op: _with_attrs(op) for op in _WITH_ATTRS},
    **{op: _binary(op) for op in _BINARY}, **{op: _bits(op) for op in _BITS},
    **{op: _variadic(op) for op in ("Sum", "Mean")}, "Max": _variadic("Max"), "Min": _variadic("Min"),
    "BitShift": shift, "Mod": modulo, "IsInf": is_inf, "Gelu": gelu, "Where": where, "Clip": clip, "Cast": cast,
    "CastLike": cast_like,
}  # fmt: skip
