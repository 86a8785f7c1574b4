"""The search space of a function: every schedule that the rules, or a program of the user's own, can make of it.

A program is a function that schedules and asks for decisions (``sample_*``). The space is the set of its runs; which
decisions come up may depend on earlier ones. Rules of the user's own stand beside the default ones::

    mine = ScheduleRule("mine", matches, apply, decisions=("width",))

    Space(func, target, rules=(mine, *DEFAULT_RULES))

Nothing is compiled here: a candidate is refused beforehand when its register tile, code or buffers are out of
proportion. Source of the idea: MetaSchedule (Shao et al., 2022).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.autotune.base.resource_check import local_bytes, tile_bytes, tile_vectors, written_out
from tilewright.core.errors import ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.decisions import Choice, Decider, DefaultDecider, FixedDecider, RandomDecider
from tilewright.schedule.default import DEFAULT_RULES, Rule, schedule_by_rule
from tilewright.schedule.memory import StepMemory
from tilewright.schedule.primitives.sampling.sample_categorical import SampleCategorical
from tilewright.schedule.primitives.sampling.sample_compute_location import SampleComputeLocation
from tilewright.schedule.primitives.sampling.sample_perfect_tile import SamplePerfectTile
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func

Program = Callable[[Schedule, Target], None]

MAX_CODE = 20_000
"""Blocks written out, a measure of code size: beyond it LLVM needs seconds."""
MIN_LOCAL_BYTES = 64 << 10
"""Never too much, however small the caches."""
_ATTEMPTS = 16
_KEPT = 2_000


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
        """A digest of the trace, its decisions included."""
        return candidate_key(self.trace)

    def values(self) -> dict[str, Choice]:
        """The decisions by label."""
        return {d.label: d.choice for d in self.decisions}


def candidate_key(trace: Trace) -> str:
    """The digest that names a candidate of a workload."""
    return hashlib.sha256(trace.to_text().encode()).hexdigest()[:24]


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
    """The schedules of ``func`` on ``target``: by ``rules``, or by a ``program`` that does without them."""

    def __init__(
        self, func: Func, target: Target, program: Program | None = None, rules: Sequence[Rule] = DEFAULT_RULES
    ) -> None:
        self.func = func
        self.target = target
        self._program = program
        self._rules = tuple(rules)
        self._memory = StepMemory()
        self._found: dict[frozenset[tuple[str, Choice]], Candidate | None] = {}
        self._default: Candidate | None = None
        self._lost: set[str] = set()
        self._lost_by_default: set[str] = set()

    def default(self) -> Candidate:
        """The candidate of the rules' own choices. Raises ScheduleError if a user's program refuses even that."""
        if self._default is None:
            self._default = self._run(DefaultDecider())
            self._lost_by_default = self._lost
        return self._default

    def sample(self, rng: np.random.Generator) -> Candidate | None:
        """A random candidate that is not refused; None if several draws in a row were."""
        return self._first_legal(lambda: RandomDecider(rng))

    def neighbour(self, candidate: Candidate, rng: np.random.Generator) -> Candidate | None:
        """``candidate`` with one decision changed (and what depends on it); None if no try was legal and different."""
        open_ones = [d for d in candidate.decisions if len(d.candidates) > 1]
        if not open_ones:
            return None

        def mutated() -> dict[str, Choice]:
            d = open_ones[int(rng.integers(len(open_ones)))]
            at = d.candidates.index(d.choice)
            step = int(rng.integers(1, len(d.candidates)))
            near = at + (1 if rng.random() < 0.5 else -1)
            ordered = rng.random() < 0.5 and 0 <= near < len(d.candidates)
            choice = d.candidates[near if ordered else (at + step) % len(d.candidates)]
            return {**candidate.values(), d.label: choice}

        for _ in range(_ATTEMPTS):
            found = self._with(mutated())
            if found is not None and found.key != candidate.key:
                return found
        return None

    def with_decisions(self, values: Mapping[str, Choice]) -> Candidate | None:
        """The candidate of given answers, defaults for the rest; None if it is refused."""
        return self._with(values)

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
        code = written_out(candidate.func.body, 1)
        if code > MAX_CODE:
            return f"code size: {code} blocks written out, more than {MAX_CODE}"
        registers = self.target.vector_registers
        vectors = tile_vectors(candidate.func, self.target)
        if vectors > 2 * registers:
            return f"register pressure: a tile of {vectors} vectors in {registers} registers"
        most = max(self.target.resident_bytes, MIN_LOCAL_BYTES)
        local = local_bytes(candidate.func.body)
        if local > most:
            return f"cache footprint: {local} bytes of local buffers, more than {most}, half of the second-level cache"
        tile = tile_bytes(candidate.func)
        if tile > max(self.target.l2_bytes, MIN_LOCAL_BYTES) and tile > tile_bytes(self.default().func):
            return f"cache footprint: a tile reads {tile} bytes, more than the second-level cache and the default"
        return None

    # -- runs ------------------------------------------------------------------------------------------------------
    def _run(self, decider: Decider) -> Candidate:
        recorder = _Recorder(decider)
        if self._program is None:
            s = schedule_by_rule(self.func, self.target, recorder, self._rules, self._memory)
        else:
            s = Schedule(self.func, decider=recorder, memory=self._memory)
            self._program(s, self.target)
        kept = _labels(s.trace)
        self._lost = recorder.asked.keys() - kept
        return Candidate(tuple(d for d in recorder.asked.values() if d.label in kept), s.trace, s.func)

    def _with(self, values: Mapping[str, Choice]) -> Candidate | None:
        """As :meth:`with_decisions`; what came out is kept, since a walk comes by the same place again and again."""
        key = frozenset(values.items())
        if key not in self._found:
            if len(self._found) >= _KEPT:
                self._found.clear()
            self._found[key] = self._attempt(FixedDecider(values))
        return self._found[key]

    def _attempt(self, decider: Decider) -> Candidate | None:
        self.default()
        try:
            found = self._run(decider)
        except ScheduleError:
            return None
        if self._lost - self._lost_by_default:  # an answer led to a refused step, and what came instead is not meant
            return None
        return None if self.refusal(found) is not None else found

    def _first_legal(self, make: Callable[[], Decider]) -> Candidate | None:
        for _ in range(_ATTEMPTS):
            found = self._attempt(make())
            if found is not None:
                return found
        return None


def _labels(trace: Trace) -> set[str]:
    """The labels of the decisions in a trace."""
    out: set[str] = set()
    for step in trace.steps:
        if isinstance(step, SampleCategorical):
            out.add(step.label)
        elif isinstance(step, SampleComputeLocation):
            out.add(f"{step.block}.at")
        elif isinstance(step, SamplePerfectTile):
            out.add(f"{step.loop}.tile")
    return out
