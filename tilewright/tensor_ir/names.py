"""Names: which ones a function uses, and new ones that it does not."""

from __future__ import annotations

from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, walk


def names_of(func: Func) -> set[str]:
    """Every name in use: dims, buffers, loops, blocks and block axes."""
    names = {*func.dims, *(b.name for b in func.params)}
    for s in walk(func.body):
        if isinstance(s, Loop):
            names.add(s.var)
        elif isinstance(s, Alloc):
            names.add(s.buffer.name)
        elif isinstance(s, Block):
            names.add(s.name)
            names.update(a.name for a in s.axes)
    return names


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
