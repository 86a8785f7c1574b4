"""What a schedule rule is: a name, what it takes in, which decisions it asks for, and the steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tilewright.machine.target import Target
from tilewright.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """One way to schedule the nest of a block, and as much of what feeds it as it takes in.

    ``name``: what listings call it. ``matches(schedule, block, target)``: what the rule found around ``block``, the
    most wanted first; nothing where it is none of its business. It changes nothing, but may ask whether the block is to
    be left to other rules. ``apply(schedule, block, match, target)``: the steps. A ScheduleError in it takes them back,
    and the next match is tried. ``decisions``: what it asks for, as the labels end: ``rows`` for ``acc.rows``.

    Called, it says whether it scheduled the block; a function of the same arguments and result is a rule, too.

    >>> import tilewright
    >>> def matches(s, block, target):
    ...     return s.loops(block)[:1]
    >>> def apply(s, block, loop, target):
    ...     s.split(loop, (None, s.sample_categorical(f"{block}.rows", (2, 4, 8), 4)))
    >>> rows = tilewright.ScheduleRule("rows", matches, apply, decisions=("rows",))
    >>> model = tilewright.compile("model.onnx", schedule_rules=[rows])
    >>> "rows (" in model.explain()
    True
    """

    name: str
    matches: Callable[[Schedule, str, Target], Iterable[Any]]
    apply: Callable[[Schedule, str, Any, Target], None]
    decisions: tuple[str, ...] = ()

    def __call__(self, schedule: Schedule, block: str, target: Target) -> bool:
        def scheduled(match: Any) -> bool:
            return schedule.attempt(lambda s: self.apply(s, block, match, target))

        return any(map(scheduled, self.matches(schedule, block, target)))


# what the helpers that several rules share ask for
SPREAD = ("parallel", "chunk")
"""Loops whose iterations the threads share, and iterations that belong together."""
VECTORS = ("vectors", "lanes")
"""Vectors of a step and lanes of a vector."""
WRITE = ("steps", "unroll")
"""The order of the loops of a reduction, and how many of its steps are written out."""
ELEMENTS = ("loop", "rows", *VECTORS, *SPREAD, "stream")
"""Of what a nest of spatial loops asks for: the loop of the vectors, rows side by side, stores past the caches."""
PARTIALS = ("partials",)
"""Vectors of partial results of a reduction."""
