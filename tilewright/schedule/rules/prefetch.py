"""Fetching the next packed panel while the rows go over the present one.

A panel comes from memory or the last-level cache while its first row tile runs, which is 5 to 10 % of a product of a
hundred rows. Where panels are the outer loop, each row tile fetches its share of the next one
(:mod:`tilewright.tensor_ir.analysis.prefetching`). Decision: ``<acc>.ahead``, reduction steps per line, 0 for none.

A panel that is read but once, by a single row, comes from memory all the same. Then each step fetches what a later step
reads of it, and of what goes with it, as scales do: ``<acc>.ahead`` is the distance in bytes of the panel. Where only a
call tells the number of rows, the first tile of them does so, perhaps the only one, and others fetch the next panel.

Nests of products in matrix tiles do likewise, each for its own steps; ``<acc>.ahead`` is 1 there or 0.

A row kernel over something that no cache holds reads its row from memory in its first stage, and has nothing to read in
those that compute: one that takes long fetches the next row meanwhile. Decision: ``<stage>.ahead``, 1 to do so.
"""

from __future__ import annotations

from tilewright.core.arith.bounds import upper_bound
from tilewright.machine.memory import LINE_BYTES
from tilewright.machine.target import Target
from tilewright.machine.vectors import bytes_ahead
from tilewright.schedule.rules.facts import buffer_bytes, expr_cost, is_spatial, loops_of, reduce_loops
from tilewright.schedule.schedule import Schedule
from tilewright.tensor_ir.analysis.prefetching import FetchedLines, ahead_of_nest, bytes_of_step, prefetch_of
from tilewright.tensor_ir.analysis.scopes import consumers, find_block, find_loop
from tilewright.tensor_ir.ir import Buffer, Loop, loads

_DISTANCES = (0, 1024, 2048, 3072, 4096)
_MOST = 2.5
_WRITTEN_OUT = 8
"""Steps per line where the loop is entered again for each tap: more are a short loop, left at a mispredicted branch."""


def fetch_ahead(s: Schedule, reduction: str, target: Target) -> None:
    """Annotate a reduction loop of ``reduction`` if its panels are parameters too large to stay in cache."""
    steps = [x for x in loops_of(s.func, reduction) if x.var in reduce_loops(s.func, reduction) and x.kind == "serial"]
    extent = upper_bound(steps[-1].extent, {}) if steps else None
    if extent is None:
        return
    loop = steps[-1]
    large = [(b, found) for b in large_inputs(s, reduction, target) if (found := prefetch_of(s.func, loop, b.name))]
    for panels, found in sorted(large, key=lambda x: not x[1].shared):  # what rows read again are the panels
        if bytes_ahead(target) and _open_loops(s, found) and _read_once(s, found, by_row=True):
            advancing = [x for x in steps if bytes_of_step(s.func, x, panels.name)]
            _fetch_later_steps(s, reduction, advancing[-1] if advancing else loop, panels, target)
            return
        tiles = 1
        for x in loops_of(s.func, reduction):
            if x.var in found.shared:
                tiles *= x.extent.value() or 1  # of unknown rows perhaps one: its only tile then fetches all lines
        wanted = tiles * LINE_BYTES / (panels.dtype.itemsize * int(panels.shape[-1]))
        if wanted < 1 and len(consumers(s.func, panels.name)) > 1:
            wanted = 1  # one whole tile, and the rest that was peeled off: a few lines per step
        most = wanted if len(steps) == 1 else min(wanted, _WRITTEN_OUT)
        lengths = range(1, extent + 1) if loop.extent.is_const else (1,)
        fitting = [n for n in lengths if extent % n == 0 and wanted / _MOST <= n <= most]
        if _read_once(s, found) and not (found.shared and fitting):
            _fetch_later_steps(s, reduction, loop, panels, target)
            return
        if not fitting:
            continue
        length = int(s.sample_categorical(f"{reduction}.ahead", (0, *fitting), fitting[-1]))
        if length:
            outer = loop.var if length == 1 else s.split(loop.var, (None, length))[0]
            s.prefetch(outer, panels.name)
        return


def fetch_if_open(s: Schedule, reduction: str, target: Target) -> None:
    """The same for ``reduction`` of the partial tile of a symbolic number of rows, which may be the only one."""
    steps = [x for x in loops_of(s.func, reduction) if x.var in reduce_loops(s.func, reduction)]
    large = large_inputs(s, reduction, target)
    if steps and any(_open_loops(s, prefetch_of(s.func, steps[-1], b.name)) for b in large):
        fetch_ahead(s, reduction, target)


def _read_once(s: Schedule, found: FetchedLines | None, by_row: bool = False) -> bool:
    """True if there is a next panel, and no loop goes over a panel again; ``by_row``: but one over an open number of
    rows."""
    again = (1, None) if by_row else (1,)
    return found is not None and all(find_loop(s.func, x).extent.value() in again for x in found.shared)


def _open_loops(s: Schedule, found: FetchedLines | None) -> list[str]:
    """The loops over an open number of rows that read the same again."""
    return [] if found is None else [x for x in found.shared if not find_loop(s.func, x).extent.is_const]


def _fetch_later_steps(s: Schedule, reduction: str, loop: Loop, panels: Buffer, target: Target) -> None:
    distance = int(s.sample_categorical(f"{reduction}.ahead", _DISTANCES, bytes_ahead(target)))
    taken = bytes_of_step(s.func, loop, panels.name)
    if not distance or not taken:
        return
    read = dict.fromkeys(x.buffer for x in loads(find_block(s.func, reduction).value))
    rows = _open_loops(s, prefetch_of(s.func, loop, panels.name))
    inputs = []
    for b in s.func.params:
        found = prefetch_of(s.func, loop, b.name) if b.name in read else None
        if _read_once(s, found, by_row=True) and _open_loops(s, found) == rows:
            inputs.append(b.name)
    s.prefetch(loop.var, *inputs, steps=-(-distance // taken))


def fetch_panels(s: Schedule, reduction: str, nest: str, panels: str, outside: bool, target: Target) -> None:
    """Annotate ``nest``, which an intrinsic runs, if its ``panels`` are a parameter that comes from far away: too large
    to stay in cache, or each read but once, the loop over them ``outside``."""
    large = any(b.name == panels for b in large_inputs(s, reduction, target))
    if not (large or outside):
        return
    if ahead_of_nest(s.func, find_loop(s.func, nest), panels) is None:
        return
    if s.sample_categorical(f"{reduction}.ahead", (0, 1), 1):
        s.prefetch(nest, panels)


def large_inputs(s: Schedule, reduction: str, target: Target) -> list[Buffer]:
    """Parameters of known size that the block reads and that do not fit in half of the second-level cache."""
    params = {b.name: b for b in s.func.params}
    names = dict.fromkeys(x.buffer for x in loads(find_block(s.func, reduction).value) if x.buffer in params)
    return [params[n] for n in names if (buffer_bytes(params[n]) or 0) > target.resident_bytes]


def row_to_fetch(s: Schedule, stage: str, target: Target) -> str | None:
    """The parameter whose next row ``stage`` should fetch: no cache holds it, and the stage takes long."""
    block = find_block(s.func, stage)
    if not is_spatial(block) or expr_cost(block.value) < target.costs.fetch_operations:
        return None
    params = {b.name: b for b in s.func.params[: len(s.func.params) - s.func.outputs]}
    for x in loads(block.value):
        if x.buffer in params and x.indices:
            source = params[x.buffer]
            size, row = buffer_bytes(source), source.shape[-1].value()
            if size is not None and row is not None and size > target.largest_cache:
                fits = LINE_BYTES <= row * source.dtype.itemsize <= target.beside_bytes
                return x.buffer if fits else None
    return None


def fetch_next_row(s: Schedule, buffer: str, loop: str) -> None:
    """Annotate ``loop``, a step of which works on a pair of lines of ``buffer`` or on a few rows, if what the next step
    of the loop around it reads can be fetched."""
    found = find_loop(s.func, loop)
    if found.kind == "serial" and prefetch_of(s.func, found, buffer) is not None:
        s.prefetch(loop, buffer)
