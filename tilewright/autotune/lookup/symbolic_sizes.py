"""A kernel of symbolic sizes and the same kernel of fixed ones: records of either serve the other.

Their texts differ wherever a size stands, and so do their structures: ``n0`` is no number, and of an open number of
rows a product may sum few one by one. What they have in common is their *family*: the text without extents
and indices. Which sizes make the two equal follows from the shapes of their parameters. Whether a trace of one replays
on the other is for the primitives to say.
"""

from __future__ import annotations

import functools
import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.database import Database
from tilewright.autotune.records.record import Record, isa_class, sort_key, target_differences
from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import ParseError
from tilewright.machine.target import Target
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func

_DECLARED = re.compile(r"(?<![\w.])n\d+: dim,? ?")
_LOOP = re.compile(r"in range\(.*\):")
_BLOCK = re.compile(r'with block\("(\w+)".*')
_AXIS = re.compile(r"=(spatial|reduce)\(")
_INDICES = re.compile(r"\[[^\[\]]*\]")
_SIZE = re.compile(r"(?<![\w.])n?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")


@dataclass(frozen=True, slots=True)
class OfFamily:
    """A record of a kernel that has symbolic sizes where another one has fixed ones, or the other way round.
    ``sizes``: of the symbolic ones, by the name that they have in that which has them; ``apart``: how far the sizes are
    from those that it was measured at, 0 if they are the same."""

    record: Record
    sizes: Mapping[str, int]
    apart: float


def nearest_of_family(
    func: Func, workload: Workload, target: Target, database: Database, count: int
) -> list[OfFamily]:  # fmt: skip
    """The best record of each workload of the family of ``func`` (with canonical names) that has symbolic sizes
    elsewhere than it, the nearest sizes and machines first; none of another class of CPUs."""
    best: dict[str, Record] = {}
    for r in sorted(database.related(lambda w: is_kin(w, workload)), key=sort_key):
        if isa_class(r.target) == isa_class(target):
            best.setdefault(r.workload.hash, r)
    found = [x for r in best.values() if (x := _matched(func, r)) is not None]

    def order(x: OfFamily) -> tuple[object, ...]:
        largest_first = -math.prod(x.sizes.values()) if func.dims else 0  # where nothing says which sizes will come
        return (x.apart, len(target_differences(x.record.target, target)), largest_first, sort_key(x.record))

    return sorted(found, key=order)[:count]


@functools.lru_cache(maxsize=4096)
def family_of(text: str) -> str:
    """Equal for the texts of two kernels whose loops, blocks and formulas are the same, extents and indices aside."""
    lines = []
    for line in _DECLARED.sub("", text).splitlines():
        if block := _BLOCK.search(line):
            line = f"{block[1]} {' '.join(_AXIS.findall(line))}"
        line = _LOOP.sub("in range:", line)
        while (shorter := _INDICES.sub(lambda m: f"<{m[0].count(',')}>", line)) != line:
            line = shorter
        lines.append(_SIZE.sub("#", line))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def is_kin(w: Workload, workload: Workload) -> bool:
    """True for a workload of the same family and another structure."""
    return w.structure != workload.structure and family_of(w.text) == family_of(workload.text)


def _matched(func: Func, record: Record) -> OfFamily | None:
    """The sizes that make the two equal; None if some stay unknown."""
    try:
        recorded = parse_func(record.workload.text)
    except ParseError:
        return None
    if bool(func.dims) == bool(recorded.dims) or len(func.params) != len(recorded.params):
        return None
    symbolic, fixed = (func, recorded) if func.dims else (recorded, func)
    sizes: dict[str, int] = {}
    apart = 0.0
    for a, b in zip(symbolic.params, fixed.params, strict=True):
        if a.dtype != b.dtype or len(a.shape) != len(b.shape):
            return None
        for x, y in zip(a.shape, b.shape, strict=True):
            size = y.evaluate({})
            if (name := str(x)) in symbolic.dims and sizes.setdefault(name, size) != size:
                return None
            apart += _distance(x, size)
    if set(symbolic.dims) - sizes.keys():
        return None
    measured_at = record.dims if recorded.dims else sizes
    apart += sum(_ratio(measured_at.get(d, 1), n) for d, n in sizes.items())
    return OfFamily(record, sizes, apart)


def _distance(x: IntExpr, size: int) -> float:
    """How far a fixed size is from ``size``; 0 for a symbolic one."""
    return 0.0 if x.free_vars() else _ratio(x.evaluate({}), size)


def _ratio(a: int, b: int) -> float:
    return abs(math.log((a + 1.0) / (b + 1.0)))
