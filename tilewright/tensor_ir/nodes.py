"""What functions are made of: values and statements, and walks over them. The grammar, which says what each of them is,
is in :mod:`tilewright.tensor_ir.ir`, from where all of this is imported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tilewright.core.arith.expr import Atom, IntExpr, IntLike, of_atom
from tilewright.core.dtypes import DType
from tilewright.core.memo import by_identity
from tilewright.tensor_ir.hints import Hint

LoopKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unrolled", "opaque"]
AxisKind: TypeAlias = Literal["spatial", "reduce", "ordered"]
Scope: TypeAlias = Literal["global", "local"]
Storage: TypeAlias = Literal["stack", "workspace"]
"""Where a local buffer lies once code generation has decided it."""


# -- values ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Const:
    """A literal of element type ``dtype``. Booleans are True/False; floats may be inf or nan."""

    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class Load:
    """``buffer[indices]``."""

    buffer: str
    indices: tuple[IntExpr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Index:
    """An integer expression used as a value (iota, bounds tests)."""

    expr: IntExpr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Cast:
    """``value`` converted as ONNX Cast does (float to int truncates; to bool tests for non-zero)."""

    value: Expr
    dtype: DType


@dataclass(frozen=True, slots=True)
class Op:
    """A scalar operation from :data:`tilewright.tensor_ir.scalar_ops.SCALAR_OPS`, applied to ``args``."""

    name: str
    args: tuple[Expr, ...]
    dtype: DType


@dataclass(frozen=True, slots=True)
class Select:
    """``then`` where ``condition`` holds, else ``otherwise``. The branch not taken is never loaded from memory."""

    condition: Expr
    then: Expr
    otherwise: Expr

    @property
    def dtype(self) -> DType:
        return self.then.dtype


Expr: TypeAlias = Const | Load | Index | Cast | Op | Select


class Dyn(Atom):
    """An integer value read from memory, used inside an index (``A[idx[i], j]``)."""

    __slots__ = ("value",)

    def __init__(self, value: Expr) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dyn) and other.value == self.value

    def __hash__(self) -> int:
        return hash(("dyn", self.value))

    def __str__(self) -> str:
        text = format_expr(self.value)  # `min` and `max` are index functions too: mark those that compute with memory
        return f"value({text})" if isinstance(self.value, Op) and self.value.name in ("min", "max") else text

    def free_vars(self) -> frozenset[str]:
        return expr_free_vars(self.value)

    def substitute(self, env: Mapping[str, IntLike]) -> IntExpr:
        return of_atom(Dyn(substitute_expr(self.value, env)))

    def evaluate(self, env: Mapping[str, int]) -> int:
        raise TypeError(f"{self} needs memory; use tensor_ir.interpreter")


# -- statements --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Buffer:
    """A dense row-major array. ``align``: bytes its address is a multiple of (arena and constants: 64)."""

    name: str
    dtype: DType
    shape: tuple[IntExpr, ...]
    scope: Scope | Storage = "global"
    align: int = 64


@dataclass(frozen=True, slots=True)
class Axis:
    """A variable of a block that runs over 0 .. extent-1."""

    name: str
    extent: IntExpr
    kind: AxisKind = "spatial"


@dataclass(frozen=True, slots=True)
class Block:
    """``buffer[indices] = value`` over ``axes``; see :mod:`tilewright.tensor_ir.ir`."""

    name: str
    axes: tuple[Axis, ...]
    bindings: tuple[IntExpr, ...]
    buffer: str
    indices: tuple[IntExpr, ...]
    value: Expr
    init: Expr | None = None


@dataclass(frozen=True, slots=True)
class Store:
    buffer: str
    indices: tuple[IntExpr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Loop:
    var: str
    extent: IntExpr
    body: Stmt
    kind: LoopKind = "serial"
    hints: tuple[Hint, ...] = ()


@dataclass(frozen=True, slots=True)
class Seq:
    """Statements in order. Never nested directly, never of length 1 (use :func:`seq`)."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Alloc:
    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True)
class Guard:
    condition: Expr
    body: Stmt


Stmt: TypeAlias = Seq | Loop | Block | Alloc | Guard | Store


# -- building and walking ----------------------------------------------------------------------------------------
def seq(*stmts: Stmt) -> Stmt:
    """``stmts`` in order, flattened; the statement itself if there is one."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def stmt_children(s: Stmt) -> tuple[Stmt, ...]:
    """Direct sub-statements."""
    if isinstance(s, Seq):
        return s.stmts
    if isinstance(s, (Loop, Alloc, Guard)):
        return (s.body,)
    return ()


def walk(s: Stmt) -> Iterator[Stmt]:
    """``s`` and every statement below it, outermost first, in program order."""
    todo = [s]
    while todo:
        s = todo.pop()
        yield s
        if isinstance(s, (Loop, Alloc, Guard)):
            todo.append(s.body)
        elif isinstance(s, Seq):
            todo.extend(reversed(s.stmts))


def map_children(s: Stmt, f: Callable[[Stmt], Stmt]) -> Stmt:
    """``s`` with ``f`` applied to its direct sub-statements; the same object where nothing changed."""
    if isinstance(s, Seq):
        new = tuple(f(c) for c in s.stmts)
        return s if all(a is b for a, b in zip(new, s.stmts, strict=True)) else seq(*new)
    if isinstance(s, (Loop, Alloc, Guard)):
        return with_body(s, f(s.body))
    return s


def with_body(s: Loop | Alloc | Guard, body: Stmt) -> Stmt:
    """``s`` around another statement; the same object around the same one."""
    if body is s.body:
        return s
    if isinstance(s, Loop):
        return Loop(s.var, s.extent, body, s.kind, s.hints)
    return Alloc(s.buffer, body) if isinstance(s, Alloc) else Guard(s.condition, body)


def expr_children(e: Expr) -> tuple[Expr, ...]:
    """Direct sub-values (not those inside indices; see :func:`expr_indices`)."""
    if isinstance(e, Cast):
        return (e.value,)
    if isinstance(e, Op):
        return e.args
    if isinstance(e, Select):
        return (e.condition, e.then, e.otherwise)
    return ()


def expr_indices(e: Expr) -> tuple[IntExpr, ...]:
    """Index expressions that stand directly in ``e``."""
    if isinstance(e, Load):
        return e.indices
    return (e.expr,) if isinstance(e, Index) else ()


def map_expr(e: Expr, on_expr: Callable[[Expr], Expr], on_index: Callable[[IntExpr], IntExpr]) -> Expr:
    """``e`` with ``on_expr`` applied to direct sub-values and ``on_index`` to direct index expressions."""
    if isinstance(e, Load):
        return Load(e.buffer, tuple(map(on_index, e.indices)), e.dtype)
    if isinstance(e, Index):
        return Index(on_index(e.expr), e.dtype)
    if isinstance(e, Cast):
        return Cast(on_expr(e.value), e.dtype)
    if isinstance(e, Op):
        return Op(e.name, tuple(map(on_expr, e.args)), e.dtype)
    if isinstance(e, Select):
        return Select(on_expr(e.condition), on_expr(e.then), on_expr(e.otherwise))
    return e


def substitute_expr(e: Expr, env: Mapping[str, IntLike]) -> Expr:
    """``e`` with integer variables replaced, inside indices too."""
    return map_expr(e, lambda x: substitute_expr(x, env), lambda i: i.substitute(env))


def expr_free_vars(e: Expr) -> frozenset[str]:
    """Names of the integer variables in ``e``."""
    out: frozenset[str] = frozenset()
    for i in expr_indices(e):
        out |= i.free_vars()
    for c in expr_children(e):
        out |= expr_free_vars(c)
    return out


def walk_expr(e: Expr) -> Iterator[Expr]:
    """``e`` and every value below it, including those inside indices."""
    todo: list[Expr] = [e]
    while todo:
        e = todo.pop()
        yield e
        if isinstance(e, Op):
            todo.extend(reversed(e.args))
        elif isinstance(e, Select):
            todo.extend((e.otherwise, e.then, e.condition))
        elif isinstance(e, Cast):
            todo.append(e.value)
        else:
            for i in expr_indices(e):
                yield from walk_index(i)


def walk_index(i: IntExpr) -> Iterator[Expr]:
    """Every value read by an index expression."""
    return iter(()) if i.is_plain else _walk_index(i)


def _walk_index(i: IntExpr) -> Iterator[Expr]:
    for a in i.atoms():
        if isinstance(a, Dyn):
            yield from walk_expr(a.value)
        for c in a.children():
            yield from walk_index(c)


@by_identity(20_000)
def loads(e: Expr) -> tuple[Load, ...]:
    """Every load in ``e``, including those inside indices."""
    return tuple(x for x in walk_expr(e) if isinstance(x, Load))


def format_expr(e: Expr) -> str:
    """The text of a value: ``add(A[i, k], float32(1.0))``."""
    if isinstance(e, Const):
        return f"{e.dtype}({_float_text(e.value) if isinstance(e.value, float) else repr(e.value)})"
    if isinstance(e, Load):
        return element_text(e.buffer, e.indices)
    if isinstance(e, Index):
        return f"index({e.expr}, {e.dtype})"
    if isinstance(e, Cast):
        return f"cast({format_expr(e.value)}, {e.dtype})"
    if isinstance(e, Select):
        return f"select({format_expr(e.condition)}, {format_expr(e.then)}, {format_expr(e.otherwise)})"
    return f"{e.name}({', '.join(map(format_expr, e.args))})"


def _float_text(x: float) -> str:
    if x != x:
        return "nan"
    return {float("inf"): "inf", float("-inf"): "-inf"}.get(x, repr(x))


def element_text(buffer: str, indices: tuple[IntExpr, ...]) -> str:
    """``A[i, k]``."""
    return f"{buffer}[{', '.join(map(str, indices)) or '()'}]"
