"""What random functions are made of: types, sizes, inputs, and formulas over what there is, with their tolerance."""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.compute import Tensor, Update, Val, op, placeholder, select

_SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 11, 13, 16, 17, 23, 33)
INTEGERS = (
    dtypes.int8, dtypes.uint8, dtypes.int16, dtypes.uint16, dtypes.int32, dtypes.int32, dtypes.uint32, dtypes.int64,
    dtypes.int64, dtypes.uint64,
)  # fmt: skip
WIDE = (dtypes.float32, dtypes.float32, dtypes.float32, dtypes.float64)
NARROW = (
    dtypes.float16, dtypes.bfloat16, dtypes.float8e4m3fn, dtypes.float8e5m2, dtypes.float8e4m3fnuz,
    dtypes.float8e5m2fnuz,
)  # fmt: skip
TOLERANCE = {"float64": 1e-10, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
_EXACT_FLOAT = ("floor", "ceil", "round", "trunc", "abs", "neg", "sign", "sqrt_abs", "none")
_RAW = (
    "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf",
    "sigmoid", "sqrt",
)  # fmt: skip
_SMOOTH = ("tanh", "sigmoid", "sin", "cos", "atan", "erf", "asinh", "neg", "abs", "sqrt_abs", "exp_min", "log_abs")


class Values:
    """Draws from a seed; ``exact``: only operations with one right answer."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = np.random.default_rng(seed)
        self.exact = bool(self.rng.random() < 0.5)
        self.dims: dict[str, int] = {}
        self.inputs: list[Tensor] = []
        self.stages: list[Tensor | Update] = []
        self.tolerance: dict[str, float] = {}
        self.special: dict[str, np.ndarray] = {}
        self.count = 0

    # -- choices -----------------------------------------------------------------------------------------------------
    def pick(self, options: object) -> object:
        return options[int(self.rng.integers(len(options)))]  # type: ignore[index,arg-type]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def type(self) -> DType:
        r = self.rng.random()
        if self.exact:
            pool = INTEGERS if r < 0.5 else WIDE if r < 0.75 else NARROW if r < 0.9 else (dtypes.bool_,)
        else:
            pool = WIDE if r < 0.8 else NARROW
        return self.pick(pool)  # type: ignore[return-value]

    def size(self, e: IntExpr) -> int:
        return e.evaluate(self.dims)

    def points(self, *extents: IntExpr) -> int:
        total = 1
        for e in extents:
            total *= self.size(e)
        return total

    def extent(self, limit: int = 40) -> IntExpr:
        n = int(self.pick([s for s in _SIZES if s <= limit]))  # type: ignore[call-overload]
        if n == 0 or self.chance(0.35):
            d = f"d{n}"
            self.dims[d] = n
            return var(d)
        return as_expr(n)

    def shape(self, rank: int) -> tuple[IntExpr, ...]:
        return tuple(self.extent({0: 40, 1: 40, 2: 40, 3: 13}[rank]) for _ in range(rank))

    def input(self, shape: tuple[IntExpr, ...], dtype: DType) -> Tensor:
        t = placeholder(self.name("in"), shape, dtype)
        self.inputs.append(t)
        self.tolerance[t.name] = 0.0
        return t

    def array(self, t: Tensor, dims: dict[str, int]) -> np.ndarray:
        shape = tuple(s.evaluate(dims) for s in t.shape)
        if t.dtype.kind == "b":
            return self.rng.random(shape) < 0.5
        if t.dtype.is_integer:
            low = -(1 << (t.dtype.bits - 1)) if t.dtype.kind == "i" else 0
            high = low + (1 << t.dtype.bits) - 1
            small = self.rng.integers(max(low, -3), 5, shape).astype(t.dtype.numpy)
            ends = np.array([low, low + 1, high, high - 1, 0], t.dtype.numpy)
            wild = self.rng.random(shape) < (0.3 if self.chance(0.5) else 0.0)
            return np.where(wild, ends[self.rng.integers(0, 5, shape)], small)
        data = self.rng.uniform(-2, 2, shape)
        if self.chance(0.5):
            data = np.round(data * 2) / 2
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0]
        if self.exact:
            special += [1e30, -1e30, 300.5, -129.0, 65535.9, 2.0**31, -(2.0**63), 1e-40, 0.49999997, 2.5]
        wild = self.rng.random(shape) < (0.0 if self.chance(0.5) else 0.3 if self.exact else 0.02)
        data = np.where(wild, np.array(special)[self.rng.integers(0, len(special), shape)], data)
        with np.errstate(all="ignore"):
            return data.astype(t.dtype.numpy)

    def tensor(self, rank: int = 0) -> Tensor:
        """A tensor of at least ``rank`` dimensions, often a recent one."""
        known = [*self.inputs, *(s for s in self.stages if isinstance(s, Tensor))]
        fitting = [t for t in [*known, *known[-2:], *known[-1:]] if t.ndim >= rank]
        if not fitting:
            return self.input(self.shape(max(rank, 1)), self.type())
        return self.pick(fitting)  # type: ignore[return-value]

    def add(self, t: Tensor, tolerance: float) -> Tensor:
        self.stages.append(t)
        self.tolerance[t.name] = tolerance
        return t

    # -- values ------------------------------------------------------------------------------------------------------
    def read(self, t: Tensor, *i: object) -> Val:
        """An element in the type that arithmetic on it has."""
        v = t[tuple(i)]  # type: ignore[arg-type]
        return v.cast(dtypes.float32) if v.dtype.is_narrow_float else v

    def tol(self, t: Tensor, *more: float) -> float:
        """The tolerance of what is inexactly computed from ``t``."""
        own = TOLERANCE["float64" if t.dtype == dtypes.float64 else "float32"] if t.dtype.kind == "f" else 0.0
        return max(self.tolerance[t.name], own, *more) if own else 0.0

    def change(self, v: Val, t: Tensor) -> tuple[Val, float]:
        """A random unary operation on an element of ``t``, and the tolerance of its result."""
        old = self.tolerance[t.name]
        if v.dtype.kind == "b":
            return (~v if self.chance(0.5) else v), 0.0
        if v.dtype.is_integer:
            name = str(self.pick(("none", "abs", "sign", "bit_not", "max")))
            return (v if name == "none" else op("max", v, 1) if name == "max" else op(name, v)), 0.0
        if self.exact:
            name = str(self.pick(_EXACT_FLOAT))
            return (v if name == "none" else op("sqrt", op("abs", v)) if name == "sqrt_abs" else op(name, v)), old
        if old == 0.0 and self.chance(0.4):
            return op(str(self.pick(_RAW)), v), self.tol(t)
        name = str(self.pick(_SMOOTH))
        if name == "sqrt_abs":
            return op("sqrt", op("abs", v) + 0.5), self.tol(t)
        if name == "exp_min":
            return op("exp", op("min", v, 3.0)), self.tol(t)
        if name == "log_abs":
            return op("log", op("abs", v) + 0.5), self.tol(t)
        return op(name, v), (old if name in ("neg", "abs") else self.tol(t))

    def combine(self, a: Val, b: Val, tolerance: float, t: Tensor) -> tuple[Val, float]:
        """A random binary operation; ``tolerance`` is that of both operands."""
        if a.dtype.kind == "b":
            name = str(self.pick(("logical_and", "logical_or", "logical_xor", "equal", "max", "min")))
            return op(name, a, b), 0.0
        if a.dtype.is_integer:
            return self.combine_integers(a, b), 0.0
        if self.exact:
            names = ("add", "sub", "div", "max", "min", "select", "trunc_mod", "floor_mod", "is", "clamp")
            name = str(self.pick(names))
            if name == "clamp":
                return op("clamp", a, b - 1.0, op("abs", b)), 0.0
            if name == "is":
                return select(op("is_nan", a) | op("is_inf", b), b, a), 0.0
        else:
            names = ("add", "sub", "mul", "mul", "max", "min", "ratio", "fma", "power")
            name = str(self.pick((*names, "select") if tolerance == 0.0 else names))
        if name == "select":
            return select(op(str(self.pick(("less", "greater_equal", "equal", "not_equal"))), a, b), a, b), tolerance
        if name == "ratio":
            return a / (op("abs", b) + 1.0), self.tol(t, tolerance)
        if name == "fma":
            return op("fma", a, b, a), self.tol(t, tolerance)
        if name == "power":
            return op("pow", op("abs", a) + 0.5, op("max", op("min", b, 2.0), -2.0)), self.tol(t, tolerance)
        if name in ("max", "min") or self.exact:
            return op(name, a, b), tolerance
        return op(name, a, b), self.tol(t, tolerance)

    def combine_integers(self, a: Val, b: Val) -> Val:
        name = str(
            self.pick(
                ("add", "sub", "mul", "div", "floor_mod", "trunc_mod", "max", "min", "select", "bit_and", "bit_or",
                 "bit_xor", "shift_left", "shift_right", "pow",
                 *(("dot2i", "dot4", "dot4s") if a.dtype.name == "int32" else ()))
            )
        )  # fmt: skip
        if name in ("div", "floor_mod", "trunc_mod"):
            return op(name, a, select(b.equal(0), 3, b))
        if name.startswith("shift"):
            return op(name, a, op("bit_and", b, a.dtype.bits - 1))
        if name in ("dot2i", "dot4", "dot4s"):
            return a + op(name, a, b)
        if name == "pow":
            return op("pow", a, op("max", op("min", b, 5), 0))
        if name == "select":
            return select(op(str(self.pick(("less", "greater_equal", "equal"))), a, b), a - b, b)
        return op(name, a, b)
