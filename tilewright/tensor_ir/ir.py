"""The tensor IR: one fused operator as a tree of loops around blocks. Data only; nothing here transforms.

Grammar (in the form in which ``str()`` of a function prints it and :mod:`tilewright.tensor_ir.text` parses it)::

    Func   ::= name, dims (integer parameters), params (buffers: inputs then outputs), body
    Stmt   ::= Seq(Stmt...)                      in order
             | Loop(var, extent, kind, body)     var runs 0 .. extent-1; the extent may use outer vars and dims
             | Block(...)                        one store under named axes; the unit that primitives address
             | Alloc(buffer, body)               a buffer that lives for body; scope says where
             | Guard(condition, body)            body runs only where the condition holds
             | Store(buffer, indices, value)     only inside codegen-level forms and hand-written functions
    Expr   ::= Const | Load | Index | Cast | Op | Select
    index  ::= core.arith.expr.IntExpr over loop vars, block axes, dims, and Dyn atoms (values loaded from memory)

A :class:`Block` writes ``buffer[indices] = value`` once for each point of its axes; it is what the compute language
calls a stage. ``axes`` are the block's own
variables; ``bindings`` gives each axis as an expression of the surrounding loop variables, so that transforming loops
never touches the body. A reduction block has at least one ``reduce`` axis, its ``value`` loads the very element it
stores, and ``init`` (if not None) is stored first when every reduce axis is at 0; init None means that the element was
initialised before. Where a reduce axis is empty (extent 0 at run time) the init alone is stored, once for each point of
the other loops, in the place of the outermost loop that drives a reduce axis: no such loop may drive another kind of
axis as well (:mod:`tilewright.tensor_ir.empty_reductions`). An ``ordered`` axis must run in increasing order on one
thread (scans, scatters).

Loop kinds: ``serial``; ``parallel`` (iterations spread over threads; only serial loops stand around it);
``vectorized`` (constant upper bound of the extent; lanes run at once, those at or above the extent are masked off);
``unrolled`` (likewise, written out); ``opaque`` (as serial, and a unit with all that it holds: schedule steps work
around it, none reaches inside). Names of loops, buffers and blocks are unique in a function: they are the references
that traces use.

Hints say how a loop is to be run (:mod:`tilewright.tensor_ir.hints`). An opaque one with the hint
:class:`~tilewright.tensor_ir.hints.Intrinsic` is run by the machine code of the :class:`TensorIntrin` of that name:
one of :data:`tilewright.tensor_ir.intrinsics.TENSOR_INTRINSICS`, or one that the function brings along. The nest stays
where it is: it is what the code must compute, and what every analysis and the interpreter see.

Buffers are dense and row-major. Scopes: ``global`` (a parameter, or an intermediate that all threads see, placed in the
arena when the sizes are known), ``local`` (private to a thread and to the iteration it is allocated in). ``Alloc`` of a
global buffer stands only at the root of a function. In a function that is ready to be emitted the local ones are on the
``stack`` (where LLVM keeps them in registers if it can) or in a ``workspace`` of the thread.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields

from tilewright.core.console import coloured, console
from tilewright.core.errors import InternalError
from tilewright.tensor_ir.hints import WORDS, Hint, Prefetch
from tilewright.tensor_ir.nodes import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    Cast,
    Const,
    Dyn,
    Expr,
    Guard,
    Index,
    Load,
    Loop,
    LoopKind,
    Op,
    Scope,
    Select,
    Seq,
    Stmt,
    Storage,
    Store,
    element_text,
    expr_children,
    expr_free_vars,
    expr_indices,
    format_expr,
    loads,
    map_children,
    map_expr,
    seq,
    stmt_children,
    substitute_expr,
    walk,
    walk_expr,
    walk_index,
    with_body,
)  # fmt: skip

LOOP_WORDS: dict[LoopKind, str] = {
    "serial": "range", "parallel": "parallel", "vectorized": "vectorized", "unrolled": "unrolled",
    "opaque": "opaque",
}  # fmt: skip
"""What a loop of each kind ranges over, in text."""
SCOPE_WORDS: dict[Scope | Storage, str] = {
    "global": "shared", "local": "local", "stack": "stack", "workspace": "workspace",
}  # fmt: skip
"""How text says where a buffer is."""
_TAB = "    "


@dataclass(frozen=True, slots=True)
class MachineCode:
    """LLVM IR for an intrinsic: the instructions of a function that returns nothing, without head and final ``ret``.

    Its parameters are, for each parameter ``A`` of the description, ``ptr %A`` (the first element) and ``i64 %A_d`` for
    every dimension ``d`` but the last: elements from one index of that dimension to the next. Elements of the last
    dimension are neighbours. ``i64 %n`` for every dim ``n`` of the description follows. Every element is read before it
    is written. ``features``: what the target must have (``"avx2"``); ``declares``: the functions that it calls, and
    globals. ``setup``: instructions that each thread runs once before it calls the code for the first time in a kernel,
    ``teardown``: those behind the last call.
    """

    body: str
    features: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    setup: str = ""
    teardown: str = ""


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """Machine code for a small computation.

    ``description``: what it computes, one nest of loops, of constant extents or such as a dim of it tells; its name is
    the intrinsic's. ``dense``: parameters whose
    dimensions must all lie without gaps, not the last alone. ``code``: implementations; a target gets the first that it
    can run; empty for those of codegen's own table. ``resumes``: a nest may be some steps of its reduction only; the
    code then has a parameter ``i1 %first`` after all others, and starts from the initial value, or else from what is
    stored.
    """

    description: Func
    dense: tuple[str, ...] = ()
    code: tuple[MachineCode, ...] = ()
    resumes: bool = False

    @property
    def name(self) -> str:
        return self.description.name


@dataclass(frozen=True, slots=True)
class Func:
    """A function. ``params``: inputs, then outputs; ``outputs`` counts the outputs. ``dims``: names of the integer
    parameters that extents and shapes may use. ``partial``: outputs of which it writes a part, sorted. ``intrinsics``:
    those that its opaque loops may name besides the built-in ones."""

    name: str
    params: tuple[Buffer, ...]
    outputs: int
    dims: tuple[str, ...]
    body: Stmt
    partial: tuple[str, ...] = ()
    intrinsics: tuple[TensorIntrin, ...] = ()

    def __str__(self) -> str:
        """The text that :func:`tilewright.tensor_ir.text.parse_func` reads."""
        params = [f"{d}: dim" for d in self.dims]
        first_output = len(self.params) - self.outputs
        for i, b in enumerate(self.params):
            text = _buffer_type(b)
            if b.scope != "global":
                text = f"{SCOPE_WORDS[b.scope]}({text})"
            params.append(f"{b.name}: {text}" if i < first_output else f"{b.name}: out({text})")
        lines = [f"def {self.name}({', '.join(params)}):", *_stmt_lines(self.body, 1)]
        if self.partial:
            lines.insert(0, f"@attrs(parts={_quoted(', '.join(self.partial))})")
        lines[:0] = map(_intrinsic_text, self.intrinsics)
        return "\n".join(lines) + "\n"

    def print_loop_nest(self) -> None:
        """Print the loops and the blocks in them, without what they compute; in colours on a terminal."""
        console(sys.stdout).print(coloured("\n".join(_nest_lines(self.body, 0))), soft_wrap=True)


# -- text --------------------------------------------------------------------------------------------------------
def print_stmt(stmt: Stmt) -> str:
    """The text of a statement alone (for messages)."""
    return "\n".join(_stmt_lines(stmt, 0)) + "\n"


def _intrinsic_text(x: TensorIntrin) -> str:
    code = tuple(
        (c.body, c.features, c.declares, *((c.setup, c.teardown) if c.setup or c.teardown else ())) for c in x.code
    )
    resumes = ", resumes=True" if x.resumes else ""
    return f"@intrinsic({_quoted(str(x.description))}, dense={x.dense!r}, code={code!r}{resumes})"


def _hint_text(h: Hint) -> str:
    word = next(w for w, kind in WORDS.items() if isinstance(h, kind))
    if isinstance(h, Prefetch):
        return f"{word}={_quoted(str(h))}"
    values = [_quoted(v) if isinstance(v, str) else str(v) for v in (getattr(h, f.name) for f in fields(h))]
    return f"{word}={', '.join(values) or True}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r") + '"'


def _buffer_type(b: Buffer) -> str:
    shape = ", ".join(map(str, b.shape)) or "()"
    return f"{b.dtype}[{shape}]" + (f".align({b.align})" if b.align != 64 else "")


def _stmt_lines(s: Stmt, depth: int, last: bool = True) -> Iterator[str]:
    """``last``: nothing follows in the same suite."""
    tab = _TAB * depth
    match s:
        case Seq(stmts):
            if not stmts:
                yield f"{tab}pass"
            for i, c in enumerate(stmts):
                yield from _stmt_lines(c, depth, last and i == len(stmts) - 1)
        case Loop(name, extent, body, kind, hints):
            notes = "".join(f", {_hint_text(h)}" for h in hints)
            yield f"{tab}for {name} in {LOOP_WORDS[kind]}({extent}{notes}):"
            yield from _stmt_lines(body, depth + 1)
        case Guard(condition, body):
            yield f"{tab}if {format_expr(condition)}:"
            yield from _stmt_lines(body, depth + 1)
        case Alloc(buffer, body):
            memory = f"{SCOPE_WORDS[buffer.scope]}({_buffer_type(buffer)})"
            if last:
                yield f"{tab}{buffer.name} = {memory}"
                yield from _stmt_lines(body, depth)
            else:
                yield f"{tab}with {memory} as {buffer.name}:"
                yield from _stmt_lines(body, depth + 1)
        case Store(buffer, indices, value):
            yield f"{tab}{element_text(buffer, indices)} = {format_expr(value)}"
        case Block(name, axes, bindings, buffer, indices, value, init):
            points = [f"{a.name}={a.kind}({a.extent}, {b})" for a, b in zip(axes, bindings, strict=True)]
            yield f"{tab}with block({', '.join([_quoted(name), *points])}):"
            if init is not None:
                yield f"{tab}{_TAB}init({format_expr(init)})"
            yield f"{tab}{_TAB}{element_text(buffer, indices)} = {format_expr(value)}"
        case _:
            raise InternalError(f"text: unknown statement {s!r}")


def _nest_lines(s: Stmt, depth: int) -> Iterator[str]:
    """The loops and the blocks in them."""
    match s:
        case Loop(name, extent, body, kind):
            yield f"{_TAB * depth}for {name} in {LOOP_WORDS[kind]}({extent}):"
            yield from _nest_lines(body, depth + 1)
        case Block(name, buffer=buffer):
            yield f"{_TAB * depth}{name} -> {buffer}"
        case _:
            for c in stmt_children(s):
                yield from _nest_lines(c, depth)


__all__ = [
    "LOOP_WORDS", "SCOPE_WORDS", "Alloc", "Axis", "AxisKind", "Block", "Buffer", "Cast", "Const", "Dyn", "Expr",
    "Func", "Guard", "Index", "Load", "Loop", "LoopKind", "MachineCode", "Op", "Scope", "Select", "Seq", "Stmt",
    "Storage", "Store", "TensorIntrin", "element_text", "expr_children", "expr_free_vars", "expr_indices",
    "format_expr", "loads", "map_children", "map_expr", "print_stmt", "seq", "stmt_children", "substitute_expr",
    "walk", "walk_expr", "walk_index", "with_body",
]  # fmt: skip
