"""How long an iteration of an innermost loop takes at least: a model of what a core can begin in a cycle.

A model, not a measurement. It knows what the manual says of the CPU (:class:`tilewright.machine.costs.Core`): how many
multiply-adds, loads, bytes and instructions a core takes in a cycle, and how long a multiply-add waits for the one
before. What it does not know makes loops slower than it says: data outside the first-level cache, shuffles and other
arithmetic on the same ports, gaps between instructions. ``llvm-mca`` knows more of the ports; where it is installed and
knows the CPU, its cycles stand beside.

x86-64 in the syntax that LLVM prints, as :mod:`tilewright.codegen.assembly_loops`.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tilewright.codegen.assembly_loops import AssemblyLoop, AssemblyLoops, kind_of, memory_access
from tilewright.core.console import table
from tilewright.core.errors import TargetError
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import fragment, remark, title
from tilewright.core.html.pieces import table as html_table
from tilewright.machine.costs import Core
from tilewright.machine.cpus import CPUS
from tilewright.machine.target import Target

RESOURCES = ("multiply-adds", "waiting", "loads", "stores", "issue")
"""What bounds a loop. Waiting: multiply-adds for the one before that they add to. Issue: instructions that enter the
core."""
_HEAD = ("loop", " instructions", *(f" {r}" for r in ("cycles", *RESOURCES)), "bound by", " llvm-mca")
_NONE = "no loop is left: all of it is written out"
_REGISTER = re.compile(r"%([xyz])mm\d+")
_BYTES = {"x": 16, "y": 32, "z": 64}
_LAST_REGISTER = re.compile(r"%[xyz]mm(\d+)(?:\s*\{[^}]*\})*\s*$")
_ONE_ELEMENT = re.compile(r"\{1to\d+\}")
_WORD, _DOUBLE = 4, 8
_ADDS_TO_LAST = re.compile(r"^(vfn?m(add|sub)231|vdp|vpdp)")
_FUSED = re.compile(r"^(cmp|test|add|sub|inc|dec|and)\w*$")
_MCA, _ITERATIONS, _MCA_SECONDS = "llvm-mca", 100, 20.0
_TOTAL = re.compile(r"^Total Cycles:\s+(\d+)", re.MULTILINE)

Mca = Callable[[Sequence[str], Target], "float | None"]
"""Cycles of an iteration of a loop with these lines; None where they are not known."""


@dataclass(frozen=True, slots=True)
class LoopBound:
    """``cycles``: of an iteration at least, by resource. ``mca``: what llvm-mca says; None where it is not there or
    does not know the CPU."""

    loop: AssemblyLoop
    cycles: Mapping[str, float]
    mca: float | None = None

    @property
    def least(self) -> float:
        """Cycles of an iteration at least."""
        return max(self.cycles.values())

    @property
    def bound_by(self) -> str:
        """The resource that says so, the first of :data:`RESOURCES` of several."""
        return max(self.cycles, key=lambda r: (self.cycles[r], -RESOURCES.index(r)))


@dataclass(frozen=True, slots=True)
class PortPressure:
    """The bounds of innermost loops, those with the most multiply-adds first. ``str()`` is the table."""

    cpu: str
    bounds: tuple[LoopBound, ...]

    def __str__(self) -> str:
        return "\n".join([table(_HEAD, self._rows()), self._remark()]) if self.bounds else _NONE

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each loop: ``loop``, ``instructions``, ``multiply_adds``, ``least`` cycles of an iteration,
        ``bound_by``, ``mca``, and the cycles of each resource."""
        return [
            {"loop": b.loop.label, "instructions": len(b.loop.lines), "multiply_adds": b.loop.multiply_adds,
             "least": b.least, "bound_by": b.bound_by, "mca": b.mca, **b.cycles}
            for b in self.bounds
        ]  # fmt: skip

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def _repr_html_(self) -> str:
        shown = [html_table(_HEAD, self._rows()), remark(self._remark())] if self.bounds else [remark(_NONE)]
        return fragment(title("port pressure", self.cpu), *shown)

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                b.loop.label, str(len(b.loop.lines)), f"{b.least:.2f}", *(f"{b.cycles[r]:.2f}" for r in RESOURCES),
                b.bound_by, "" if b.mca is None else f"{b.mca:.2f}",
            )
            for b in self.bounds
        ]  # fmt: skip

    def _remark(self) -> str:
        return f"a model, not a measurement: cycles of an iteration at least, by what the manual says of {self.cpu}"


def port_pressure(loops: AssemblyLoops, target: Target, mca: Mca | None = None) -> PortPressure:
    """The bounds of ``loops``, which are code for ``target``. ``mca``: asked as well (default: llvm-mca, where it is
    installed). Raises TargetError for a CPU whose core the table of CPUs does not have, and other architectures than
    x86-64."""
    core = target.costs.core
    if core is None or not target.triple.startswith("x86_64"):
        known = ", ".join(c for c in CPUS if CPUS[c].core is not None and not c.startswith("neoverse"))
        raise TargetError(f"port pressure: expected one of {known} (-mcpu=), got {target.cpu} ({target.triple})")
    ask = mca or mca_cycles
    vector = 4 * target.lanes(4)
    bounds = (LoopBound(x, _bounds(x, core, vector), ask((f"{x.label}:", *x.lines), target)) for x in loops.loops)
    return PortPressure(target.cpu, tuple(bounds))


def _bounds(loop: AssemblyLoop, core: Core, vector: int) -> dict[str, float]:
    accesses = [(a[0], _bytes_moved(line)) for line in loop.lines if (a := memory_access(line)) is not None]
    loads = [n for what, n in accesses if what == "load"]
    stored = sum(n for what, n in accesses if what == "store")
    products = [line for line in loop.lines if kind_of(line) == "multiply-add"]
    return {
        "multiply-adds": sum(core.product_cycles(_width(p) >= vector) for p in products),
        "waiting": float(core.fma_latency * _longest_chain(loop.lines)),
        "loads": max(sum(loads) / core.load_bytes, len(loads) / core.loads),
        "stores": stored / core.store_bytes,
        "issue": (len(loop.lines) - _fused_pairs(loop.lines)) / core.width,
    }


def _width(line: str) -> int:
    """Bytes of the widest register of an instruction; of a scalar one, those of a word of the machine."""
    return max((_BYTES[k] for k in _REGISTER.findall(line)), default=_DOUBLE)


def _bytes_moved(line: str) -> int:
    name = line.split(maxsplit=1)[0]
    if _ONE_ELEMENT.search(line) or "broadcast" in name:
        return _DOUBLE if name.endswith(("d", "q")) else _WORD
    return _WORD if name.endswith("ss") else _DOUBLE if name.endswith("sd") else _width(line)


def _longest_chain(lines: Sequence[str]) -> int:
    """Multiply-adds of an iteration that add to one register, which nothing else writes, one after the other."""
    added: Counter[str] = Counter()
    begun: set[str] = set()
    for line in lines:
        found = _LAST_REGISTER.search(line)  # none in a store, whose last operand is memory
        if found is None:
            continue
        if _ADDS_TO_LAST.match(line):
            added[found[1]] += 1
        elif not line.startswith(("vucomis", "vptest", "vtest")):
            begun.add(found[1])
    return max((n for register, n in added.items() if register not in begun), default=0)


def _fused_pairs(lines: Sequence[str]) -> int:
    """Comparisons that enter the core together with the jump behind them."""
    names = [line.split(maxsplit=1)[0] for line in lines]
    return sum(b.startswith("j") and bool(_FUSED.match(a)) for a, b in pairwise(names))


def mca_cycles(lines: Sequence[str], target: Target) -> float | None:
    """By the ``llvm-mca`` of the system: the mean of a hundred iterations."""
    program = shutil.which(_MCA)
    if program is None:
        return None
    options = [f"-mtriple={target.triple}", f"-mcpu={target.cpu}", f"-iterations={_ITERATIONS}"]
    text = "\n".join(lines) + "\n"
    try:
        done = subprocess.run(
            [program, *options], input=text, capture_output=True, text=True, timeout=_MCA_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _TOTAL.search(done.stdout)
    if done.returncode or found is None or "not a recognized processor" in done.stderr:
        return None  # it would take another CPU for it, or does not know an instruction
    return int(found[1]) / _ITERATIONS
