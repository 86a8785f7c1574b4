"""What schedule primitives are made of: the base class, look-ups that refuse, edits that share what is unchanged."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from tilewright.core.arith.bounds import Ranges, loop_range, simplify, upper_bound
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr
from tilewright.core.errors import ScheduleError
from tilewright.schedule.arguments import Unfit, plain_arguments
from tilewright.tensor_ir.analysis import scopes
from tilewright.tensor_ir.analysis.intrinsic_match import broken_intrinsics
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    Func,
    Guard,
    Loop,
    Seq,
    Stmt,
    Store,
    map_children,
    map_expr,
    seq,
    substitute_expr,
    with_body,
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Primitive:
    """One schedule step as a value: its fields are its arguments, its trace entry and its JSON.

    Fields are ``str``, ``int``, ``bool``, ``None`` or tuples of these; lists and numpy's integers become such, and
    what cannot raises ScheduleError at once. ``apply`` checks first and raises ScheduleError before anything is built.
    """

    name: ClassVar[str] = ""

    def __post_init__(self) -> None:
        try:
            for name, value in plain_arguments(self).items():
                object.__setattr__(self, name, value)
        except Unfit as e:
            raise refuse(self, str(e)) from None

    def apply(self, func: Func) -> Func:
        """``func`` transformed. Raises ScheduleError when the step is refused."""
        raise NotImplementedError

    def produces(self, func: Func, result: Func) -> tuple[str, ...]:
        """Names of the loops, blocks or buffers that this step made of ``func`` in ``result``, outermost first."""
        return ()


def refuse(primitive: Primitive, message: str) -> ScheduleError:
    """The error of a refused step: ``split(i): factor must be >= 1, got 0``. For ``raise refuse(self, ...)``."""
    fields = dataclasses.fields(primitive)
    subject = getattr(primitive, fields[0].name) if fields else ""
    shown = ", ".join(map(str, subject)) if isinstance(subject, tuple) else str(subject)
    return ScheduleError(f"{primitive.name}({shown}): {message}")


# -- look-ups in the name of a primitive -------------------------------------------------------------------------
def find_loop(func: Func, var: str, who: Primitive) -> Loop:
    """The loop named ``var``. Raises ScheduleError, in the name of ``who``, when there is none or it is sealed."""
    loop = _named(who, lambda: scopes.find_loop(func, var))
    require_open(scopes.loop_path(func, var), who, f"loop {var}")
    return loop


def find_nested_loop(func: Func, var: str, who: Primitive) -> tuple[Loop, list[Loop]]:
    """The loop named ``var`` and the loops around it, outermost first. Raises ScheduleError when there is none."""
    loop = find_loop(func, var, who)
    return loop, scopes.loops_in(scopes.loop_path(func, var))[:-1]


def find_block(func: Func, name: str, who: Primitive) -> Block:
    """The block named ``name``. Raises ScheduleError, in the name of ``who``, when there is none or it is sealed."""
    block = _named(who, lambda: scopes.find_block(func, name))
    require_open(scopes.block_path(func, name), who, f"block {name}")
    return block


def require_open(path: Iterable[Stmt], who: Primitive, subject: str) -> None:
    """Refuses where a statement of ``path`` is an opaque loop: ``subject``, at its end, is part of a unit."""
    for s in path:
        if isinstance(s, Loop) and s.kind == "opaque":
            raise refuse(who, f"{subject} is part of the opaque loop {s.var}")


def require_intrinsics(who: Primitive, func: Func, result: Func) -> None:
    """Refuses ``result`` if a nest that is run by an intrinsic in ``func`` is no longer what the intrinsic computes.

    For steps that change the accesses to a buffer, or its shape, everywhere.
    """
    if func is not result and (changed := next(broken_intrinsics(result), None)) is not None:
        raise refuse(who, f"{changed[0]} would no longer be what intrinsic {changed[1]} computes: {changed[2]}")


def find_buffer(func: Func, name: str, who: Primitive) -> Buffer:
    """The parameter or allocated buffer named ``name``. Raises ScheduleError, in the name of ``who``."""
    return _named(who, lambda: scopes.find_buffer(func, name))


def _named(who: Primitive, find: Callable[[], T]) -> T:
    try:
        return find()
    except ScheduleError as e:
        raise refuse(who, str(e)) from None


# -- edits -------------------------------------------------------------------------------------------------------
def replace_stmt(func: Func, old: Stmt, new: Stmt | None) -> Func:
    """``func`` with the statement object ``old`` (by identity) replaced; ``None`` removes it.

    Only the path to ``old`` is rebuilt; everything else is shared. A loop, guard or allocation left empty goes too.
    """
    body = replace_in(func.body, old, new)
    if body is None:
        body = Seq(())
    return func if body is func.body else dataclasses.replace(func, body=body)


def replace_in(root: Stmt, old: Stmt, new: Stmt | None) -> Stmt | None:
    """As :func:`replace_stmt`, below a statement; None when nothing is left."""
    if root is old:
        return new
    if isinstance(root, Seq):
        for i, c in enumerate(root.stmts):
            r = replace_in(c, old, new)
            if r is not c:
                rest = (*root.stmts[:i], *(() if r is None else (r,)), *root.stmts[i + 1 :])
                return seq(*rest) if rest else None
        return root
    if isinstance(root, (Loop, Alloc, Guard)):
        body = replace_in(root.body, old, new)
        return None if body is None else with_body(root, body)
    return root


def substitute_stmt(s: Stmt, env: Mapping[str, IntLike]) -> Stmt:
    """``s`` with free loop variables replaced in extents, bindings, conditions, stores and local shapes.

    The bodies of blocks mention only their own axes and dims, so they are not touched.
    """
    exprs = {k: as_expr(v) for k, v in env.items()}
    names = frozenset(exprs)

    def one(e: IntExpr) -> IntExpr:
        return e.substitute(exprs)

    def many(es: tuple[IntExpr, ...]) -> tuple[IntExpr, ...]:
        new = tuple(map(one, es))
        return es if all(a is b for a, b in zip(new, es, strict=True)) else new

    def visit(s: Stmt) -> Stmt:
        if isinstance(s, Block):
            bindings = many(s.bindings)
            return s if bindings is s.bindings else dataclasses.replace(s, bindings=bindings)
        if isinstance(s, Store):
            return Store(s.buffer, many(s.indices), substitute_expr(s.value, exprs))
        s = map_children(s, visit)
        if isinstance(s, Loop) and s.extent.free_vars() & names:
            return dataclasses.replace(s, extent=one(s.extent))
        if isinstance(s, Alloc):
            shape = many(s.buffer.shape)
            return s if shape is s.buffer.shape else Alloc(dataclasses.replace(s.buffer, shape=shape), s.body)
        if isinstance(s, Guard):
            return Guard(substitute_expr(s.condition, exprs), s.body)
        return s

    return visit(s)


def simplify_stmt(s: Stmt, ranges: Ranges) -> Stmt:
    """``s`` with extents, bindings, guards and stores simplified, given the ranges of the variables around it.

    Identity-preserving: what the ranges do not decide stays the same object. Extents stay ``>= 0`` where they were.
    """
    if isinstance(s, Loop):
        extent = with_bound(s, _simplified(s.extent, ranges), s.extent, ranges)
        body = simplify_stmt(s.body, {**ranges, s.var: loop_range(extent)})
        if extent is s.extent and body is s.body:
            return s
        return dataclasses.replace(s, extent=extent, body=body)
    if isinstance(s, Block):
        bindings = tuple(_simplified(b, ranges) for b in s.bindings)
        same = all(a is b for a, b in zip(bindings, s.bindings, strict=True))
        return s if same else dataclasses.replace(s, bindings=bindings)
    if isinstance(s, Store):
        indices = tuple(_simplified(i, ranges) for i in s.indices)
        return Store(s.buffer, indices, simplify_expr(s.value, ranges))
    if isinstance(s, Guard):
        return Guard(simplify_expr(s.condition, ranges), simplify_stmt(s.body, ranges))
    return map_children(s, lambda c: simplify_stmt(c, ranges))


def require_no_threads(who: Primitive, loop: Loop) -> None:
    """Refuses a loop with a parallel one inside: threads meet in each of its iterations, one after the other."""
    for s in scopes.parallel_loops_in(loop.body):
        raise refuse(who, f"loop {s.var} inside is parallel")


def with_bound(loop: Loop, new: IntExpr, old: IntExpr, ranges: Ranges) -> IntExpr:
    """``new``, or the equal ``old`` where ``loop`` needs a constant bound of its extent that ``new`` does not show."""
    needed = loop.kind in ("vectorized", "unrolled")
    return old if needed and upper_bound(new, ranges) is None else new


def simplify_expr(e: Expr, ranges: Ranges) -> Expr:
    """``e`` with its index expressions simplified."""
    return map_expr(e, lambda x: simplify_expr(x, ranges), lambda i: _simplified(i, ranges))


def _simplified(e: IntExpr, ranges: Ranges) -> IntExpr:
    if e.is_const:
        return e
    new = simplify(e, ranges)
    return e if new == e else new
