"""Tensor intrinsics as machine code: the call of one in the place of its nest, and the bodies of the built-in ones.

Each becomes a function of its own that LLVM inlines: ``void @intrinsic.NAME(ptr %A, i64 %A_0, ...)``, as
:class:`tilewright.tensor_ir.ir.MachineCode` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.codegen.emit.context import Context
from tilewright.codegen.emit.matrix_tiles import stepwise_code, tile_product_code
from tilewright.codegen.llvm.types import memory_type
from tilewright.core.arith.bounds import loop_range, simplify
from tilewright.core.arith.expr import ZERO, IntExpr
from tilewright.core.errors import InternalError, TargetError
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.intrinsic_match import Match, Mismatch, intrinsic_of, match_intrinsic
from tilewright.tensor_ir.analysis.prefetching import ahead_of_nest
from tilewright.tensor_ir.hints import Prefetch, Stream, find_hint
from tilewright.tensor_ir.intrinsics import SIDE, TILE_PRODUCTS, find_intrinsic
from tilewright.tensor_ir.ir import Func, Loop, MachineCode, Stmt, TensorIntrin, walk

CountedLoops: TypeAlias = Callable[[str, str, "int | str", IntExpr, Callable[[], None]], None]
"""Emits a loop: of a variable, from and to an operand, of an extent, around what the last argument emits."""

_NESTS = 8
"""So many nests share the lines of a panel, where their number is not known: fewer leave some of it to be missed."""


@dataclass(frozen=True, slots=True)
class _Call:
    """``operands``: of each parameter, its first element and the distances of others. ``dims``: the values of the
    description's. ``lines``: of cache that a step fetches, from ``ahead`` on; ``streamed``: the operand that is."""

    intrinsic: TensorIntrin
    operands: dict[str, list[str]]
    dims: dict[str, IntExpr]
    before: tuple[IntExpr, ...]
    lines: int
    ahead: str
    streamed: str

    @property
    def symbol(self) -> str:
        symbol = f"intrinsic.{self.intrinsic.name}" + (f".ahead{self.lines}" if self.lines else "")
        return symbol + (f".stream{self.streamed}" if self.streamed else "")

    def params(self, names: Sequence[str], integers: Sequence[str]) -> list[str]:
        """The parameters of a function that takes these parameters of the description, and these integers."""
        params: list[str] = []
        for b in self.intrinsic.description.params:
            if b.name in names:
                params += [f"ptr %{b.name}", *(f"i64 %{b.name}_{d}" for d in range(len(b.shape) - 1))]
        return [*params, *(f"i64 %{n}" for n in integers)]

    def arguments(self, names: Sequence[str], integers: Sequence[str]) -> list[str]:
        """What is passed for :meth:`params`."""
        return [*(x for n in names for x in self.operands[n]), *(f"i64 {n}" for n in integers)]


def call_intrinsic(ctx: Context, func: Func, nest: Loop) -> None:
    """Emit the call of the intrinsic that runs ``nest``. Raises TargetError if the target can run none of its
    implementations."""
    c = _resolved(ctx, func, nest)
    names, fetches = [*c.operands], ["ahead"] if c.lines else []
    params = c.params(names, [*c.intrinsic.description.dims, *fetches])
    arguments = c.arguments(names, [*_values(ctx, c), *([c.ahead] if c.lines else [])])
    if c.intrinsic.resumes:
        params.append("i1 %first")
        arguments.append(f"i1 {_is_first(ctx, c.before)}")
    if c.symbol not in ctx.code.module.helpers:
        code = implementation(c.intrinsic, ctx.code.module.target)
        if c.lines or c.streamed:
            code = tile_product_code(TILE_PRODUCTS[c.intrinsic.name], c.lines, c.streamed)
        _define(ctx, c.symbol, params, code.body, code.declares)
    ctx.code.line(f"call void @{c.symbol}({', '.join(arguments)})")


def call_stepwise(ctx: Context, func: Func, nest: Loop, counted: CountedLoops, between: Callable[[], None]) -> None:
    """Emit the products in matrix tiles of ``nest`` step by step, each followed by what ``between`` emits. ``counted``:
    emits a loop."""
    c = _resolved(ctx, func, nest)
    *operands, sums = c.operands
    begin, step, end = (f"{c.symbol}.{part}" for part in ("begin", "step", "end"))
    if step not in ctx.code.module.helpers:
        code = stepwise_code(TILE_PRODUCTS[c.intrinsic.name], c.lines, c.streamed)
        counters = [*("t", "k")[-len(c.dims) :], *(["ahead"] if c.lines else [])]
        _define(ctx, begin, [*c.params([sums], []), "i1 %first"], code.begin, code.declares)
        _define(ctx, step, c.params(operands, counters), code.step, code.declares)
        _define(ctx, end, c.params([sums], []), code.end, code.declares)
    first = f"i1 {_is_first(ctx, c.before)}"
    ctx.code.line(f"call void @{begin}({', '.join([*c.arguments([sums], []), first])})")

    def steps(left: Sequence[str]) -> None:
        if left:
            extent = simplify(c.dims[left[0]], ctx.indexer.ranges)
            counted(f"{nest.var}.{left[0]}", "0", ctx.indexer.value(extent), extent, lambda: steps(left[1:]))
            return
        at = [str(ctx.indexer.env[f"{nest.var}.{n}"]) for n in c.dims]
        arguments = c.arguments(operands, [*at, *([c.ahead] if c.lines else [])])
        ctx.code.line(f"call void @{step}({', '.join(arguments)})")
        between()

    steps([*c.dims])
    ctx.code.line(f"call void @{end}({', '.join(c.arguments([sums], []))})")


def _values(ctx: Context, c: _Call) -> list[str]:
    """Of the dims."""
    return [ctx.indexer.operand(simplify(c.dims[n], ctx.indexer.ranges)) for n in c.intrinsic.description.dims]


def _resolved(ctx: Context, func: Func, nest: Loop) -> _Call:
    """What the intrinsic that runs ``nest`` is called with."""
    intrinsic = find_intrinsic(func, intrinsic_of(nest) or "")
    if intrinsic is None:
        raise InternalError(f"codegen: loop {nest.var} names an unknown intrinsic")
    for loop in walk(nest):
        if isinstance(loop, Loop):
            ctx.indexer.ranges[loop.var] = loop_range(loop.extent)
    found = match_intrinsic(func, nest, intrinsic, ctx.indexer.ranges, ctx.flattener.offset)
    if isinstance(found, Mismatch):
        raise InternalError(f"codegen: loop {nest.var} is not {intrinsic.name}: {found.reason}")
    ahead = _fetched_ahead(ctx, func, nest, intrinsic)
    operands: dict[str, list[str]] = {}
    for b in intrinsic.description.params:
        region = found.regions[b.name]
        info = ctx.buffers[region.buffer]
        first = ctx.indexer.pointer(info.pointer, memory_type(info.dtype), ctx.indexer.linear(region.start))
        operands[b.name] = [f"ptr {first}", *(f"i64 {ctx.indexer.operand(n)}" for n in region.strides[:-1])]
    lines, at = (0, "") if ahead is None else (ahead[0], ctx.indexer.operand(ahead[1]))
    dims = {n: found.dims[n] for n in intrinsic.description.dims}
    return _Call(intrinsic, operands, dims, found.before, lines, at, _streamed(nest, intrinsic, found))


def _is_first(ctx: Context, before: Sequence[IntExpr]) -> str:
    """Whether all of ``before``, none of which is negative, are 0."""
    if not before:
        return "true"
    steps = ctx.indexer.operand(simplify(sum(before, ZERO), ctx.indexer.ranges))
    return ctx.code.emit("i1", 0, f"icmp eq i64 {steps}, 0").text


def _fetched_ahead(ctx: Context, func: Func, nest: Loop, intrinsic: TensorIntrin) -> tuple[int, IntExpr] | None:
    """How many lines each step of a product in matrix tiles fetches of the next panel, and how many words behind what
    it reads itself they begin; None if it has no such hint. Nests that read the same panel share its lines."""
    hint, product = find_hint(nest.hints, Prefetch), TILE_PRODUCTS.get(intrinsic.name)
    found = None if hint is None or product is None else ahead_of_nest(func, nest, hint.buffers[0])
    if found is None or product is None:
        return None
    step, which, nests = found
    lines = -(-SIDE * product.columns * product.planes // (nests or _NESTS))
    return lines, simplify(step + which * (lines * SIDE), ctx.indexer.ranges)


def _streamed(nest: Loop, intrinsic: TensorIntrin, found: Match) -> str:
    """The operand of a product in matrix tiles whose buffer the nest's hint says to stream; empty if there is none."""
    hint = find_hint(nest.hints, Stream)
    if hint is None or intrinsic.name not in TILE_PRODUCTS:
        return ""
    return next((x for x in "AB" if found.regions[x].buffer == hint.buffer), "")


def set_up(ctx: Context, func: Func, nests: Sequence[Stmt]) -> tuple[str, ...]:
    """Emit what the intrinsics in ``nests`` want to run before they do; what they want to run in the end, for the
    caller to emit. Raises TargetError if two of them want different things."""
    module = ctx.code.module
    names = dict.fromkeys(name for s in nests for x in walk(s) if (name := intrinsic_of(x)) is not None)
    wanted: dict[tuple[str, str], str] = {}
    for name in names:
        intrinsic = find_intrinsic(func, name)
        code = None if intrinsic is None else implementation(intrinsic, module.target)
        if code is None or not (code.setup or code.teardown):
            continue
        for line in code.declares:
            module.declare_text(line)
        wanted.setdefault((code.setup, code.teardown), name)
    if len(wanted) > 1:
        raise TargetError(f"{func.name}: intrinsics {' and '.join(wanted.values())} want different states of the CPU")
    for setup, teardown in wanted:
        for line in setup.strip().splitlines():
            ctx.code.line(line.strip())
        return tuple(line.strip() for line in teardown.strip().splitlines())
    return ()


def _define(ctx: Context, symbol: str, params: Sequence[str], body: str, declares: Sequence[str]) -> None:
    """Give the module the function ``symbol``, which LLVM inlines."""
    module = ctx.code.module
    for line in declares:
        module.declare_text(line)
    head = f"define internal void @{symbol}({', '.join(params)}) alwaysinline nounwind"
    module.helpers[symbol] = f"{head} {{\n{body.strip()}\n  ret void\n}}"


def implementation(intrinsic: TensorIntrin, target: Target) -> MachineCode:
    """The first implementation that ``target`` can run. Raises TargetError if there is none."""
    codes = intrinsic.code or IMPLEMENTATIONS.get(intrinsic.name, ())
    have = target.enabled
    for code in codes:
        if have.issuperset(code.features):
            return code
    wanted = " or ".join("+".join(c.features) for c in codes) or "an implementation"
    raise TargetError(f"intrinsic {intrinsic.name}: expected a target with {wanted}, got {target.cpu}")


# -- bodies ----------------------------------------------------------------------------------------------------------
class _Body:
    """Lines of LLVM IR with numbered results."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def let(self, text: str) -> str:
        name = f"%x{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def do(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def element(self, base: str, scalar: str, row: int, stride: str, column: int) -> str:
        """The address of ``base[row, column]``."""
        if row:
            offset = self.let(f"mul nsw i64 {stride}, {row}")
            base = self.let(f"getelementptr {scalar}, ptr {base}, i64 {offset}")
        return self.let(f"getelementptr {scalar}, ptr {base}, i64 {column}") if column else base

    def shuffle(self, kind: str, a: str, b: str, lanes: list[int]) -> str:
        picks = ", ".join(f"i32 {n}" for n in lanes)
        return self.let(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{picks}>")

    def text(self) -> str:
        return "\n".join(self.lines)


def _transpose_8x8() -> str:
    """Rows ``r`` and ``r + 4`` share a register, loaded in halves; then 4x4 transposes in each half."""
    f = _Body()
    half, full = "<4 x float>", "<8 x float>"
    result: list[str] = []
    for column in (0, 4):
        rows: list[str] = []
        for r in range(4):
            places = [f.element("%A", "float", row, "%A_0", column) for row in (r, r + 4)]
            low, high = (f.let(f"load {half}, ptr {p}, align 4") for p in places)
            rows.append(f.shuffle(half, low, high, list(range(8))))
        pairs = [
            f.shuffle(full, rows[r], rows[r + 1], lanes)
            for r in (0, 2)
            for lanes in ([0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15])
        ]
        for low, high in ((pairs[0], pairs[2]), (pairs[1], pairs[3])):
            result.append(f.shuffle(full, low, high, [0, 1, 8, 9, 4, 5, 12, 13]))
            result.append(f.shuffle(full, low, high, [2, 3, 10, 11, 6, 7, 14, 15]))
    for row, value in enumerate(result):
        f.do(f"store {full} {value}, ptr {f.element('%B', 'float', row, '%B_0', 0)}, align 4")
    return f.text()


def _outer_6x16() -> str:
    """Two vectors of B times a broadcast element of A, six times."""
    f = _Body()
    full = "<8 x float>"
    b = [f.let(f"load {full}, ptr {f.element('%B', 'float', 0, '0', column)}, align 4") for column in (0, 8)]
    for row in range(6):
        one = f.let(f"load float, ptr {f.element('%A', 'float', row, '%A_0', 0)}, align 4")
        first = f.let(f"insertelement {full} poison, float {one}, i64 0")
        a = f.let(f"shufflevector {full} {first}, {full} poison, <8 x i32> zeroinitializer")
        for n, column in enumerate((0, 8)):
            place = f.element("%C", "float", row, "%C_0", column)
            old = f.let(f"load {full}, ptr {place}, align 4")
            new = f.let(f"call {full} @llvm.fmuladd.v8f32({full} {a}, {full} {b[n]}, {full} {old})")
            f.do(f"store {full} {new}, ptr {place}, align 4")
    return f.text()


def _dot_vnni() -> str:
    """One instruction for 32 products."""
    f = _Body()
    four = f.let("load i32, ptr %A, align 1")
    first = f.let(f"insertelement <8 x i32> poison, i32 {four}, i64 0")
    a = f.let(f"shufflevector <8 x i32> {first}, <8 x i32> poison, <8 x i32> zeroinitializer")
    b = f.let("load <8 x i32>, ptr %B, align 1")
    old = f.let("load <8 x i32>, ptr %C, align 4")
    new = f.let(f"call <8 x i32> @{_VPDPBUSD}(<8 x i32> {old}, <8 x i32> {a}, <8 x i32> {b})")
    f.do(f"store <8 x i32> {new}, ptr %C, align 4")
    return f.text()


def _dot_widened() -> str:
    """Products in 16 bits would not all fit (255 * -128 * 2); operands widened to 16 bits and products to 32 do."""
    f = _Body()
    four = f.let("load <4 x i8>, ptr %A, align 1")
    words = f.let(f"zext <4 x i8> {four} to <4 x i16>")
    a = f.shuffle("<4 x i16>", words, "poison", [0, 1, 2, 3] * 4)
    sums: list[str] = []
    for start in (0, 16):
        bytes_ = f.let(f"load <16 x i8>, ptr {f.element('%B', 'i8', 0, '0', start)}, align 1")
        b = f.let(f"sext <16 x i8> {bytes_} to <16 x i16>")
        sums.append(f.let(f"call <8 x i32> @{_PMADDWD}(<16 x i16> {a}, <16 x i16> {b})"))
    even, odd = (f.shuffle("<8 x i32>", sums[0], sums[1], list(range(first, 16, 2))) for first in (0, 1))
    added = f.let(f"add <8 x i32> {even}, {odd}")
    old = f.let("load <8 x i32>, ptr %C, align 4")
    new = f.let(f"add <8 x i32> {old}, {added}")
    f.do(f"store <8 x i32> {new}, ptr %C, align 4")
    return f.text()


_VPDPBUSD = "llvm.x86.avx512.vpdpbusd.256"
_PMADDWD = "llvm.x86.avx2.pmadd.wd"
_DECLARE_VNNI = f"declare <8 x i32> @{_VPDPBUSD}(<8 x i32>, <8 x i32>, <8 x i32>)"

IMPLEMENTATIONS: dict[str, tuple[MachineCode, ...]] = {
    "transpose_8x8_f32": (MachineCode(_transpose_8x8()),),
    "outer_6x16_f32": (
        MachineCode(
            _outer_6x16(), declares=("declare <8 x float> @llvm.fmuladd.v8f32(<8 x float>, <8 x float>, <8 x float>)",)
        ),
    ),
    "dot_8x4_u8s8s32": (
        MachineCode(_dot_vnni(), ("avxvnni",), (_DECLARE_VNNI,)),
        MachineCode(_dot_vnni(), ("avx512vnni", "avx512vl"), (_DECLARE_VNNI,)),
        MachineCode(_dot_widened(), ("avx2",), (f"declare <8 x i32> @{_PMADDWD}(<16 x i16>, <16 x i16>)",)),
    ),
    **{name: (tile_product_code(p),) for name, p in TILE_PRODUCTS.items()},
}
"""The built-in intrinsics' code, best first; a test compares its names with ``TENSOR_INTRINSICS``."""
