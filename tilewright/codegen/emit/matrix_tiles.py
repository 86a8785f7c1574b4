"""Products in the matrix tiles of x86 (AMX): 8 registers of 16 rows of 64 bytes each.

Of a result of R by C tiles, R and C at most 2, each sum has a register. A step loads R tiles of A and C tiles of B, and
multiplies each of A with each of B. Instructions name registers by numbers that are fixed here, so LLVM has nothing to
allocate. All registers are configured as whole tiles once for each thread in a kernel, and given back in the end.
An operand that is streamed is loaded by TILELOADDT1, which leaves what else lies in the first-level cache there.
Intel, Architectures Software Developer's Manual, volume 2: LDTILECFG, TILELOADD, TDPBF16PS, TDPBUSD.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.tensor_ir.intrinsics import SIDE, TileProduct
from tilewright.tensor_ir.ir import MachineCode

CONFIGURE, RELEASE, ZERO, LOAD, STREAM, STORE = (
    f"llvm.x86.{name}"
    for name in ("ldtilecfg", "tilerelease", "tilezero", "tileloadd64", "tileloaddt164", "tilestored64")
)
PRODUCTS = {"dot2": ("llvm.x86.tdpbf16ps", "amx-bf16"), "dot4": ("llvm.x86.tdpbusd", "amx-int8")}
"""The instruction of a scalar operation on words, and the feature that it takes."""

_PREFETCH = "llvm.prefetch.p0"
_A, _B = 4, 6
"""The first registers of the operands; the sums have those from 0 on."""


def configuration() -> bytes:
    """What ``ldtilecfg`` reads: palette 1, and of all 8 registers the bytes in a row and the rows."""
    columns = (4 * SIDE).to_bytes(2, "little") * 8
    return bytes([1, *[0] * 15]) + columns.ljust(32, b"\0") + bytes([SIDE] * 8).ljust(16, b"\0")


_CONFIGURATION = "matrix_tiles"
_BYTES = "".join(f"\\{b:02x}" for b in configuration())
_GLOBAL = f'@{_CONFIGURATION} = private unnamed_addr constant [64 x i8] c"{_BYTES}", align 64'


_END_TAPS = (
    "end:",
    "%t.next = add i64 %t, 1",
    "%t.more = icmp slt i64 %t.next, %taps",
    "br i1 %t.more, label %tap, label %done",
)
_BEGIN_PARTS = (
    "br label %part",
    "part:",
    "%t = phi i64 [ 0, %step ], [ %t.next, %part ]",
    "%A.t = mul i64 %t, %A_0",
    "%A.0 = getelementptr i32, ptr %A.step, i64 %A.t",
)
_END_PARTS = (
    "%t.next = add i64 %t, 1",
    "%t.more = icmp slt i64 %t.next, %parts",
    "br i1 %t.more, label %part, label %end",
    "end:",
)


def _operands(p: TileProduct) -> tuple[str, ...]:
    return ("A", "Al", "B", "Bl") if p.is_split else ("A", "B")


def _begin(p: TileProduct) -> tuple[str, ...]:
    """Into the first step, if there is one."""
    if not (p.has_taps or p.form == "parts"):
        return "%some = icmp sgt i64 %steps, 0", "br i1 %some, label %step, label %done"
    return (
        f"%least = call i64 @llvm.smin.i64(i64 %{'taps' if p.has_taps else p.form}, i64 %steps)",
        "%some = icmp sgt i64 %least, 0",
        f"br i1 %some, label %{'tap' if p.has_taps else 'step'}, label %done",
        *(_begin_taps(p) if p.has_taps else ()),
    )


def _begin_taps(p: TileProduct) -> tuple[str, ...]:
    return ("tap:", "%t = phi i64 [ 0, %sum ], [ %t.next, %end ]", *_tap(p), "br label %step")


def _fetch(lines: range) -> tuple[str, ...]:
    """Fetch these lines of those that a step fetches."""
    return tuple(
        line
        for n in lines
        for line in (
            f"%far.{n} = add i64 %ahead, {n * SIDE}",
            f"%line.{n} = getelementptr i32, ptr %B.0, i64 %far.{n}",
            f"call void @{_PREFETCH}(ptr %line.{n}, i32 0, i32 2, i32 1)",
        )
    )


def _low_products(
    p: TileProduct, each: Sequence[str], row: int, b_row: int, lines: int, loads: Mapping[str, str]
) -> tuple[str, ...]:
    """Those of a low part, behind those of both high ones: A's low part takes the place of the high one, which is
    loaded again for B's low part. ``each``: the products of what is loaded; ``loads``: the instruction that loads an
    operand. Before each a third of ``lines`` is fetched: all of them at once would take all buffers for lines under
    way, and loads of tiles wait for one."""
    left, right = range(p.rows), range(p.columns)
    return (
        *([f"%Al.1 = getelementptr i32, ptr %Al.0, i64 %A_{row}.down"] if p.rows > 1 else []),
        *([f"%Bl.1 = getelementptr i32, ptr %Bl.0, i64 {SIDE}"] if p.columns > 1 else []),
        *_fetch(range(lines // 3, 2 * lines // 3)),
        *(f"call void @{loads['A']}(i8 {_A + r}, ptr %Al.{r}, i64 %A_{row}.pitch)" for r in left),
        *each,
        *_fetch(range(2 * lines // 3, lines)),
        *(f"call void @{loads['A']}(i8 {_A + r}, ptr %A.{r}, i64 %A_{row}.pitch)" for r in left),
        *(f"call void @{loads['B']}(i8 {_B + c}, ptr %Bl.{c}, i64 %B_{b_row}.pitch)" for c in right),
        *each,
    )


def _places_of_sums(p: TileProduct) -> list[str]:
    """Where each tile of the sums lies, and how far apart its rows do."""
    return [
        "%C_0.pitch = shl i64 %C_0, 2",
        f"%C_0.down = mul i64 %C_0, {SIDE}",
        "%C.0.0 = getelementptr i32, ptr %C, i64 0",
        *(["%C.1.0 = getelementptr i32, ptr %C, i64 %C_0.down"] if p.rows > 1 else []),
        *(
            f"%C.{r}.1 = getelementptr i32, ptr %C.{r}.0, i64 {SIDE}"
            for r in range(p.rows)
            for _ in range(p.columns - 1)
        ),
    ]


def _sums(p: TileProduct) -> list[tuple[int, int, int]]:
    """The register of each tile of the sums, its row and its column."""
    return [(p.columns * r + c, r, c) for r in range(p.rows) for c in range(p.columns)]


def _start(p: TileProduct) -> list[str]:
    """Zero in all sums, or what they were."""
    return [
        "br i1 %first, label %start, label %resume",
        "start:",
        *(f"call void @{ZERO}(i8 {n})" for n, _, _ in _sums(p)),
        "br label %sum",
        "resume:",
        *(f"call void @{LOAD}(i8 {n}, ptr %C.{r}.{c}, i64 %C_0.pitch)" for n, r, c in _sums(p)),
        "br label %sum",
        "sum:",
    ]


def _store(p: TileProduct) -> list[str]:
    return [f"call void @{STORE}(i8 {n}, ptr %C.{r}.{c}, i64 %C_0.pitch)" for n, r, c in _sums(p)]


class _Step:
    """The lines of a step, and what it takes from before the first. ``lines``, ``streamed``: see
    :func:`tile_product_code`."""

    def __init__(self, p: TileProduct, lines: int, streamed: str) -> None:
        self.p, self.lines = p, lines
        self.loads = {x: STREAM if x == streamed else LOAD for x in "AB"}
        taps, parts = p.has_taps, p.form == "parts"
        self.step, self.row = (1, 2) if taps or parts else (0, 1)  # the strides of A along steps and rows
        self.b_step, self.b_row = (1, 2) if taps else (0, 1)

    def pitches(self) -> list[str]:
        return [
            *(f"%{x}.pitch = shl i64 %{x}, 2" for x in (f"A_{self.row}", f"B_{self.b_row}")),
            f"%A_{self.row}.down = mul i64 %A_{self.row}, {SIDE}",
        ]

    def code(self) -> list[str]:
        """Of step ``%k``, in tap ``%t``: loads and products."""
        p, loads, row, b_row = self.p, self.loads, self.row, self.b_row
        parts, tap = p.form == "parts", ".tap" if p.has_taps else ""
        product, _ = PRODUCTS[p.product]
        products = [f"call void @{product}(i8 {n}, i8 {_A + r}, i8 {_B + c})" for n, r, c in _sums(p)]
        load_b = [f"call void @{loads['B']}(i8 {_B + c}, ptr %B.{c}, i64 %B_{b_row}.pitch)" for c in range(p.columns)]
        return [
            *(f"%{x}.k = mul i64 %k, %{x}_{self.step if x[0] == 'A' else self.b_step}" for x in _operands(p)),
            *(
                f"%{x}.{'step' if parts and x == 'A' else '0'} = getelementptr i32, ptr %{x}{tap}, i64 %{x}.k"
                for x in _operands(p)
            ),
            *([f"%B.1 = getelementptr i32, ptr %B.0, i64 {SIDE}"] if p.columns > 1 else []),
            *_fetch(range(self.lines // 3 if p.is_split else self.lines)),
            *(load_b if parts else ()),
            *(_BEGIN_PARTS if parts else ()),
            *([f"%A.1 = getelementptr i32, ptr %A.0, i64 %A_{row}.down"] if p.rows > 1 else []),
            *(f"call void @{loads['A']}(i8 {_A + r}, ptr %A.{r}, i64 %A_{row}.pitch)" for r in range(p.rows)),
            *(() if parts else load_b),
            *products,
            *(_low_products(p, products, row, b_row, self.lines, loads) if p.is_split else ()),
            *(_END_PARTS if parts else ()),
        ]


def _tap(p: TileProduct) -> list[str]:
    """Where the operands of tap ``%t`` lie."""
    return [
        *(f"%{x}.t = mul i64 %t, %{x}_0" for x in _operands(p)),
        *(f"%{x}.tap = getelementptr i32, ptr %{x}, i64 %{x}.t" for x in _operands(p)),
    ]


def _declares(p: TileProduct, lines: int, streamed: str) -> tuple[str, ...]:
    return (
        _GLOBAL,
        f"declare void @{CONFIGURE}(ptr)",
        f"declare void @{RELEASE}()",
        f"declare void @{ZERO}(i8)",
        f"declare void @{LOAD}(i8, ptr, i64)",
        *([f"declare void @{STREAM}(i8, ptr, i64)"] if streamed else []),
        f"declare void @{STORE}(i8, ptr, i64)",
        f"declare void @{PRODUCTS[p.product][0]}(i8, i8, i8)",
        *((f"declare void @{_PREFETCH}(ptr, i32, i32, i32)",) if lines else ()),
        *(("declare i64 @llvm.smin.i64(i64, i64)",) if p.has_taps or p.form == "parts" else ()),
    )


def _text(body: Sequence[str]) -> str:
    return "\n".join(line if line.endswith(":") else f"  {line}" for line in body)


def tile_product_code(p: TileProduct, lines: int = 0, streamed: str = "") -> MachineCode:
    """The code of :meth:`tilewright.tensor_ir.intrinsics.TileProduct.describe`. ``lines``: so many lines of cache a
    step fetches into the second level, from ``%ahead`` words behind what it reads of B. ``streamed``: the operand that
    is, A or B."""
    taps, parts = p.has_taps, p.form == "parts"
    step = _Step(p, lines, streamed)
    body = [
        "begin:",
        *step.pitches(),
        *_places_of_sums(p),
        *_start(p),
        *_begin(p),
        "step:",
        f"%k = phi i64 [ 0, %{'tap' if taps else 'sum'} ], [ %next, %{'end' if parts else 'step'} ]",
        *step.code(),
        "%next = add i64 %k, 1",
        "%more = icmp slt i64 %next, %steps",
        f"br i1 %more, label %step, label %{'end' if taps else 'done'}",
        *(_END_TAPS if taps else ()),
        "done:",
        *_store(p),
    ]
    return MachineCode(
        _text(body),
        ("amx-tile", PRODUCTS[p.product][1]),
        _declares(p, lines, streamed),
        f"call void @{CONFIGURE}(ptr @{_CONFIGURATION})",
        f"call void @{RELEASE}()",
    )


@dataclass(frozen=True, slots=True)
class StepwiseCode:
    """The same code in three bodies, for what runs between the steps: ``begin`` sets the sums in registers, ``step``
    multiplies step ``%k``, of tap ``%t`` where there are such, ``end`` stores the sums."""

    begin: str
    step: str
    end: str
    declares: tuple[str, ...]


def stepwise_code(p: TileProduct, lines: int = 0, streamed: str = "") -> StepwiseCode:
    """The parameters are those of :func:`tile_product_code`, with ``%k`` and ``%t`` in place of the dims."""
    step = _Step(p, lines, streamed)
    return StepwiseCode(
        _text(["begin:", *_places_of_sums(p), *_start(p)]),
        _text([*step.pitches(), *(_tap(p) if p.has_taps else ()), *step.code()]),
        _text([*_places_of_sums(p), *_store(p)]),
        _declares(p, lines, streamed),
    )
