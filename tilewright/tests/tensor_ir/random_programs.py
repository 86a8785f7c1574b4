"""Random functions of several stages, from a seed: what schedules and machine code are fuzzed with.

``random_program(seed)`` always gives the same function with its dims and arguments. Every function verifies, reads only
what was written, and keeps its values small, so that results can be compared with a tolerance whatever the order of
sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr, var
from tilewright.core.dtypes import DType
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Val,
    build_func,
    compute,
    constant,
    in_range,
    index_value,
    max_over,
    op,
    placeholder,
    reduce_axis,
    select,
    self_load,
    sum_over,
)
from tilewright.tensor_ir.ir import Func, loads

_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 12, 13)
_TYPES = (dtypes.float32, dtypes.float32, dtypes.float32, dtypes.int32, dtypes.float64, dtypes.int64, dtypes.uint8)
_UNARY = ("neg", "abs", "tanh", "sigmoid", "floor", "sqrt_abs", "sin")


@dataclass(frozen=True)
class RandomProgram:
    """A function with one choice of its dims and matching inputs."""

    seed: int
    func: Func
    dims: dict[str, int]
    args: list[np.ndarray]


def random_program(seed: int, max_stages: int = 4) -> RandomProgram:
    """The random function number ``seed``."""
    return _Maker(seed, max_stages).make()


class _Maker:
    def __init__(self, seed: int, max_stages: int) -> None:
        self.seed, self.max_stages = seed, max_stages
        self.rng = np.random.default_rng(seed)
        self.dims: dict[str, int] = {}
        self.inputs: list[Tensor] = []
        self.stages: list[Tensor] = []
        self.count = 0

    def make(self) -> RandomProgram:
        dtype = self.pick(_TYPES)
        for _ in range(int(self.rng.integers(1, 3))):
            self.input(tuple(self.extent() for _ in range(int(self.rng.integers(1, 4)))), dtype)
        for _ in range(int(self.rng.integers(1, self.max_stages + 1))):
            self.stages.append(self.stage())
        used = {x for s in self.stages for x in _reads(s)}
        outputs = [s for s in self.stages if s.name not in used] or [self.stages[-1]]
        func = build_func(f"random_{self.seed}", self.inputs, outputs, self.stages)
        dims = {d: self.dims[d] for d in func.dims}
        args = [self.array(t, dims) for t in self.inputs]
        return RandomProgram(self.seed, func, dims, args)

    def pick(self, options: Sequence[object]) -> object:
        return options[int(self.rng.integers(len(options)))]

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def size(self, e: IntExpr) -> int:
        return e.evaluate(self.dims)

    def extent(self) -> IntExpr:
        n = int(self.pick(_EXTENTS))
        if self.rng.random() < 0.3:
            d = f"d{n}"
            self.dims[d] = n
            return var(d)
        return as_expr(n)

    def input(self, shape: tuple[IntExpr, ...], dtype: DType) -> Tensor:
        t = placeholder(self.name("in"), shape, dtype)
        self.inputs.append(t)
        return t

    def array(self, t: Tensor, dims: dict[str, int]) -> np.ndarray:
        shape = tuple(s.evaluate(dims) for s in t.shape)
        if t.dtype.kind == "f":
            return self.rng.uniform(-1, 1, shape).astype(t.dtype.numpy)
        return self.rng.integers(0 if t.dtype.kind == "u" else -4, 5, shape).astype(t.dtype.numpy)

    def tensor(self) -> Tensor:
        return self.pick([*self.inputs, *self.stages, *self.stages])  # type: ignore[return-value]

    def stage(self) -> Tensor:
        makers = (
            self.elementwise, self.elementwise, self.elementwise, self.permuted, self.reduced, self.reduced,
            self.contracted, self.contracted, self.windowed, self.padded, self.gathered, self.scanned, self.reshaped,
            self.cast,
        )  # fmt: skip
        return self.pick(makers)()  # type: ignore[operator,no-any-return]

    def combine(self, a: Val, b: Val) -> Val:
        name = str(self.pick(("add", "sub", "mul", "max", "min", "select")))
        if name == "select":
            return select(a > b, a, b + 1)
        return op(name, a, b)

    def soften(self, v: Val) -> Val:
        """A unary operation that keeps values small (integers are only bounded)."""
        if v.dtype.kind != "f":
            return op("max", v, 0) if self.rng.random() < 0.5 else v
        name = str(self.pick(_UNARY))
        return op("sqrt", op("abs", v)) if name == "sqrt_abs" else op(name, v)

    def elementwise(self) -> Tensor:
        """One or two operands, the second one broadcast along random axes."""
        t = self.tensor()
        other = self.input(
            tuple(s if self.rng.random() < 0.6 else as_expr(1) for s in t.shape[int(self.rng.integers(t.ndim + 1)) :]),
            t.dtype,
        )
        start = t.ndim - other.ndim

        def formula(*i: IntExpr) -> Val:
            j = tuple(as_expr(0) if s == 1 else x for x, s in zip(i[start:], other.shape, strict=True))
            return self.combine(self.soften(t[i]), other[j])

        return compute(self.name("ew"), t.shape, formula)

    def permuted(self) -> Tensor:
        t = self.tensor()
        order = [int(x) for x in self.rng.permutation(t.ndim)]

        def formula(*i: IntExpr) -> Val:
            return t[tuple(i[order.index(d)] for d in range(t.ndim))]

        return compute(self.name("tr"), tuple(t.shape[d] for d in order), formula)

    def reduced(self) -> Tensor:
        """A sum or maximum over a random axis, possibly kept with extent 1."""
        t = self.tensor()
        if t.ndim == 0:
            return self.elementwise()
        d = int(self.rng.integers(t.ndim))
        r = reduce_axis(t.shape[d], self.name("r"))
        reduction = max_over if self.rng.random() < 0.4 else sum_over

        def formula(*i: IntExpr) -> object:
            return reduction(self.soften(t[(*i[:d], r, *i[d:])]), r)

        return compute(self.name("rd"), t.shape[:d] + t.shape[d + 1 :], formula)  # type: ignore[arg-type]

    def contracted(self) -> Tensor:
        """A matrix product with a fresh operand."""
        t = self.tensor()
        if t.ndim == 0:
            return self.elementwise()
        n = self.extent()
        w = self.input((t.shape[-1], n), t.dtype)
        r = reduce_axis(t.shape[-1], self.name("k"))
        return compute(self.name("mm"), (*t.shape[:-1], n), lambda *i: sum_over(t[(*i[:-1], r)] * w[r, i[-1]], r))

    def windowed(self) -> Tensor:
        """A strided window along the last axis."""
        t = self.tensor()
        if t.ndim == 0 or self.size(t.shape[-1]) < 3 or not t.shape[-1].is_const:
            return self.elementwise()
        s, k = int(self.rng.integers(1, 3)), int(self.rng.integers(1, 4))
        r = reduce_axis(k, self.name("w"))
        n = (self.size(t.shape[-1]) - k) // s + 1
        return compute(self.name("wn"), (*t.shape[:-1], n), lambda *i: sum_over(t[(*i[:-1], i[-1] * s + r)], r))

    def padded(self) -> Tensor:
        t = self.tensor()
        if t.ndim == 0:
            return self.elementwise()
        left, right = int(self.rng.integers(0, 3)), int(self.rng.integers(0, 3))
        n = t.shape[-1]
        return compute(
            self.name("pd"),
            (*t.shape[:-1], n + left + right),
            lambda *i: select(in_range(i[-1] - left, 0, n), t[(*i[:-1], i[-1] - left)], constant(1, t.dtype)),
        )

    def gathered(self) -> Tensor:
        """Rows picked by a computed index, which stays in range by construction."""
        t = self.tensor()
        if t.ndim == 0:
            return self.elementwise()
        n = self.extent()
        idx = self.input((n,), dtypes.int64)
        extent = index_value(t.shape[0])
        return compute(self.name("ga"), (n, *t.shape[1:]), lambda *i: t[(op("floor_mod", idx[i[0]], extent), *i[1:])])

    def scanned(self) -> Tensor:
        """A running sum along the last axis."""
        t = self.tensor()
        if t.ndim == 0:
            return self.elementwise()
        name = self.name("cs")

        def formula(*i: IntExpr) -> Val:
            before = self_load(name, t.dtype, *i[:-1], i[-1] - 1)
            return select(index_value(i[-1]).equal(0), t[i], before + t[i])

        return compute(name, t.shape, formula, ordered=(t.ndim - 1,))

    def reshaped(self) -> Tensor:
        """All elements as one row, or as rows of another length."""
        t = self.tensor()
        if t.ndim == 0 or not all(s.is_const for s in t.shape):
            return self.elementwise()
        total = 1
        for s in t.shape:
            total *= int(s)
        row = int(self.pick([d for d in (1, 2, 3, 4, 5, 6) if total % d == 0]))

        def formula(i: IntExpr, j: IntExpr) -> Val:
            rest, idx = i * row + j, []
            for s in reversed(t.shape):
                idx.insert(0, rest % s)
                rest = rest // s
            return t[tuple(idx)]

        return compute(self.name("rs"), (total // row, row), formula)

    def cast(self) -> Tensor:
        t = self.tensor()
        to = self.pick((dtypes.float32, dtypes.float32, dtypes.float64, dtypes.int32, dtypes.float16))
        middle = dtypes.float32 if to == dtypes.float16 else to

        def formula(*i: IntExpr) -> Val:
            v = t[i].cast(to)  # type: ignore[arg-type]
            return v.cast(middle).cast(dtypes.float32) if to == dtypes.float16 else v

        return compute(self.name("ca"), t.shape, formula)


def _reads(t: Tensor) -> set[str]:
    value = t.body.value if isinstance(t.body, Reduction) else t.body
    assert value is not None
    return {x.buffer for x in loads(value.expr) if x.buffer != t.name}
