"""Whether a loop nest is what a tensor intrinsic describes, and where the intrinsic's parameters lie then.

The comparison is structural: same loops in the same order, same operations, and each parameter one region of one buffer
that the loops walk in straight lines. What is not found equal does not match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.core.arith.bounds import Ranges, is_nonneg, loop_range, simplify
from tilewright.core.arith.expr import ZERO, IntExpr, as_var, product, var
from tilewright.tensor_ir.analysis.access import linear_address
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import block_environment, buffers
from tilewright.tensor_ir.hints import Intrinsic, find_hint
from tilewright.tensor_ir.intrinsics import find_intrinsic, intrinsic_names, malformed
from tilewright.tensor_ir.ir import (
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    Func,
    Load,
    Loop,
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    TensorIntrin,
    stmt_children,
    substitute_expr,
    walk,
    walk_index,
)

Place: TypeAlias = Callable[[str, tuple[IntExpr, ...]], IntExpr]

_COMMUTATIVE = frozenset(("add", "mul", "max", "min", "equal", "not_equal", "bit_and", "bit_or", "bit_xor"))


@dataclass(frozen=True, slots=True)
class Region:
    """Where a parameter of an intrinsic lies: its element at ``index`` is element ``start + sum(index * strides)`` of
    ``buffer``."""

    buffer: str
    start: IntExpr
    strides: tuple[IntExpr, ...]


@dataclass(frozen=True, slots=True)
class Match:
    """Where the parameters of an intrinsic lie, and the values of its dims. ``before``: steps of the reduction before
    those of the nest; it starts from the initial value where all are 0."""

    regions: dict[str, Region]
    dims: dict[str, IntExpr]
    before: tuple[IntExpr, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a nest is not what an intrinsic computes."""

    reason: str


def match_intrinsic(
    func: Func, nest: Loop, intrinsic: TensorIntrin, outer: Ranges, place: Place | None = None
) -> Match | Mismatch:
    """Where each parameter of ``intrinsic`` lies if ``nest``, a loop of ``func``, computes just that.

    ``outer``: the ranges of the loops around the nest. ``place``: the element offset of ``buffer[indices]``, if buffers
    do not lie as their shapes say.
    """
    if (reason := malformed(intrinsic)) is not None:
        return Mismatch(f"{intrinsic.name} is not well described: {reason}")
    matcher = _Matcher(func, intrinsic, {**outer}, place)
    try:
        matcher.statement(nest, intrinsic.description.body)
        matcher.require_layout(nest)
    except _Different as e:
        return Mismatch(str(e))
    return Match(matcher.regions, matcher.dims, tuple(matcher.before))


class _Different(Exception):
    """The reason of a :class:`Mismatch`."""


class _Matcher:
    """Compares one nest with one description. ``loops``: the description's loop -> the nest's; ``dims``: the
    description's -> their values."""

    def __init__(
        self,
        func: Func,
        intrinsic: TensorIntrin,
        ranges: dict[str, tuple[IntExpr, IntExpr]],
        place: Place | None,
    ) -> None:
        self.func = func
        self.intrinsic = intrinsic
        self.ranges = ranges
        self.buffers: dict[str, Buffer] = {b.name: b for b in buffers(func)}
        self.params = {b.name: b for b in intrinsic.description.params}
        self.place = place if place is not None else self._row_major
        self.loops: dict[str, str] = {}
        self.regions: dict[str, Region] = {}
        self.dims: dict[str, IntExpr] = {}
        self.before: list[IntExpr] = []

    def _row_major(self, buffer: str, indices: tuple[IntExpr, ...]) -> IntExpr:
        return linear_address(indices, self.buffers[buffer].shape)

    # -- statements ----------------------------------------------------------------------------------------------
    def statement(self, s: Stmt, wanted: Stmt) -> None:
        if isinstance(s, Loop) and isinstance(wanted, Loop):
            if s.kind not in ("serial", "opaque"):
                raise _Different(f"loop {s.var} is {s.kind}")
            self._extent(s, wanted)
            self.loops[wanted.var] = s.var
            self.ranges[s.var] = loop_range(s.extent)
            self.statement(s.body, wanted.body)
        elif isinstance(s, Seq) and isinstance(wanted, Seq) and len(s.stmts) == len(wanted.stmts):
            for a, b in zip(s.stmts, wanted.stmts, strict=True):
                self.statement(a, b)
        elif isinstance(s, (Block, Store)) and isinstance(wanted, (Block, Store)):
            self._store(s, wanted)
        else:
            raise _Different(f"it has {_kind(s)} where {self.intrinsic.name} has {_kind(wanted)}")

    def _extent(self, s: Loop, wanted: Loop) -> None:
        dim = as_var(wanted.extent)
        if dim is not None and not s.extent.free_vars() & {*self.loops.values()}:
            self.dims.setdefault(dim, s.extent)
        if s.extent != (expected := wanted.extent.substitute(self.dims)):
            raise _Different(f"loop {s.var} has the extent {s.extent}, not {expected}")

    def _store(self, s: Block | Store, wanted: Block | Store) -> None:
        env = block_environment(s) if isinstance(s, Block) else {}
        other = block_environment(wanted) if isinstance(wanted, Block) else {}
        self._initial(s, wanted)
        indices = tuple(i.substitute(env) for i in s.indices)
        self._access(s.buffer, indices, wanted.buffer, tuple(i.substitute(other) for i in wanted.indices))
        self._value(substitute_expr(s.value, env), substitute_expr(wanted.value, other))

    def _initial(self, s: Block | Store, wanted: Block | Store) -> None:
        """The same initial value, or none, stored before the first step of the same loops."""
        mine, theirs = (x.init if isinstance(x, Block) else None for x in (s, wanted))
        if mine is not None and theirs is None:
            raise _Different(f"{_named(s)} stores initial values (decompose_reduction takes them out)")
        if theirs is None:
            return
        if not (isinstance(mine, Const) and isinstance(theirs, Const) and _same_constant(mine, theirs)):
            raise _Different(f"{_named(s)} does not store the initial values of {self.intrinsic.name}")
        before = self._steps_before(s, {self.loops[v] for b in _steps(wanted) for v in b.free_vars()})
        if before is None or (before and not self.intrinsic.resumes):
            raise _Different(f"{_named(s)} does not reduce over the loops over which {self.intrinsic.name} does")
        self.before += before

    def _steps_before(self, s: Block | Store, loops: set[str]) -> list[IntExpr] | None:
        """The steps before those of the nest, along each axis that has some; None if the nest does not reduce over
        ``loops``, one after the other along an axis."""
        found, steps = set[str](), list[IntExpr]()
        for b in _steps(s):
            inside = b.free_vars() & {*self.loops.values()}
            before = simplify(b - sum((var(v) for v in inside), ZERO), self.ranges)
            if len(inside) > 1 or before.free_vars() & inside or not is_nonneg(before, self.ranges):
                return None
            if before != ZERO:
                steps.append(before)
            found |= inside
        return steps if found == loops else None

    # -- values --------------------------------------------------------------------------------------------------
    def _value(self, e: Expr, wanted: Expr) -> None:
        if isinstance(e, Load) and isinstance(wanted, Load):
            self._access(e.buffer, e.indices, wanted.buffer, wanted.indices)
        elif isinstance(e, Op) and isinstance(wanted, Op) and (e.name, e.dtype) == (wanted.name, wanted.dtype):
            self._operands(e.args, wanted.args, e.name in _COMMUTATIVE)
        elif isinstance(e, Cast) and isinstance(wanted, Cast) and e.dtype == wanted.dtype:
            self._value(e.value, wanted.value)
        elif isinstance(e, Select) and isinstance(wanted, Select):
            theirs = (wanted.condition, wanted.then, wanted.otherwise)
            self._operands((e.condition, e.then, e.otherwise), theirs, False)
        elif not (isinstance(e, Const) and isinstance(wanted, Const) and _same_constant(e, wanted)):
            raise _Different(f"it computes {_shown(e)} where {self.intrinsic.name} computes {_shown(wanted)}")

    def _operands(self, args: tuple[Expr, ...], wanted: tuple[Expr, ...], commute: bool) -> None:
        known = dict(self.regions)
        try:
            for a, b in zip(args, wanted, strict=True):
                self._value(a, b)
        except _Different as e:
            if not commute:
                raise
            self.regions.clear()
            self.regions.update(known)
            try:
                for a, b in zip(reversed(args), wanted, strict=True):
                    self._value(a, b)
            except _Different:
                raise e from None

    # -- regions -------------------------------------------------------------------------------------------------
    def _access(self, buffer: str, indices: tuple[IntExpr, ...], param: str, wanted: tuple[IntExpr, ...]) -> None:
        """Note that ``buffer[indices]`` is ``param[wanted]``; both in loop variables."""
        if self.buffers[buffer].dtype != self.params[param].dtype:
            raise _Different(f"{buffer} holds {self.buffers[buffer].dtype}, not {self.params[param].dtype}")
        shown = f"{buffer}[{', '.join(map(str, indices))}]"
        mine = frozenset(self.loops.values())
        address, steps = self._line(buffer, indices, shown)
        own = [self.loops.get(as_var(i) or "") for i in wanted]
        for v, step in steps.items():
            if step != 0 and v not in own:
                raise _Different(f"{shown} moves with loop {v}, {param} does not")
        strides = tuple(ZERO if v is None else steps[v] for v in own)
        region = Region(buffer, address.substitute(dict.fromkeys(mine, ZERO)), strides)
        if self.regions.setdefault(param, region) != region:
            raise _Different(f"{shown} is not where {param} was seen before")

    def _line(self, buffer: str, indices: tuple[IntExpr, ...], shown: str) -> tuple[IntExpr, dict[str, IntExpr]]:
        """Where ``buffer[indices]`` lies, and how far each of the nest's loops moves it. What is too little to count in
        a quotient may be what makes a whole of it and its remainder: the indices are taken without it, then with it."""
        mine = frozenset(self.loops.values())
        for rests in (True, False):
            address = simplify(self.place(buffer, tuple(simplify(i, self.ranges, rests) for i in indices)), self.ranges)
            if next(walk_index(address), None) is not None:
                raise _Different(f"the place of {shown} is read from memory")
            steps = {v: step for v in sorted(mine) if (step := address.coefficient(v)) is not None}
            crooked = [v for v in sorted(mine) if v not in steps or steps[v].free_vars() & mine]
            if not crooked:
                return address, steps
        raise _Different(f"{shown} does not go in a straight line with loop {crooked[0]}")

    def require_layout(self, nest: Loop) -> None:
        """The regions lie as the intrinsic's code expects them."""
        writes = [s for s in walk(self.intrinsic.description.body) if isinstance(s, (Block, Store))]
        written = {s.buffer for s in writes}
        for name, region in self.regions.items():
            shape = self._shape(name)
            moving = [n for n, extent in enumerate(shape) if extent != 1]
            if len(shape) - 1 in moving and region.strides[-1] != 1:
                raise _Different(f"the last dimension of {name} is not made of neighbours in {region.buffer}")
            gapless = [product(shape[n + 1 :]) for n in range(len(shape))]
            if name in self.intrinsic.dense and any(region.strides[n] != gapless[n] for n in moving):
                raise _Different(f"{name} does not lie in {region.buffer} without gaps")
        for a, x in self.regions.items():
            for b, y in self.regions.items():
                if a != b and x.buffer == y.buffer and a in written:
                    raise _Different(f"{a} and {b} share memory: {x.buffer} and {y.buffer}")
        self._require_distinct(nest, writes)

    def _shape(self, param: str) -> tuple[IntExpr, ...]:
        return tuple(x.substitute(self.dims) for x in self.params[param].shape)

    def _require_distinct(self, nest: Loop, writes: list[Block | Store]) -> None:
        """No two elements that the description writes are one element of a buffer."""
        if all(self._is_spread(name) for name in {s.buffer for s in writes}):
            return
        walked: set[str] = set()
        for s in writes:
            env = block_environment(s) if isinstance(s, Block) else {}
            walked |= {self.loops[v] for i in s.indices for v in i.substitute(env).free_vars()}
        for d in carried_dependences(nest, list(self.loops.values()), self.ranges):
            if again := sorted(d.loops & walked):
                raise _Different(f"steps of loop {again[0]} may write one element of {d.buffer}")

    def _is_spread(self, name: str) -> bool:
        """True if constant strides alone keep the elements of a parameter apart: each goes beyond the smaller ones."""
        strides = [s.value() for s in self.regions[name].strides]
        sizes = [n.value() for n in self._shape(name)]
        reach = 0
        known = [(s, n) for s, n in zip(strides, sizes, strict=True) if s is not None and n is not None]
        for step, extent in sorted((abs(s), n) for s, n in known):
            if extent > 1 and step <= reach:
                return False
            reach += step * (extent - 1)
        return len(known) == len(strides)


def _same_constant(a: Const, b: Const) -> bool:
    return a.dtype == b.dtype and repr(a.value) == repr(b.value)


def _named(s: Block | Store) -> str:
    return f"block {s.name}" if isinstance(s, Block) else f"the store to {s.buffer}"


def _steps(s: Block | Store) -> dict[IntExpr, None]:
    """What the reduction axes of a block are bound to, but for 0."""
    if not isinstance(s, Block):
        return {}
    bindings = (b for a, b in zip(s.axes, s.bindings, strict=True) if a.kind != "spatial")
    return dict.fromkeys(b for b in bindings if b != ZERO)


def _kind(s: Stmt) -> str:
    return "a block" if isinstance(s, (Block, Store)) else f"a {type(s).__name__.lower()}"


def _shown(e: Expr) -> str:
    if isinstance(e, (Op, Cast)):
        return f"{e.name if isinstance(e, Op) else 'a cast'} in {e.dtype}"
    return {Load: "a load", Const: f"{e.dtype}", Select: "a select"}.get(type(e), "an index")


# -- nests that intrinsics run -----------------------------------------------------------------------------------
def intrinsic_of(s: Stmt) -> str | None:
    """The name of the intrinsic that runs ``s``, if one does."""
    hint = find_hint(s.hints, Intrinsic) if isinstance(s, Loop) else None
    return None if hint is None else hint.name


def broken_intrinsics(func: Func) -> Iterator[tuple[str, str, str]]:
    """``(loop, intrinsic, reason)`` for each nest that is not what the intrinsic that runs it computes."""

    def visit(s: Stmt, ranges: Ranges, lanes: bool) -> Iterator[tuple[str, str, str]]:
        if isinstance(s, Loop):
            if (name := intrinsic_of(s)) is not None and (reason := _reason(s, name, ranges, lanes)) is not None:
                yield s.var, name, reason
            ranges, lanes = {**ranges, s.var: loop_range(s.extent)}, lanes or s.kind == "vectorized"
        for c in stmt_children(s):
            yield from visit(c, ranges, lanes)

    def _reason(s: Loop, name: str, ranges: Ranges, lanes: bool) -> str | None:
        intrinsic = find_intrinsic(func, name)
        if intrinsic is None:
            return f"there is no such intrinsic, only {', '.join(intrinsic_names(func))}"
        if s.kind != "opaque" or lanes:
            return "the loop must be opaque, with no vectorized loop around it"
        found = match_intrinsic(func, s, intrinsic, ranges)
        return found.reason if isinstance(found, Mismatch) else None

    return visit(func.body, {}, False)
