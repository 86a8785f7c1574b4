"""Random functions that spare nothing: every element type, casts between all, extreme values, guarded and dynamic
loads, scans and scatters, empty sizes, several outputs.

``wild_program(seed)`` always gives the same function. A function is of one of two moods. *Exact* ones hold only
operations with one right answer (integers, comparisons, selects, casts, rounding, maxima) and get NaN, infinities and
the ends of integer ranges as inputs. *Smooth* ones have sums, products and transcendental functions on tame values with
a NaN or infinity here and there. ``tolerance[i]`` of output ``i`` is 0 where the result must be equal bit for bit
(zeros of either sign are the same), else the error allowed relative to the element plus the largest finite one.
Discontinuous operations are applied only to what is exact, so that a rounding difference cannot become a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr
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
    min_over,
    op,
    prod_over,
    reduce_axis,
    reduce_over,
    select,
    self_load,
    sum_over,
    update,
)
from tilewright.tensor_ir.ir import Func
from tilewright.tests.tensor_ir.wild_values import INTEGERS, NARROW, TOLERANCE, WIDE, Values

_POINTS = 4000  # of one stage, reductions included


@dataclass(frozen=True)
class WildProgram:
    """A function with one choice of its dims, matching inputs, and the tolerance of each output."""

    seed: int
    func: Func
    dims: dict[str, int]
    args: list[np.ndarray]
    tolerance: tuple[float, ...]


def wild_program(seed: int, max_stages: int = 5) -> WildProgram:
    """The wild function number ``seed``."""
    return _Maker(seed).make(max_stages)


class _Maker(Values):
    def make(self, max_stages: int) -> WildProgram:
        for _ in range(int(self.rng.integers(1, 3))):
            self.input(self.shape(int(self.rng.integers(0, 4))), self.type())
        makers = (
            self.elementwise, self.elementwise, self.elementwise, self.converted, self.converted, self.permuted,
            self.reduced, self.reduced, self.contracted, self.contracted, self.panelled, self.windowed, self.padded,
            self.strided, self.picked, self.gathered, self.scanned, self.scattered, self.reshaped, self.normalized,
            self.joined,
        )  # fmt: skip
        for _ in range(int(self.rng.integers(1, max_stages + 1))):
            self.pick(makers)()  # type: ignore[operator]
        stages = [s for s in self.stages if isinstance(s, Tensor)]
        outputs = [s for s in stages[:-1] if self.rng.random() < 0.3] + stages[-1:]
        func = build_func(f"wild_{self.seed}", self.inputs, outputs, self.stages)
        dims = {d: self.dims[d] for d in func.dims}
        args = [self.special[t.name] if t.name in self.special else self.array(t, dims) for t in self.inputs]
        return WildProgram(self.seed, func, dims, args, tuple(self.tolerance[t.name] for t in outputs))

    # -- stages ------------------------------------------------------------------------------------------------------
    def elementwise(self) -> Tensor:
        """One operand and a second one that is broadcast along random axes, or is the first from another place."""
        t = self.tensor()
        own = self.pick([d for d in range(t.ndim + 1)])
        other = self.input(
            tuple(s if self.chance(0.6) else as_expr(1) for s in t.shape[int(own) :]),  # type: ignore[call-overload]
            t.dtype,
        )
        start, noted = t.ndim - other.ndim, [0.0]

        def formula(*i: IntExpr) -> Val:
            j = tuple(as_expr(0) if s == 1 else x for x, s in zip(i[start:], other.shape, strict=True))
            a, tolerance = self.change(self.read(t, *i), t)
            v, noted[0] = self.combine(a, self.read(other, *j), tolerance, t)
            return v

        return self.add(compute(self.name("ew"), t.shape, formula), noted[0])

    def converted(self) -> Tensor:
        """A cast to any type, at times of values out of its range and of NaN."""
        t, tame = self.tensor(), self.chance(0.5)
        tolerance = self.tolerance[t.name]
        smooth = (dtypes.float32, dtypes.float64, dtypes.float16, dtypes.bfloat16)
        pool = smooth if tolerance else (*INTEGERS, *WIDE, *NARROW, dtypes.bool_)
        to: DType = self.pick(pool)  # type: ignore[assignment]
        if tolerance:
            tolerance = max(tolerance, TOLERANCE[to.name])

        def formula(*i: IntExpr) -> Val:
            v = self.read(t, *i)
            if v.dtype.kind == "f" and to.is_integer and tame:
                low = float(-(1 << (to.bits - 2))) if to.kind == "i" else 0.0
                v = select(op("is_nan", v), 1.0, op("min", op("max", v, low), float(1 << (to.bits - 2))))
            return v.cast(to)

        return self.add(compute(self.name("ca"), t.shape, formula), tolerance)

    def permuted(self) -> Tensor:
        t = self.tensor()
        order = [int(x) for x in self.rng.permutation(t.ndim)]
        flipped = [self.chance(0.25) for _ in range(t.ndim)]

        def formula(*i: IntExpr) -> Val:
            at = [i[order.index(d)] for d in range(t.ndim)]
            return t[tuple(t.shape[d] - 1 - x if flipped[d] else x for d, x in enumerate(at))]

        return self.add(compute(self.name("tr"), tuple(t.shape[d] for d in order), formula), self.tolerance[t.name])

    def reduction(self, v: Val, t: Tensor, tolerance: float, *axes: object) -> tuple[Reduction, float]:
        """A random reduction of ``v``."""
        if v.dtype.kind == "b":
            every = self.chance(0.5)
            return reduce_over("logical_and" if every else "logical_or", v, axes, every), 0.0  # type: ignore[arg-type]
        reductions = [max_over, min_over]
        if not self.exact or v.dtype.is_integer:
            reductions += [sum_over, sum_over]
        if v.dtype.is_integer:
            reductions.append(prod_over)
        f = self.pick(reductions)
        exact = v.dtype.is_integer or f in (max_over, min_over)
        return f(v, *axes), (tolerance if exact else 4 * self.tol(t, tolerance))  # type: ignore[operator]

    def reduced(self) -> Tensor:
        """Over one or two axes anywhere; the result may be kept with extent 1."""
        t = self.tensor(1)
        chosen = sorted(int(d) for d in self.rng.permutation(t.ndim)[: 2 if self.chance(0.3) else 1])
        axes = {d: reduce_axis(t.shape[d], self.name("r")) for d in chosen}
        kept, noted = self.chance(0.3), [0.0]
        rest = [d for d in range(t.ndim) if d not in axes]
        shape = tuple(as_expr(1) if d in axes else t.shape[d] for d in range(t.ndim) if kept or d not in axes)

        def formula(*i: IntExpr) -> Reduction:
            where = iter(i[d] for d in rest) if kept else iter(i)
            v, tolerance = self.change(self.read(t, *(axes[d] if d in axes else next(where) for d in range(t.ndim))), t)
            r, noted[0] = self.reduction(v, t, tolerance, *axes.values())
            return r

        return self.add(compute(self.name("rd"), shape, formula), noted[0])

    def contracted(self) -> Tensor:
        """A matrix product with a fresh operand, either way round."""
        t = self.tensor(1)
        n = self.extent(33)
        if self.points(*t.shape, n) > 4 * _POINTS:
            n = as_expr(2)
        turned = self.chance(0.4)
        k = t.shape[-1]
        w = self.input((n, k) if turned else (k, n), t.dtype)
        r = reduce_axis(k, self.name("k"))
        noted = [0.0]

        def formula(*i: IntExpr) -> Reduction:
            a, b = self.read(t, *i[:-1], r), self.read(w, *((i[-1], r) if turned else (r, i[-1])))
            if a.dtype.kind == "b":
                return reduce_over("logical_or", a & b, (r,), False)
            if self.exact and a.dtype.kind == "f":
                noted[0] = self.tolerance[t.name]
                return max_over(op("min", a, b), r)
            noted[0] = 4 * self.tol(t)
            return sum_over(a * b, r)

        return self.add(compute(self.name("mm"), (*t.shape[:-1], n), formula), noted[0])

    def panelled(self) -> Tensor:
        """A matrix product whose second operand comes in panels, and its epilogue."""
        t = self.tensor(1)
        if self.exact or t.dtype.kind != "f":
            return self.elementwise()
        k, n, ni = t.shape[-1], self.extent(23), int(self.pick((4, 8, 16)))  # type: ignore[call-overload]
        panels = (n + (ni - 1)) // ni
        if self.points(*t.shape, panels) * ni > 4 * _POINTS:
            return self.elementwise()
        wide = dtypes.float64 if t.dtype == dtypes.float64 else dtypes.float32
        w = self.input((panels, k, as_expr(ni)), wide)
        r = reduce_axis(k, self.name("k"))
        acc = compute(
            self.name("pa"),
            (*t.shape[:-1], panels, as_expr(ni)),
            lambda *i: sum_over(self.read(t, *i[:-2], r) * w[i[-2], r, i[-1]], r),
        )
        tolerance = 4 * self.tol(t)
        self.add(acc, tolerance)
        out = compute(
            self.name("pe"), (*t.shape[:-1], n), lambda *i: op("tanh", acc[(*i[:-1], i[-1] // ni, i[-1] % ni)])
        )
        return self.add(out, tolerance)

    def windowed(self) -> Tensor:
        """A strided, dilated and padded window along the last axis, with channels or without."""
        t = self.tensor(1)
        s, k, d, pad = (int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4)), int(self.rng.integers(1, 3)), 0)
        pad = int(self.rng.integers(0, 3))
        length = t.shape[-1]
        if not length.is_const or self.size(length) + 2 * pad < (k - 1) * d + 1:
            return self.padded()
        n = (self.size(length) + 2 * pad - (k - 1) * d - 1) // s + 1
        r = reduce_axis(k, self.name("w"))
        channels = reduce_axis(t.shape[-2], self.name("c")) if t.ndim > 1 and self.chance(0.5) else None
        over, noted = (r,) if channels is None else (channels, r), [0.0]
        lead = t.shape[:-1] if channels is None else t.shape[:-2]

        def formula(*i: IntExpr) -> Reduction:
            x = i[-1] * s + r.index * d - pad
            at = (*i[:-1], x) if channels is None else (*i[:-1], channels, x)
            v = self.read(t, *at)
            v = select(in_range(x, 0, length), v, constant(0, v.dtype)) if pad else v
            red, noted[0] = self.reduction(v, t, self.tolerance[t.name], *over)
            return red

        return self.add(compute(self.name("wn"), (*lead, as_expr(n)), formula), noted[0])

    def padded(self) -> Tensor:
        """Constant, edge or reflected padding along the last one or two axes."""
        t = self.tensor(1)
        both = t.ndim > 1 and self.chance(0.4)
        pads = [(int(self.rng.integers(0, 4)), int(self.rng.integers(0, 4))) for _ in range(2 if both else 1)]
        edge = self.chance(0.3) and self.size(t.shape[-1]) > 0 and not both
        lead = t.ndim - len(pads)
        shape = (*t.shape[:lead], *(t.shape[lead + d] + a + b for d, (a, b) in enumerate(pads)))

        def formula(*i: IntExpr) -> Val:
            at = [*i[:lead], *(i[lead + d] - a for d, (a, _) in enumerate(pads))]
            if edge:
                x = index_value(at[-1])
                last = index_value(t.shape[-1] - 1)
                return t[(*at[:-1], op("max", op("min", x, last), 0))]
            inside = in_range(at[-1], 0, t.shape[-1])
            if both:
                inside = inside & in_range(at[-2], 0, t.shape[-2])
            return select(inside, t[tuple(at)], constant(1, t.dtype))

        return self.add(compute(self.name("pd"), shape, formula), self.tolerance[t.name])

    def strided(self) -> Tensor:
        """Every s-th element, backwards at times, and what is not there is made up."""
        t = self.tensor(1)
        s, start = int(self.pick((1, 2, 3, 5, -1, -2))), int(self.rng.integers(-3, 4))  # type: ignore[call-overload]
        n = self.extent(23)
        if self.points(*t.shape[:-1], n) > _POINTS:
            return self.elementwise()

        def formula(*i: IntExpr) -> Val:
            x = i[-1] * s + start
            return select(in_range(x, 0, t.shape[-1]), t[(*i[:-1], x)], constant(0, t.dtype))

        return self.add(compute(self.name("st"), (*t.shape[:-1], n), formula), self.tolerance[t.name])

    def picked(self) -> Tensor:
        """Elements where a mask, or a test of an exact tensor, says so, else from the neighbour or a constant."""
        t = self.tensor(1)
        mask = self.input(t.shape if self.chance(0.5) else t.shape[-1:], dtypes.bool_)
        shift = int(self.rng.integers(-2, 3))

        def formula(*i: IntExpr) -> Val:
            near = select(in_range(i[-1] + shift, 0, t.shape[-1]), t[(*i[:-1], i[-1] + shift)], constant(1, t.dtype))
            return select(mask[i[-mask.ndim :]], t[i], near)

        return self.add(compute(self.name("pk"), t.shape, formula), self.tolerance[t.name])

    def indices(self, n: IntExpr, size: int, wild: bool) -> Tensor:
        """An input of ``n`` indices into ``size`` elements: negative ones count from the end, wild ones miss."""
        idx = self.input((n,), self.pick((dtypes.int64, dtypes.int64, dtypes.int32)))  # type: ignore[arg-type]
        low, high = (-size - 3, size + 4) if wild or size == 0 else (-size, size)
        self.special[idx.name] = self.rng.integers(low, high, self.size(n)).astype(idx.dtype.numpy)
        return idx

    def gathered(self) -> Tensor:
        """Slices picked by data along any axis; indices may be negative, and may miss behind a test."""
        t = self.tensor(1)
        d = int(self.rng.integers(t.ndim))
        n, size = self.extent(17), self.size(t.shape[d])
        shape = (*t.shape[:d], n, *t.shape[d + 1 :])
        if self.points(*shape) > _POINTS:
            return self.permuted()
        wild = size == 0 or self.chance(0.5)
        idx = self.indices(n, size, wild)

        def formula(*i: IntExpr) -> Val:
            at = idx[i[d]]
            extent = index_value(t.shape[d], at.dtype)
            place = select(at < 0, at + extent, at)
            v = t[(*i[:d], place, *i[d + 1 :])]
            return select((place >= 0) & (place < extent), v, constant(0, t.dtype)) if wild else v

        return self.add(compute(self.name("ga"), shape, formula), self.tolerance[t.name])

    def scanned(self) -> Tensor:
        """A running sum or maximum along the last axis, forwards or backwards, including the element or not."""
        t = self.tensor(1)
        name, back = self.name("cs"), self.chance(0.4)
        add = t.dtype.is_integer or (t.dtype in (dtypes.float32, dtypes.float64) and not self.exact)
        step = ("add" if add and self.chance(0.6) else "max") if t.dtype.kind != "b" else "logical_xor"
        tolerance = 4 * self.tol(t) if step == "add" else self.tolerance[t.name]

        def formula(*i: IntExpr) -> Val:
            at = (*i[:-1], t.shape[-1] - 1 - i[-1]) if back else i
            before = self_load(name, t.dtype, *i[:-1], i[-1] - 1)
            if t.dtype.is_narrow_float:
                joined = op(step, before.cast(dtypes.float32), self.read(t, *at)).cast(t.dtype)
            else:
                joined = op(step, before, t[at])
            return select(index_value(i[-1]).equal(0), t[at], joined)

        return self.add(compute(name, t.shape, formula, ordered=(t.ndim - 1,)), tolerance)

    def scattered(self) -> Tensor:
        """A copy in which some rows are overwritten or added to, in order, where data says."""
        t = self.tensor(1)
        size = self.size(t.shape[0])
        if size == 0 or t.dtype.is_narrow_float:
            return self.converted()
        n = self.extent(13)
        idx = self.indices(n, size, wild=False)
        new = self.input((n, *t.shape[1:]), t.dtype)
        copy = compute(self.name("sc"), t.shape, lambda *i: t[i])
        adds = t.dtype.is_integer
        self.add(copy, self.tolerance[t.name])

        def formula(*i: IntExpr) -> tuple[tuple[object, ...], Val]:
            at = idx[i[0]]
            place = select(at < 0, at + index_value(t.shape[0], at.dtype), at)
            where = (place, *i[1:])
            return where, (copy[where] + new[i] if adds else new[i])

        shape = (n, *t.shape[1:])
        self.stages.append(update(self.name("up"), copy, shape, formula, ordered=(0,)))  # type: ignore[arg-type]
        return copy

    def reshaped(self) -> Tensor:
        """All elements in order under another shape."""
        t = self.tensor(1)
        row = int(self.pick((1, 2, 3, 4, 6, 8)))  # type: ignore[call-overload]
        total = self.points(*t.shape)
        if total == 0 or total % row:
            row = 1
        all_of = as_expr(1)
        for s in t.shape:
            all_of = all_of * s
        shape = (all_of // row, as_expr(row)) if row > 1 else (all_of,)

        def formula(*i: IntExpr) -> Val:
            rest, at = (i[0] * row + i[1] if row > 1 else i[0]), []
            for s in reversed(t.shape):
                at.insert(0, rest % s)
                rest = rest // s
            return t[tuple(at)]

        return self.add(compute(self.name("rs"), shape, formula), self.tolerance[t.name])

    def normalized(self) -> Tensor:
        """Softmax or a mean subtracted, along the last axis, with its stages."""
        t = self.tensor(1)
        if t.dtype.kind != "f" or self.exact:
            return self.reduced()
        n = t.shape[-1]
        tolerance = 4 * self.tol(t)
        r, q = reduce_axis(n, self.name("r")), reduce_axis(n, self.name("r"))
        if self.chance(0.5):
            top = compute(self.name("sm"), t.shape[:-1], lambda *i: max_over(self.read(t, *i, r), r))
            self.add(top, self.tolerance[t.name])
            exps = compute(self.name("se"), t.shape, lambda *i: op("exp", self.read(t, *i) - top[i[:-1]]))
            self.add(exps, tolerance)
            total = self.add(compute(self.name("ss"), t.shape[:-1], lambda *i: sum_over(exps[(*i, q)], q)), tolerance)
            return self.add(compute(self.name("so"), t.shape, lambda *i: exps[i] / total[i[:-1]]), tolerance)
        total = compute(self.name("me"), t.shape[:-1], lambda *i: sum_over(self.read(t, *i, r), r))
        self.add(total, tolerance)
        count = index_value(n + 1)

        def formula(*i: IntExpr) -> Val:
            v = self.read(t, *i)
            return v - total[i[:-1]] / count.cast(v.dtype)

        return self.add(compute(self.name("mo"), t.shape, formula), tolerance)

    def joined(self) -> Tensor:
        """Two tensors one behind the other along the last axis."""
        t = self.tensor(1)
        other = self.input((*t.shape[:-1], self.extent(13)), t.dtype)
        n = t.shape[-1]

        def formula(*i: IntExpr) -> Val:
            return select(index_value(i[-1]) < index_value(n), t[i], other[(*i[:-1], i[-1] - n)])

        return self.add(compute(self.name("jo"), (*t.shape[:-1], n + other.shape[-1]), formula), self.tolerance[t.name])
