"""The search space of a function: every schedule that the rules, or a program of the user's own, can make of it.

A program is a function that schedules and asks for decisions (``sample_*``). The space is the set of its runs; which
decisions come up may depend on earlier ones. Nothing is compiled here: a candidate is refused beforehand when its
register tile, code or buffers are out of proportion. Source of the idea: MetaSchedule (Shao et al., 2022).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.core.errors import ScheduleError
from tilewright.core.target import Target
from tilewright.schedule.decisions import Choice, Decider, DefaultDecider, FixedDecider, RandomDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Alloc, Block, Func, Loop, Stmt, stmt_children

Program = Callable[[Schedule, Target], None]

MAX_CODE = 20_000
"""Blocks written out, a measure of code size: beyond it LLVM needs seconds."""
MAX_LOCAL_BYTES = 256 << 10
_ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class Decision:
    """One answered question. ``candidates`` may depend on the answers before it."""

    label: str
    candidates: tuple[Choice, ...]
    choice: Choice


@dataclass(frozen=True)
class Candidate:
    """A point of the space. ``func`` is the function with ``trace`` applied."""

    decisions: tuple[Decision, ...]
    trace: Trace
    func: Func = field(repr=False, compare=False)

    @cached_property
    def key(self) -> str:
        """A digest of the trace: equal for candidates that are the same schedule."""
        return hashlib.sha256(self.trace.to_text().encode()).hexdigest()[:24]

    def values(self) -> dict[str, Choice]:
        """The decisions by label."""
        return {d.label: d.choice for d in self.decisions}


class _Recorder:
    """Passes questions on and keeps them with their answers; of questions asked again only the last answer counts."""

    def __init__(self, decider: Decider) -> None:
        self._decider = decider
        self.asked: dict[str, Decision] = {}

    def choose(self, label: str, candidates: Sequence[Choice], default: Choice) -> Choice:
        choice = self._decider.choose(label, candidates, default)
        self.asked[label] = Decision(label, tuple(candidates), choice)
        return choice


class Space:
    """The schedules of ``func`` on ``target``. ``program`` defaults to the schedule rules."""

    def __init__(self, func: Func, target: Target, program: Program | None = None) -> None:
        self.func = func
        self.target = target
        self._program = program
        self._default: Candidate | None = None

    def default(self) -> Candidate:
        """The candidate of the rules' own choices. Raises ScheduleError if a user's program refuses even that."""
        if self._default is None:
            self._default = self._run(DefaultDecider())
        return self._default

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        """A random candidate that is not refused; None if several draws in a row were."""
        return self._first_legal(lambda: RandomDecider(rng))

    def neighbour(self, candidate: Candidate, rng: np.random.Generator) -> Candidate | None:
        """``candidate`` with one decision changed (and what depends on it); None if no try was legal and different."""
        open_ones = [d for d in candidate.decisions if len(d.candidates) > 1]
        if not open_ones:
            return None

        def mutated() -> Decider:
            d = open_ones[int(rng.integers(len(open_ones)))]
            at = d.candidates.index(d.choice)
            step = int(rng.integers(1, len(d.candidates)))
            near = at + (1 if rng.random() < 0.5 else -1)
            ordered = rng.random() < 0.5 and 0 <= near < len(d.candidates)
            choice = d.candidates[near if ordered else (at + step) % len(d.candidates)]
            return FixedDecider({**candidate.values(), d.label: choice})

        for _ in range(_ATTEMPTS):
            found = self._attempt(mutated())
            if found is not None and found.key != candidate.key:
                return found
        return None

    def with_decisions(self, values: Mapping[str, Choice]) -> Candidate | None:
        """The candidate of given answers, defaults for the rest; None if it is refused."""
        return self._attempt(FixedDecider(values))

    def enumerate(self, limit: int) -> Iterator[Candidate]:
        """All combinations of the default's decisions in a fixed order, at most ``limit``, without those refused."""
        decisions = self.default().decisions
        grid = itertools.product(*(d.candidates for d in decisions))
        seen: set[str] = set()
        for values in itertools.islice(grid, limit):
            found = self.with_decisions({d.label: v for d, v in zip(decisions, values, strict=True)})
            if found is not None and found.key not in seen:
                seen.add(found.key)
                yield found

    def size(self) -> int:
        """Combinations of the decisions that come up by default (an estimate of the number of candidates)."""
        total = 1
        for d in self.default().decisions:
            total *= len(d.candidates)
        return total

    def refusal(self, candidate: Candidate) -> str | None:
        """Why a candidate is not worth compiling, before anything is compiled; None if it is."""
        code = _written_out(candidate.func.body, 1)
        if code > MAX_CODE:
            return f"code size: {code} blocks written out, more than {MAX_CODE}"
        accumulators = _largest_tile(candidate.func, self.target)
        if accumulators > 2 * self.target.vector_registers:
            return f"register pressure: a tile of {accumulators} vectors in {self.target.vector_registers} registers"
        local = _local_bytes(candidate.func.body)
        if local > MAX_LOCAL_BYTES:
            return f"cache footprint: {local} bytes of local buffers, more than {MAX_LOCAL_BYTES}"
        return None

    # -- runs ------------------------------------------------------------------------------------------------------
    def _run(self, decider: Decider) -> Candidate:
        recorder = _Recorder(decider)
        if self._program is None:
            s = schedule_by_rule(self.func, self.target, recorder)
        else:
            s = Schedule(self.func, decider=recorder)
            self._program(s, self.target)
        return Candidate(tuple(recorder.asked.values()), s.trace, s.func)

    def _attempt(self, decider: Decider) -> Candidate | None:
        try:
            found = self._run(decider)
        except ScheduleError:
            return None
        return None if self.refusal(found) is not None else found

    def _first_legal(self, make: Callable[[], Decider]) -> Candidate | None:
        for _ in range(_ATTEMPTS):
            found = self._attempt(make())
            if found is not None:
                return found
        return None


def _written_out(s: Stmt, copies: int) -> int:
    """Blocks in the code of ``s`` after unrolling."""
    if isinstance(s, Block):
        return copies
    if isinstance(s, Loop) and s.kind == "unrolled":
        copies *= max(1, s.extent.value() or 8)
    return sum(_written_out(c, copies) for c in stmt_children(s))


def _largest_tile(func: Func, target: Target) -> int:
    """Vector registers that the largest small local buffer of a reduction would fill."""

    def visit(s: Stmt) -> int:
        own = 0
        if isinstance(s, Alloc) and s.buffer.scope == "local":
            size = s.buffer.dtype.itemsize
            for d in s.buffer.shape:
                size *= d.value() or 1
            vectors = size * 8 // target.vector_bits
            own = vectors if vectors <= 8 * target.vector_registers else 0
        return max([own, *(visit(c) for c in stmt_children(s))])

    return visit(func.body)


def _local_bytes(s: Stmt) -> int:
    """Bytes of local buffers that are alive at once, at most."""
    inner = [_local_bytes(c) for c in stmt_children(s)]
    if isinstance(s, Alloc) and s.buffer.scope == "local":
        size = s.buffer.dtype.itemsize
        for d in s.buffer.shape:
            size *= d.value() or 1
        return size + max(inner)
    return max(inner, default=0)
