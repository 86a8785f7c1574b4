"""Names: which ones a function uses, and new ones that it does not."""

from __future__ import annotations

from tilewright.tensor_ir.analysis.scopes import places
from tilewright.tensor_ir.ir import Func


def names_of(func: Func) -> set[str]:
    """Every name in use: dims, buffers, loops, blocks and block axes."""
    found = places(func.body)
    return {
        *func.dims, *(b.name for b in func.params), *found.loops, *found.blocks, *(b.name for b in found.buffers),
        *found.axes,
    }  # fmt: skip


def fresh_name(func: Func, base: str) -> str:
    """``base``, or ``base_2``, ``base_3``, ... : the first that ``func`` does not use yet."""
    return fresh_in(names_of(func), base)


def fresh_in(taken: set[str], base: str) -> str:
    """The first of ``base``, ``base_2``, ... not in ``taken``, which then contains it (for several names at once)."""
    name, n = base, 2
    while name in taken:
        name, n = f"{base}_{n}", n + 1
    taken.add(name)
    return name
