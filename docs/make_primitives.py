#!/usr/bin/env python3
"""Writes docs/reference/primitives.md: the schedule primitives, with what each rewrites, keeps, refuses and costs.

python docs/make_primitives.py            write the page
python docs/make_primitives.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator

from docstrings import call_text, described, inline
from generated import GeneratedPage, note

from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.schedule import Schedule

ROOMS = {
    "loops": "Loops",
    "buffers": "Buffers",
    "stages": "Stages",
    "sampling": "Decisions",
}
"""Room of ``schedule.primitives`` -> its heading."""

HEAD = f"""\
# Schedule primitives

{note(__file__)}

A schedule is a function of loops and a list of steps that rewrite it. Each step is a method of
[`tilewright.Schedule`](api.md#schedule): it checks first, refuses what it cannot prove with a `ScheduleError` that says
why, and never changes what the function computes. Names are those of TVM ([from TVM](../from-tvm.md)); [from
Halide](../from-halide.md) has the words of Halide.

Loops, blocks and buffers are referred to by name. Most steps return the names that they make, and `s.loops(block)`,
`s.blocks()` and `s.show()` list what there is. `Refuses` lists every reason; a test holds each. New ones: [a schedule
primitive](../add-a-primitive.md).
"""


def render() -> str:
    """The page."""
    lines = [HEAD]
    for room, title in ROOMS.items():
        own = {n: p for n, p in PRIMITIVES.items() if p.__module__.split(".")[-2] == room}
        lines += [f"## {title}", ""]
        for name, primitive in own.items():
            lines += _primitive(name, primitive)
    lines += ["## Shorthands", "", "Methods of `Schedule` that are made of the steps above.", ""]
    for name in ("tile", "prefetch", "stream"):
        lines += [f"- `{_call(name)}`: {described(getattr(Schedule, name))}"]
    return "\n".join(lines) + "\n"


def _primitive(name: str, primitive: type[Primitive]) -> Iterator[str]:
    """Its call, and the parts of its docstring (``add-a-primitive.md`` has their order)."""
    text = inspect.getdoc(primitive) or ""
    intro, _, rest = text.partition("\nRewrite:")
    rewrite, _, rest = rest.lstrip(":").partition("\nKeeps:")
    keeps, _, rest = rest.partition("\nRefuses:")
    refuses, _, cost = rest.partition("\nCost:")
    yield from (f"### {name}", "", "```text", f"s.{_call(name)}", "```", "")
    if primitive.__module__.split(".")[-2] == "sampling":  # there the primitive only records what the method asks for
        yield from (described(getattr(Schedule, name)), "")
    yield from (inline(intro.strip()), "")
    yield from ("```text", inspect.cleandoc("\n" + rewrite), "```", "")
    yield from (f"- **Keeps** {_flat(keeps)}", f"- **Costs** {_flat(cost)}", "- **Refuses** when")
    yield from (f"    - {_flat(x)}" for x in re.split(r"\n\s*- ", refuses)[1:])
    yield ""


def _call(name: str) -> str:
    return call_text(name, getattr(Schedule, name), skip=1)


def _flat(text: str) -> str:
    return inline(" ".join(text.split()))


PAGE = GeneratedPage(__file__, "reference/primitives.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
