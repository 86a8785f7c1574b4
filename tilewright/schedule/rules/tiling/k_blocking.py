"""Blocks of the reduction: a few steps for every tile of a block of tiles, then the next few, with the results of the
block of tiles in memory in between. What those steps read of one operand then stays in the first-level cache.
"""

from __future__ import annotations

from tilewright.schedule.rules.facts import loops_of, reduce_loops
from tilewright.schedule.rules.sampling import choose_number, divisors, spread_out
from tilewright.schedule.schedule import Schedule

_LEAST = 16


def partial_results(s: Schedule, reduction: str) -> str | None:
    """Ask how many steps of its longest loop a block of the reduction has, and give each block results of its own.

    Returns the name of the block that computes them; ``reduction`` then adds them up. None for all steps in one block,
    the default.
    """
    steps = reduce_loops(s.func, reduction)
    extents = {x.var: x.extent.value() or 0 for x in loops_of(s.func, reduction) if x.var in steps}
    if not extents:
        return None
    longest = max(extents, key=lambda v: extents[v])
    whole = extents[longest]
    sizes = spread_out(d for d in divisors(whole) if _LEAST <= d < whole)
    size = choose_number(s, f"{reduction}.depth", sizes, whole)
    return None if size == whole else s.rfactor(s.split(longest, (None, size))[0])
