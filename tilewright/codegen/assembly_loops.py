"""The innermost loops of machine code, and what an iteration of them is made of: a static look at what the ports of a
CPU have to do, where its counters cannot be read.

x86-64 in the syntax that LLVM prints (AT&T's: the destination comes last).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tilewright.core.console import table
from tilewright.core.html.pieces import code, details, fragment, title
from tilewright.core.html.pieces import table as html_table

_LABEL = re.compile(r"^(\.L\w+):")
_JUMP = re.compile(r"^j\w+\s+(\.L\w+)$")
_MEMORY = re.compile(r"[-\w.]*\([^)]*\)")
_KINDS: Mapping[str, re.Pattern[str]] = {
    "multiply-add": re.compile(r"^(vfn?m(add|sub)|vdp(bf16|bus)|vpdp|tdp|vpmadd)"),
    "shuffle": re.compile(r"^(v?p?(shuf|unpck)|vperm|vinsert|vextract|vpblend|vblend|vbroadcast|vpbroadcast|valign)"),
    "move": re.compile(r"^(v?mov|vpmov|vpgather|vgather|vmask|prefetch|lea|push|pop)"),
    "vector arithmetic": re.compile(r"^v"),
    "branch": re.compile(r"^(j\w+|cmp\w*|test\w*)$"),
}
"""By the beginning of an instruction's name, the first that fits; the rest is scalar. A broadcast is a shuffle."""
_SCALAR = "scalar"
KINDS = (*_KINDS, _SCALAR)
_STACK = "%rsp"
_HEAD = ("loop", " instructions", *(f" {k}" for k in KINDS), " loads", " stores", " stack")


@dataclass(frozen=True, slots=True)
class AssemblyLoop:
    """One iteration of an innermost loop. ``kinds``: instructions by kind, those of :data:`KINDS`. ``loads``,
    ``stores``: those that read or write memory, of any kind. ``stack``: those of them whose memory is the stack, for
    registers that did not suffice, or for small local buffers."""

    label: str
    lines: tuple[str, ...]
    kinds: Mapping[str, int]
    loads: int
    stores: int
    stack: int

    @property
    def multiply_adds(self) -> int:
        """Instructions that multiply and add."""
        return self.kinds["multiply-add"]


@dataclass(frozen=True, slots=True)
class AssemblyLoops:
    """Innermost loops, those with the most multiply-adds first, then the longest. ``str()`` is the table."""

    loops: tuple[AssemblyLoop, ...]

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each loop: its label, how many instructions it has, of each kind, and of memory."""
        return [
            {"loop": x.label, "instructions": len(x.lines), **x.kinds, "loads": x.loads, "stores": x.stores,
             "stack": x.stack}
            for x in self.loops
        ]  # fmt: skip

    def _rows(self) -> list[tuple[str, ...]]:
        return [tuple(str(v) for v in row.values()) for row in self.to_dicts()]

    def __str__(self) -> str:
        return table(_HEAD, self._rows())

    def _repr_html_(self) -> str:
        texts = [details(x.label, code("\n".join(x.lines))) for x in self.loops]
        return fragment(title("innermost loops", f"{len(self.loops)} of them"), html_table(_HEAD, self._rows()), *texts)


def assembly_loops(text: str) -> AssemblyLoops:
    """The innermost loops of an assembly text: what stands between a label and a jump back to it, with no such label
    and jump in between."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    labels = {m.group(1): n for n, line in enumerate(lines) if (m := _LABEL.match(line))}
    found_jumps = ((m.group(1), n) for n, line in enumerate(lines) if (m := _JUMP.match(line)))
    jumps = [(labels[label], n) for label, n in found_jumps if label in labels]
    back = sorted({(begin, end) for begin, end in jumps if begin < end})
    inner = [b for b in back if not any(b != o and b[0] <= o[0] and o[1] <= b[1] for o in back)]
    found = [_loop(lines[begin][:-1], lines[begin + 1 : end + 1]) for begin, end in inner]
    return AssemblyLoops(tuple(sorted(found, key=lambda x: (-x.multiply_adds, -len(x.lines)))))


def _loop(label: str, lines: Sequence[str]) -> AssemblyLoop:
    body = tuple(x for x in lines if x and not x.startswith(".") and not x.endswith(":"))
    counted = Counter(map(kind_of, body))
    reads, writes, stack = 0, 0, 0
    for access, place in filter(None, map(memory_access, body)):
        writes, reads = writes + (access == "store"), reads + (access == "load")
        stack += _STACK in place
    return AssemblyLoop(label, body, {k: counted[k] for k in KINDS}, reads, writes, stack)


def memory_access(line: str) -> tuple[Literal["load", "store"], str] | None:
    """Whether an instruction reads or writes memory, and the operand that says where; None if neither."""
    name, _, operands = line.partition("\t") if "\t" in line else line.partition(" ")
    found = [*_MEMORY.finditer(operands)]
    if not found or name.startswith(("lea", "prefetch", "nop")):
        return None
    place = found[-1].group()
    is_store = operands.rstrip().endswith(place) and not name.startswith(("cmp", "test", "vucomis"))
    return ("store" if is_store else "load"), place


def kind_of(line: str) -> str:
    """Which of :data:`KINDS` an instruction is of."""
    name = line.split(maxsplit=1)[0]
    return next((kind for kind, begins in _KINDS.items() if begins.match(name)), _SCALAR)
