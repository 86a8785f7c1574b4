"""Arrays to measure and check a function with: random, of ordinary size, valid as what the function uses them for.

No zeros by the page, no denormals, no NaN (all of them change the speed of a CPU); integers that select elements lie
inside what they select from; divisors are not zero; what goes into a root or a logarithm is positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.analysis.scopes import buffers
from tilewright.tensor_ir.ir import Block, Expr, Func, Guard, Load, Op, Stmt, Store, loads, walk, walk_expr, walk_index

Flavour: TypeAlias = Literal["signed", "positive", "unit"]
"""How float inputs are drawn: normal values, values in 0.5 .. 1.5, or values in -0.9 .. 0.9."""
FLAVOURS: tuple[Flavour, ...] = get_args(Flavour)

_SMALLEST = 1e-3
_WIDE_RANGE = 64
_DIVIDING = ("div", "floor_mod", "trunc_mod")
_OF_POSITIVES = ("sqrt", "log", "pow")


def make_inputs(func: Func, dims: Mapping[str, int], seed: int, flavour: Flavour = "signed") -> list[np.ndarray]:
    """An array for every input of ``func`` at the sizes ``dims``; the same for the same arguments."""
    limits = index_limits(func, dims)
    divisors, positives = _divisors(func), _positives(func)
    out: list[np.ndarray] = []
    for i, b in enumerate(func.params[: len(func.params) - func.outputs]):
        rng = np.random.default_rng([seed, i])
        shape = tuple(d.evaluate(dims) for d in b.shape)
        if b.dtype.kind in "fc":
            kind: Flavour = "positive" if b.name in divisors or b.name in positives else flavour
            out.append(_floats(rng, shape, b.dtype, kind))
        else:
            out.append(_integers(rng, shape, b.dtype, limits.get(b.name), b.name in divisors))
    return out


def index_limits(func: Func, dims: Mapping[str, int]) -> dict[str, int]:
    """For every integer buffer whose values take part in a position: the extent that they must stay below.

    Values that are computed into an intermediate buffer first pass its limit on to what they are computed from.
    """
    known = {b.name: b for b in buffers(func)}
    limits: dict[str, int] = {}

    def restrict(e: Load, extent: int) -> bool:
        if not e.dtype.is_integer or limits.get(e.buffer, extent + 1) <= extent:
            return False
        limits[e.buffer] = extent
        return True

    for buffer, d, position in _positions(func):
        extent = known[buffer].shape[d].evaluate(dims)
        for value in walk_index(position):
            if isinstance(value, Load):
                restrict(value, extent)
    changed = True
    while changed:
        changed = False
        for s in walk(func.body):
            if isinstance(s, (Block, Store)) and s.buffer in limits:
                for e in loads(s.value):
                    changed |= restrict(e, limits[s.buffer])
    return limits


def _positions(func: Func) -> Iterator[tuple[str, int, IntExpr]]:
    """Every index expression of an access: the buffer, the dimension, the expression."""
    for s in walk(func.body):
        if isinstance(s, (Block, Store)):
            yield from ((s.buffer, d, i) for d, i in enumerate(s.indices))
        for e in _values(s):
            for x in loads(e):
                yield from ((x.buffer, d, i) for d, i in enumerate(x.indices))


def _values(s: Stmt) -> tuple[Expr, ...]:
    if isinstance(s, Block):
        return (s.value,) if s.init is None else (s.value, s.init)
    if isinstance(s, Store):
        return (s.value,)
    return (s.condition,) if isinstance(s, Guard) else ()


def _divisors(func: Func) -> set[str]:
    """Buffers that something is divided by."""
    return {x.buffer for op in _operations(func, _DIVIDING) for x in loads(op.args[1])}


def _positives(func: Func) -> set[str]:
    """Buffers whose values go into a root, a logarithm or the base of a power in the expression that loads them."""
    return {x.buffer for op in _operations(func, _OF_POSITIVES) for x in loads(op.args[0])}


def _operations(func: Func, names: tuple[str, ...]) -> Iterator[Op]:
    for s in walk(func.body):
        for e in _values(s):
            yield from (x for x in walk_expr(e) if isinstance(x, Op) and x.name in names)


def _floats(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, flavour: Flavour) -> np.ndarray:
    if dtype.kind == "c":
        real, imaginary = (_reals(rng, shape, flavour) for _ in range(2))
        return (real + 1j * imaginary).astype(dtype.numpy)
    return _reals(rng, shape, flavour).astype(dtype.numpy)


def _reals(rng: np.random.Generator, shape: tuple[int, ...], flavour: Flavour) -> np.ndarray:
    if flavour == "signed":
        x = rng.standard_normal(shape, np.float32)
        return np.where(np.abs(x) < _SMALLEST, np.float32(_SMALLEST), x)
    x = rng.random(shape, np.float32)
    if flavour == "positive":
        return x + np.float32(0.5)
    x = x * np.float32(1.8) - np.float32(0.9)
    return np.where(np.abs(x) < _SMALLEST, np.float32(_SMALLEST), x)


def _integers(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, limit: int | None, divisor: bool
) -> np.ndarray:
    if dtype.kind == "b":
        return rng.integers(0, 2, shape, np.int8).astype(np.bool_)
    signed = dtype.kind == "i"
    if limit is not None:
        low, high = 0, max(1, min(limit, 1 << (dtype.bits - signed)))
    elif divisor:
        low, high = 1, 8 if dtype.bits > 3 else 2
    elif dtype.bits <= 8:
        high = 1 << (dtype.bits - signed)
        low = -high if signed else 0
    else:
        low, high = (-_WIDE_RANGE if signed else 0), _WIDE_RANGE
    return rng.integers(low, high, shape, np.int64).astype(dtype.numpy)
