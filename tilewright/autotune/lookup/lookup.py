"""A function and a database: is there a record for it, does its trace replay, and if not, why not.

A *hit* is a record of the same workload on the same machine, or the finding that the default schedule is the better one
there. A *near miss* is a record of the same workload on another machine with the same vector unit, or of other sizes of
the same structure, or of symbolic sizes where this function has fixed ones, or the other way round; its decisions are
tried on this function. Everything else is a *miss*. Every answer has its reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.autotune.base.space import Space
from tilewright.autotune.base.workload import Workload, canonical, differences, workload_of
from tilewright.autotune.lookup.symbolic_sizes import OfFamily, is_kin, nearest_of_family
from tilewright.autotune.records.database import Database, Networks, Policy
from tilewright.autotune.records.record import Record, isa_class, target_differences
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.machine.target import Target
from tilewright.runtime.coverage import Status
from tilewright.schedule.base import Primitive
from tilewright.schedule.default import DEFAULT_RULES, default_trace
from tilewright.schedule.primitives.loops.peel import Peel
from tilewright.schedule.rules.base import ScheduleRule
from tilewright.schedule.trace import Trace, step_text
from tilewright.tensor_ir.ir import Func

_TRIES = 4
_OF_TAIL = re.compile(r"_t(_|\b)")
"""What is named after a loop that was peeled off."""
_CLOSE = 1.03
"""A record that took up to this ratio of the default's time alone may still be the better one in the network."""


@dataclass(frozen=True, slots=True)
class Match:
    """What a database has for a function. ``trace`` None: the default schedule; otherwise a trace of ``func``, which is
    the function under the names that the trace uses. ``record``: where it is from. ``dims``: sizes of the symbolic
    dimensions of ``func`` at which the record means most, if its own are not those."""

    status: Status
    reason: str
    func: Func
    trace: Trace | None = None
    record: Record | None = None
    dims: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is looked up: a function, and by which ``rules`` its default schedule is made. ``refused``: why records were
    passed over; it is added to."""

    func: Func
    workload: Workload
    target: Target
    rules: Sequence[ScheduleRule]
    refused: list[str] = field(default_factory=list)

    def is_default(self, trace: Trace, named: Func) -> bool:
        """True if ``trace`` is the default schedule of the function under the names that it uses."""
        return trace == default_trace(named, self.target, self.rules)


def look_up(
    func: Func, target: Target, database: Database, policy: Policy = "any", network: Networks = (),
    workload: Workload | None = None, rules: Sequence[ScheduleRule] = DEFAULT_RULES,
) -> Match:  # fmt: skip
    """The schedule that ``database`` has for ``func``. ``network``: whose verdicts count. ``workload``: that of
    ``func``, if it is known. ``rules``: what the default schedule is made by."""
    asked = _Asked(func, workload or workload_of(func), target, rules)
    match = _found(asked, database, policy, network)
    refused = asked.refused
    if not refused or match.status is Status.MISS:
        return match
    return replace(match, reason=f"{match.reason}; {len(refused)} passed over: {refused[0]}")


def _found(asked: _Asked, database: Database, policy: Policy, network: Networks) -> Match:
    workload, target = asked.workload, asked.target
    exact = database.top_k(workload, 1 << 30, target, "exact")
    if exact:
        found = _use_exact(asked, database, exact, network)
        if found is not None:
            return found
    if policy != "exact":
        for r in database.top_k(workload, _TRIES, target, "compatible"):
            other = ", ".join(target_differences(r.target, target))
            near = f"tuned on another machine ({other})"
            match = _replay(asked, r, near) if other else None
            if match is not None:
                return match
    if policy == "any":
        for r in database.top_k(workload, _TRIES, target, "any"):
            if isa_class(r.target) == isa_class(target) and r.workload.hash != workload.hash:
                match = _adapt(asked, _other_sizes(workload, r), r)
                if match is not None:
                    return match
        for kin in nearest_of_family(canonical(asked.func), workload, target, database, _TRIES):
            match = _adapt(asked, _symbolic(asked.func, kin), kin.record)
            if match is not None:
                return replace(match, dims=kin.sizes if asked.func.dims else {})
    return Match(Status.MISS, _why(asked, database, policy), asked.func)


def _use_exact(asked: _Asked, database: Database, records: Sequence[Record], network: Networks) -> Match | None:
    verdict = database.verdict(asked.workload, asked.target, network) if network else None
    if verdict is not None:
        later = [r for r in records if r.time > verdict.time]
        if verdict.helps:
            # what was found best in the network, unless something measured since then is faster alone
            proved = [r for r in records if r.candidate == verdict.candidate]
            limit = proved[0].seconds if proved else None
            records = [r for r in later if limit is None or (r.seconds or limit) < limit] + proved or records
        elif later:
            records = later
        else:
            slower = verdict.tuned_seconds / verdict.default_seconds
            what = "the record took" if verdict.scope == "kernel" else "with the record the whole took"
            return Match(Status.HIT, f"default kept: in this network {what} {slower:.2f}x its time", asked.func)
    for r in list(records)[:_TRIES]:
        match = _replay(asked, r, "")
        if match is not None:
            return match
    return None


def best_traces(
    func: Func, target: Target, database: Database, k: int, workload: Workload | None = None,
    rules: Sequence[ScheduleRule] = DEFAULT_RULES,
) -> list[tuple[str, Func, Trace]]:  # fmt: skip
    """The best ``k`` records of this machine that replay and are not the default schedule, nor much slower than it,
    whatever verdicts say: the candidate, and its trace with the function under the names that the trace uses."""
    out: list[tuple[str, Func, Trace]] = []
    limit: float | None = None
    asked = _Asked(func, workload or workload_of(func), target, rules)
    for r in database.top_k(asked.workload, 1 << 30, target, "exact"):
        if len(out) == k:
            break
        if limit is not None and (r.seconds or limit) > limit:
            break  # so are all after it
        match = _replay(asked, r, "")
        if match is None:
            continue
        if match.trace is None:
            limit = _CLOSE * (r.seconds or 0.0)
        else:
            out.append((r.candidate, match.func, match.trace))
    return out


def _replay(asked: _Asked, record: Record, near: str) -> Match | None:
    """The record's trace on the same workload. ``near``: what makes it a near miss, or empty for a hit."""
    try:
        named = record.scheduled_function() if record.function else canonical(asked.func)
        if record.function and workload_of(named).hash != asked.workload.hash:
            asked.refused.append("its record names another function")
            return None
        trace = record.trace
        trace.apply(named)
    except (ParseError, ScheduleError) as e:
        asked.refused.append(f"its record does not replay: {str(e).splitlines()[0]}")
        return None
    took = f"{(record.seconds or 0.0) * 1e6:.1f} us when tuned"
    if asked.is_default(trace, named):
        found = f"{near}; it is the default schedule here" if near else f"the default is the best found, {took}"
        return Match(Status.NEAR_MISS if near else Status.HIT, found, asked.func, None, record)
    return Match(Status.NEAR_MISS if near else Status.HIT, f"{near}; {took}" if near else took, named, trace, record)


def _other_sizes(workload: Workload, record: Record) -> str:
    sizes = ", ".join(differences(record.workload.text, workload.as_in(record.workload).text))
    return f"tuned for other sizes ({sizes})"


def _symbolic(func: Func, kin: OfFamily) -> str:
    """What distinguishes a kernel of symbolic sizes from one of fixed sizes."""
    if func.dims:
        return f"tuned in a build for the sizes {_named(kin.sizes)}, and this one is for all sizes"
    return f"tuned in a build for all sizes, at {_named(kin.record.dims)}, and this one is for {_named(kin.sizes)}"


def _named(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} = {n}" for name, n in sizes.items())


def _adapt(asked: _Asked, why: str, record: Record) -> Match | None:
    """The record's decisions on a kernel that has other sizes; ``why``: which."""
    machine = ", ".join(target_differences(record.target, asked.target))
    near = f"{why}{f' on another machine ({machine})' if machine else ''}"
    named = canonical(asked.func)
    trace: Trace | None = None
    if not record.function:
        found = Space(named, asked.target, rules=asked.rules).with_decisions(record.choices())
        trace = None if found is None else found.trace
    if trace is None:
        try:
            trace = _replayed(record.trace, named)
        except (ParseError, ScheduleError) as e:
            asked.refused.append(f"{near}, which does not replay here: {str(e).splitlines()[0]}")
            return None
    if asked.is_default(trace, named):
        return Match(Status.NEAR_MISS, f"{near}; its decisions give the default here", asked.func, None, record)
    return Match(Status.NEAR_MISS, near, named, trace, record)


def _replayed(trace: Trace, func: Func) -> Trace:
    """The steps of ``trace`` on ``func`` of other sizes, without those that peel off a partial tile where none is, and
    what is done with the loops of that.

    Raises ScheduleError.
    """
    steps: list[Primitive] = []
    whole = False
    for n, step in enumerate(trace.steps, 1):
        try:
            func = step.apply(func)
        except ScheduleError as e:
            if not isinstance(step, Peel) and not (whole and _OF_TAIL.search(step_text(step))):
                raise ScheduleError(f"step {n} of {len(trace)}: {e}") from e
            whole = True
        else:
            steps.append(step)
    return Trace(tuple(steps))


def _why(asked: _Asked, database: Database, policy: Policy) -> str:
    workload, target = asked.workload, asked.target
    if asked.refused:
        return asked.refused[0]
    structures = dict.fromkeys(w.structure for w in (workload, *workload.former))
    related = [r for s in structures for r in database.relatives(s)]
    same = [r for r in related if r.workload.hash in workload.hashes()]
    pool = same or related
    if not pool and policy != "any":
        pool = database.related(lambda w: is_kin(w, workload))
    if pool:
        foreign = sorted({isa_class(r.target) for r in pool})
        if isa_class(target) not in foreign:
            return f"tuned only for {' and '.join(foreign)}; this is {isa_class(target)}"
        what = "on another machine" if same else "for other sizes"
        return f"tuned only {what}, which policy {policy!r} leaves out"
    isas = recorded_isas(database)
    if not isas:
        return "the database has no records"
    if isa_class(target) not in isas:
        return f"tuned only for {' and '.join(isas)}; this is {isa_class(target)}"
    return "no record of this computation at any size"


def recorded_isas(database: Database) -> list[str]:
    """The classes of CPUs that a database has records for."""
    return sorted({isa_class(t) for t in database.targets()})
