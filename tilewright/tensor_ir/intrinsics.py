"""The built-in tensor intrinsics: what each computes. Their machine code is in
:mod:`tilewright.codegen.emit.intrinsics`.

An intrinsic of one's own needs no entry here: :func:`with_intrinsics` lets a function bring it along, through traces,
texts, caches and worker processes.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.tensor_ir.ir import (
    Block,
    Cast,
    Const,
    Func,
    Load,
    Loop,
    Op,
    Select,
    Seq,
    Store,
    TensorIntrin,
    loads,
    walk,
    walk_expr,
)
from tilewright.tensor_ir.text import parse_func

_TRANSPOSE_8X8 = """
def transpose_8x8_f32(A: float32[8, 8], B: out(float32[8, 8])):
    for i in range(8):
        for j in range(8):
            B[i, j] = A[j, i]
"""

_OUTER_6X16 = """
def outer_6x16_f32(A: float32[6, 1], B: float32[16], C: out(float32[6, 16])):
    for i in range(6):
        for j in range(16):
            C[i, j] = add(C[i, j], mul(A[i, 0], B[j]))
"""

_DOT_8X4 = """
def dot_8x4_u8s8s32(A: uint8[4], B: int8[8, 4], C: out(int32[8])):
    for i in range(8):
        for k in range(4):
            C[i] = add(C[i], mul(cast(A[k], int32), cast(B[i, k], int32)))
"""

SIDE = 16
"""Rows of a matrix tile, and its words of 32 bits in a row."""

Form: TypeAlias = Literal["", "taps", "parts", "split", "split_taps"]


@dataclass(frozen=True, slots=True)
class TileProduct:
    """A product of words in matrix tiles: ``product`` is the scalar operation on words, ``sums`` the type of its sums;
    the result has ``rows`` and ``columns`` of tiles. ``form``: with ``taps`` steps have two dimensions, each with a
    stride of its own, so that operands can be read where they lie in an image; with ``parts`` A is a sum of several
    operands, each multiplied with the same B; those of ``split`` have a high and a low part of both, and
    leave out the product of two low ones."""

    product: str
    sums: str
    rows: int
    columns: int
    form: Form = ""

    @property
    def is_split(self) -> bool:
        return self.form.startswith("split")

    @property
    def has_taps(self) -> bool:
        return self.form.endswith("taps")

    @property
    def name(self) -> str:
        return f"tiles_{self.product}_{self.form}{'_' if self.form else ''}{self.rows}x{self.columns}"

    @property
    def planes(self) -> int:
        """Rows of words that a step has of each operand, one for each part."""
        return 2 if self.is_split else 1

    def describe(self) -> TensorIntrin:
        """``C[m, n]``, the sum over steps ``o``, and over taps or parts ``u``, of products of 16 words ``p``."""
        rows, columns = SIDE * self.rows, SIDE * self.columns
        outer = "taps" if self.has_taps else "parts" if self.form == "parts" else ""
        of_a, of_b = (f"{outer}, " if x else "" for x in (outer, self.has_taps))
        parts = ("", "l")[: self.planes]
        params = [
            *(f"{dim}: dim" for dim in (outer, "steps") if dim),
            *(f"A{part}: int32[{of_a}steps, {rows}, {SIDE}]" for part in parts),
            *(f"B{part}: int32[{of_b}steps, {SIDE}, {columns}]" for part in parts),
            f"C: out({self.sums}[{rows}, {columns}])",
        ]
        loops = [("i", rows), ("j", columns), *([("t", outer)] if outer else []), ("k", "steps"), ("q", SIDE)]
        axes = [f"m=spatial({rows}, i)", f"n=spatial({columns}, j)", *([f"u=reduce({outer}, t)"] if outer else [])]
        nest = [
            *(f"for {loop} in range({extent}):" for loop, extent in loops),
            f'with block("C", {", ".join(axes)}, o=reduce(steps, k), p=reduce({SIDE}, q)):',
        ]
        inside = "    " * (1 + len(nest))
        zero = "float32(0.0)" if self.sums == "float32" else "int32(0)"
        lines = [
            f"def {self.name}({', '.join(params)}):",
            *("    " * (1 + n) + line for n, line in enumerate(nest)),
            f"{inside}init({zero})",
            f"{inside}C[m, n] = add(C[m, n], {self._step('u, ' if of_a else '', 'u, ' if of_b else '')})",
        ]
        return TensorIntrin(parse_func("\n".join(lines)), resumes=True)

    def _step(self, at_a: str, at_b: str) -> str:
        """What a step adds to a sum, as text. ``at_a``, ``at_b``: the first index of both operands."""

        def times(a: str, b: str) -> str:
            return f"{self.product}({a}[{at_a}o, m, p], {b}[{at_b}o, p, n])"

        high = times("A", "B")
        return f"add(add({high}, {times('Al', 'B')}), {times('A', 'Bl')})" if self.is_split else high


_FORMS: tuple[tuple[str, str, int, Form], ...] = (
    ("dot2", "float32", 1, ""),
    ("dot2", "float32", 2, ""),
    ("dot2", "float32", 2, "taps"),
    ("dot4", "int32", 1, ""),
    ("dot4", "int32", 2, ""),
    ("dot4", "int32", 2, "taps"),
    ("dot2", "float32", 1, "parts"),
    ("dot2", "float32", 2, "parts"),
    ("dot2", "float32", 1, "split"),
    ("dot2", "float32", 2, "split"),
    ("dot2", "float32", 2, "split_taps"),
)

TILE_PRODUCTS: dict[str, TileProduct] = {
    p.name: p
    for product, sums, rows, form in _FORMS
    for columns in (1, 2)
    for p in (TileProduct(product, sums, rows, columns, form),)
}

TENSOR_INTRINSICS: dict[str, TensorIntrin] = {
    "transpose_8x8_f32": TensorIntrin(parse_func(_TRANSPOSE_8X8)),
    "outer_6x16_f32": TensorIntrin(parse_func(_OUTER_6X16)),
    "dot_8x4_u8s8s32": TensorIntrin(parse_func(_DOT_8X4), dense=("B",)),
    **{name: p.describe() for name, p in TILE_PRODUCTS.items()},
}


def with_intrinsics(func: Func, *intrinsics: TensorIntrin) -> Func:
    """``func`` with intrinsics of its own, for :class:`tilewright.schedule.schedule.Schedule` to use by name."""
    return dataclasses.replace(func, intrinsics=(*func.intrinsics, *intrinsics))


def find_intrinsic(func: Func, name: str) -> TensorIntrin | None:
    """The intrinsic called ``name``: one of the function's own, else a built-in one."""
    own = next((x for x in func.intrinsics if x.name == name), None)
    return own if own is not None else TENSOR_INTRINSICS.get(name)


def intrinsic_names(func: Func) -> tuple[str, ...]:
    """The names that opaque loops of ``func`` may use."""
    return tuple(sorted({*TENSOR_INTRINSICS, *(x.name for x in func.intrinsics)}))


def malformed(intrinsic: TensorIntrin) -> str | None:
    """Why a description is none that a nest can be compared with; None if it is.

    A description is one nest of loops around blocks or stores; extents are constants or dims of the description. Each
    index is 0 or one of the loops, no loop twice in one access; values are loads, constants and operations. The initial
    value of a reduction is a constant, and what it stores does not move along the reduction.
    """
    d = intrinsic.description
    if not isinstance(d.body, Loop):
        return "a description is one loop nest"
    shapes = {b.name: b.shape for b in d.params}
    if any(not b.shape or not all(_is_size(x, d) for x in b.shape) for b in d.params):
        return "its parameters have shapes of at least one dimension, of constants and dims"
    unknown = sorted(set(intrinsic.dense) - shapes.keys())
    if unknown:
        return f"dense parameter {unknown[0]} is none of its own"
    used: set[str] = set()
    extents = {s.var: s.extent for s in walk(d.body) if isinstance(s, Loop)}
    for s in walk(d.body):
        if isinstance(s, (Loop, Seq)):
            if isinstance(s, Loop) and not _is_size(s.extent, d):
                return f"loop {s.var} has the extent {s.extent}"
            continue
        if not isinstance(s, (Block, Store)):
            return f"it holds a {type(s).__name__.lower()}"
        if isinstance(s, Block) and s.init is not None and not _starts_plainly(s):
            return f"block {s.name} stores an initial value that is no constant, or moves with a reduction"
        env = {a.name: b for a, b in zip(s.axes, s.bindings, strict=True)} if isinstance(s, Block) else {}
        if not all(isinstance(e, (Load, Const, Cast, Op, Select)) for e in walk_expr(s.value)):
            return "an index is used as a value"
        for buffer, indices in [(s.buffer, s.indices), *((x.buffer, x.indices) for x in loads(s.value))]:
            used.add(buffer)
            bound = [i.substitute(env) for i in indices]
            names = [as_var(i) for i in bound if i != 0]
            if None in names or len(set(names)) != len(names):
                return f"an index of {buffer}[{', '.join(map(str, bound))}] is neither 0 nor a loop of its own"
            for i, extent in zip(bound, shapes[buffer], strict=True):
                if extents.get(as_var(i) or "", 1) != extent:
                    return f"{buffer}[{', '.join(map(str, bound))}] does not run over the parameter's shape"
    unused = sorted(shapes.keys() - used)
    if unused:
        return f"parameter {unused[0]} is not used"
    sizes = {as_var(x) for x in extents.values()}
    untold = [n for n in d.dims if n not in sizes]
    return f"dim {untold[0]} is the extent of no loop" if untold else None


def _is_size(extent: IntExpr, description: Func) -> bool:
    return extent.is_const or as_var(extent) in description.dims


def _starts_plainly(block: Block) -> bool:
    """True if a constant is stored at places that are the same in all steps of the reduction."""
    steps = {a.name for a in block.axes if a.kind != "spatial"}
    return isinstance(block.init, Const) and not any(i.free_vars() & steps for i in block.indices)
