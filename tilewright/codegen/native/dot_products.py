"""Loops of one instruction for products of narrow elements: what a CPU can do in reduced precision.

``void @NAME(i64 %n)`` runs the instruction ``CHAINS * n`` times on registers alone, in chains that do not wait for each
other. Written as inline assembly: LLVM may neither join two of them nor leave one out, as it may not with instructions
on matrix tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.codegen.emit.matrix_tiles import tile_product_code
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles
from tilewright.tensor_ir.intrinsics import TileProduct

CHAINS = 12
"""Enough for two instructions in a cycle that take six cycles each."""


@dataclass(frozen=True, slots=True)
class DotProduct:
    """An instruction that adds products of neighbours to lanes of 32 bits. ``operations``: multiplications and
    additions in one. ``product``: the scalar operation of the tensor IR that it computes. ``steps``: its assembly, with
    operands $0 (the sums), $2 and $3; $1 may be overwritten."""

    name: str
    elements: str
    feature: str
    bits: int
    operations: int
    product: str
    steps: str


_BYTES_IN_PAIRS = "vpmaddubsw $3, $2, $1; vpmaddwd $2, $1, $1; vpaddd $1, $0, $0"

DOT_PRODUCTS = (
    DotProduct("vdpbf16ps", "bfloat16", "avx512bf16", 512, 64, "dot2", "vdpbf16ps $3, $2, $0"),
    DotProduct("vpdpbusd", "uint8 by int8", "avx512vnni", 512, 128, "dot4", "vpdpbusd $3, $2, $0"),
    DotProduct("vpdpbusd", "uint8 by int8", "avxvnni", 256, 64, "dot4", "{vex} vpdpbusd $3, $2, $0"),
    DotProduct("vpmaddubsw", "uint8 by int8", "avx2", 256, 64, "dot4s", _BYTES_IN_PAIRS),
    DotProduct("vpmaddwd", "int16", "avx2", 256, 32, "dot4", "vpmaddwd $3, $2, $1; vpaddd $1, $0, $0"),
)


TILE_PRODUCTS = (
    DotProduct("tdpbf16ps", "bfloat16", "amx-bf16", 8192, 16 * 1024, "dot2", ""),
    DotProduct("tdpbusd", "uint8 by int8", "amx-int8", 8192, 32 * 1024, "dot4", ""),
)
"""Those on matrix tiles, each result of which is the sum over a row of one operand."""


def dot_products_of(target: Target) -> Iterator[DotProduct]:
    """Those that the target has: on matrix tiles, and the widest of each kind of elements on vectors."""
    yield from (d for d in TILE_PRODUCTS if has_matrix_tiles(target, d.product))
    seen: set[str] = set()
    for d in DOT_PRODUCTS:
        if d.feature in target.enabled and d.elements not in seen:
            seen.add(d.elements)
            yield d


def dot_product_text(name: str, d: DotProduct, target: Target) -> str:
    """The LLVM IR module."""
    if d in TILE_PRODUCTS:
        return _tile_product_text(name, d, target)
    vector, register = f"<{d.bits // 32} x i32>", "v" if d.bits == 512 else "x"
    chains = range(CHAINS)
    begins = "\n".join(f"  %sum{c} = phi {vector} [ zeroinitializer, %begin ], [ %next{c}, %loop ]" for c in chains)
    steps = "\n".join(
        f'  %both{c} = call {{ {vector}, {vector} }} asm sideeffect "{d.steps}", '
        f'"=&{register},=&{register},{register},{register},0"({vector} %ones, {vector} %ones, {vector} %sum{c})\n'
        f"  %next{c} = extractvalue {{ {vector}, {vector} }} %both{c}, 0"
        for c in chains
    )
    return f"""target triple = "{target.triple}"

define void @{name}(i64 %n) {{
begin:
  %ones = freeze {vector} zeroinitializer
  br label %loop
loop:
  %i = phi i64 [ 0, %begin ], [ %i.next, %loop ]
{begins}
{steps}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


def _tile_product_text(name: str, d: DotProduct, target: Target) -> str:
    """The same for one on matrix tiles, with four sums."""
    instruction, code = f"llvm.x86.{d.name}", tile_product_code(TileProduct(d.product, "", 2, 2))
    step = "\n".join(f"  call void @{instruction}(i8 {c % 4}, i8 4, i8 6)" for c in range(CHAINS))
    zero = "\n".join(f"  call void @llvm.x86.tilezero(i8 {n})" for n in range(8))
    declares = "\n".join(code.declares)
    return f"""target triple = "{target.triple}"
{declares}

define void @{name}(i64 %n) {{
begin:
  {code.setup}
{zero}
  br label %loop
loop:
  %i = phi i64 [ 0, %begin ], [ %i.next, %loop ]
{step}
  %i.next = add i64 %i, 1
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %done
done:
  {code.teardown}
  ret void
}}
"""
