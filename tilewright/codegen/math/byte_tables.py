"""Elements of a table of 256 bytes, many at a time: the table lies in registers, and bytes permute it.

``vpermi2b`` takes each of 64 bytes from two registers of 64, by the low seven bits of an index: two of them look into
the halves of the table, and the eighth bit of the index tells which one holds. ``pshufb`` takes bytes from 16 that lie
in a register, by the low four bits: sixteen of them look into all parts of the table, and each further bit of the index
chooses between two parts.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.builder import Code, Value
from tilewright.codegen.llvm.types import full_type
from tilewright.core.dtypes import uint8
from tilewright.machine.vectors import PART, permutes_bytes, shuffled_bytes

_PERMUTED = 64
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
_SHUFFLES = {
    16: "llvm.x86.ssse3.pshuf.b.128", 32: "llvm.x86.avx2.pshuf.b", 64: "llvm.x86.avx512.pshuf.b.512",
}  # fmt: skip


def look_up(code: Code, index: Value, part: Callable[[int, int], Value]) -> Value:
    """The elements at ``index``, a vector of bytes, on a CPU that permutes or shuffles bytes
    (:func:`tilewright.machine.vectors.shuffled_bytes`). ``part(first, count)`` loads elements of the table."""
    most = shuffled_bytes(code.target)
    if permutes_bytes(code.target):
        size, width, find = _PERMUTED, most, _permuted
    else:
        size, width, find = PART, min((n for n in _SHUFFLES if index.lanes <= n < most), default=most), _shuffled
    table = [part(first, size) for first in range(0, 1 << uint8.bits, size)]
    count = -(-index.lanes // width)
    whole = code.shuffle(index, None, [min(k, index.lanes) for k in range(width << (count - 1).bit_length())])
    found = [find(code, code.shuffle(whole, None, range(k * width, (k + 1) * width)), table) for k in range(count)]
    return code.shuffle(code.concat(found + found[-1:] * (whole.lanes // width - count)), None, range(index.lanes))


def shuffled(code: Code, data: Value, place: Value) -> Value:
    """The bytes of ``data`` at ``place``, below 16, each among the 16 that it is one of."""
    bytes_ = full_type("i8", data.lanes)
    code.module.declare(_SHUFFLES[data.lanes], bytes_, [bytes_, bytes_])
    return code.call(_SHUFFLES[data.lanes], "i8", data.lanes, data, place)


def _permuted(code: Code, index: Value, table: list[Value]) -> Value:
    bytes_ = full_type("i8", _PERMUTED)
    code.module.declare(_PERMUTE, bytes_, [bytes_, bytes_, bytes_])
    low, high = (code.call(_PERMUTE, "i8", _PERMUTED, table[k], index, table[k + 1]) for k in (0, 2))
    return code.select(code.compare("slt", index, code.const(0, index)), high, low)


def _shuffled(code: Code, index: Value, table: list[Value]) -> Value:
    """``pshufb`` gives 0 where the eighth bit is set, so it sees the low four alone; the choice takes bits as signs."""
    place = code.binary("and", index, code.const(PART - 1, index))
    lines = [code.shuffle(t, None, [k % PART for k in range(index.lanes)]) for t in table]
    found = [shuffled(code, line, place) for line in lines]
    for bit in (3, 2, 1, 0):
        second = code.compare("slt", code.binary("shl", index, code.const(bit, index)), code.const(0, index))
        found = [code.select(second, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
    return found[0]
