"""Elements of a table of 256 bytes, many at a time: the table lies in registers, and bytes permute it.

``vpermi2b`` takes each of 64 bytes from two registers of 64, by the low seven bits of an index: two of them look into
the halves of the table, and the eighth bit of the index tells which one holds.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.codegen.llvm.builder import Code, Value
from tilewright.codegen.llvm.types import full_type

ENTRIES = 256
_LANES = 64
_PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"


def look_up(code: Code, index: Value, part: Callable[[int, int], Value]) -> Value:
    """The elements at ``index``, a vector of bytes, on a CPU that permutes bytes
    (:func:`tilewright.machine.vectors.permutes_bytes`). ``part(first, count)`` loads elements of the table."""
    table = [part(first, _LANES) for first in range(0, ENTRIES, _LANES)]
    found = []
    for first in range(0, index.lanes, _LANES):
        count = min(_LANES, index.lanes - first)
        own = code.shuffle(index, None, [first + k if k < count else index.lanes for k in range(_LANES)])
        low, high = (_permuted(code, own, *table[k : k + 2]) for k in (0, 2))
        whole = code.select(code.compare("slt", own, code.const(0, own)), high, low)
        found.append(code.shuffle(whole, None, range(count)))
    return code.concat(found)


def _permuted(code: Code, index: Value, low: Value, high: Value) -> Value:
    bytes_ = full_type("i8", _LANES)
    code.module.declare(_PERMUTE, bytes_, [bytes_, bytes_, bytes_])
    return code.call(_PERMUTE, "i8", _LANES, low, index, high)
