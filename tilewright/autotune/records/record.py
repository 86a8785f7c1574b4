"""One line of a tuning log: a measurement, a verdict on a record in its network, or a choice of implementation.
Version 1.

``docs/log-format.md`` is the written form of this file, of ``reading.py`` and of ``definitions.py``, with the promise
that logs of version 1 stay readable. Fields that this version does not know are kept: they are part of the record and
are written again with it.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.session import Session
from tilewright.machine.target import Target
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func

SCHEMA_VERSION = 1

VerdictScope: TypeAlias = Literal["kernel", "network"]

Machine: TypeAlias = tuple[str, str, int, int, int, int]

_Json: TypeAlias = dict[str, Any]
_PERFORMANCE = ("cpu", "l1_bytes", "l2_bytes", "l3_bytes", "threads")
_OPEN = ("dims", "versions", "decisions")
_LEGALITY = ("triple", "features", "vector_bits", "vector_registers", "has_fma")


class RecordWarning(UserWarning):
    """A line of a tuning log that was skipped, and why."""


@dataclass(frozen=True, slots=True)
class Record:
    """One measured candidate.

    ``steps``: the trace with its decisions, as :meth:`Trace.to_json` gives it, over the names of ``function`` (a text),
    or the workload's canonical names if that is empty. ``decisions``: all answers by label, also those that left no
    step. ``candidate``: digest of the trace's text.
    ``seconds``: median of ``samples``, or of the fastest visit's samples; None if ``failure`` says why there is none.
    ``error``: the largest deviation from the naive schedule's result, in units of its scale. ``dims``: sizes of the
    symbolic dimensions when measured. ``time``: seconds since the epoch. ``task``: a name for people. ``session``:
    which tuning of which model measured it; None in older logs. ``extra``: unknown fields.
    """

    workload: Workload
    target: Target
    steps: tuple[Mapping[str, Any], ...]
    candidate: str
    seconds: float | None
    samples: tuple[float, ...] = ()
    error: float | None = None
    failure: str | None = None
    message: str = ""
    compile_seconds: float | None = None
    decisions: Mapping[str, Any] = field(default_factory=dict)
    function: str = ""
    dims: Mapping[str, int] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    time: float = 0.0
    tuner: str = ""
    seed: int | None = None
    task: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    session: Session | None = None

    @property
    def trace(self) -> Trace:
        """The schedule. Raises ParseError if it has a step that this version does not know."""
        return Trace.from_json(list(self.steps))

    @property
    def text(self) -> str:
        """The function that the trace is of, with the names that the trace uses."""
        return self.function or self.workload.text

    def scheduled_function(self) -> Func:
        """``text`` as a function. Raises ParseError."""
        return parse_func(self.text)

    def choices(self) -> dict[str, Any]:
        """What was decided, by label, lists as tuples; from the trace's own steps if ``decisions`` is empty."""
        given = self.decisions or decisions_of(self.steps)
        return {k: tuple(v) if isinstance(v, list) else v for k, v in given.items()}

    @property
    def is_wrong(self) -> bool:
        """True if the candidate's result was not that of the naive schedule."""
        return self.failure == FailureKind.WRONG_RESULT

    @property
    def is_default(self) -> bool:
        """True if it says of itself that it is of the default schedule."""
        return self.extra.get("default") is True

    @property
    def implementation(self) -> str:
        """By what the node of its kernel is computed, where there is a choice; empty where there is none, and in older
        logs."""
        return str(self.extra.get("implementation", ""))

    @property
    def is_of_first_batch(self) -> bool:
        """True unless other candidates of its task were measured in an earlier batch."""
        return not self.extra.get("batch")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a record did in its place: a network measured with it and without it.

    It is about the records of a workload made until ``time``, in the network with this digest, on this target. The
    latest verdict counts; ``helps`` False means that the default schedule is used instead. The seconds are those of the
    kernel in its place, or of the whole network, as ``scope`` says.
    """

    workload: str
    network: str
    target: Target
    candidate: str
    helps: bool
    tuned_seconds: float
    default_seconds: float
    time: float
    scope: VerdictScope = "kernel"
    extra: Mapping[str, Any] = field(default_factory=dict)


STANDARD = "standard"
"""In the choices of older logs: the implementation that rounds as the definition does, whichever that is."""


@dataclass(frozen=True, slots=True)
class NodeChoice:
    """The precision of one node. ``name``: for people. ``seconds``: of its kernel, by precision. ``error``: that of the
    network's results with this node alone reduced; None if it was not measured, or is not finite."""

    name: str
    implementation: str
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Which implementation a network uses for a kernel that has several (a convolution: direct or Winograd's).

    ``workload``: hash of the kernel as the network has it without records. ``seconds``: a call in its place, by
    implementation, each with its best schedule. ``implementation``: the one to use. The latest choice counts.

    A choice for the network as a whole has its digest as ``workload`` and precisions as implementations; ``errors``:
    the root mean square by which their results differ from float32's, as a share of that of the results. ``nodes``:
    which precision each node has, by its place in the network, if they do not all have the same.
    """

    workload: str
    network: str
    target: Target
    implementation: str
    seconds: Mapping[str, float]
    time: float
    extra: Mapping[str, Any] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    nodes: Mapping[str, NodeChoice] = field(default_factory=dict)


Line: TypeAlias = Record | Verdict | Choice


def time_after(before: Verdict | Choice | None, now: float) -> float:
    """``now``, or just after ``before`` where a clock is behind it or stands still: the latest line counts."""
    return now if before is None else max(now, math.nextafter(before.time, math.inf))


def make_record(
    task: Task, candidate: Candidate, result: MeasureResult, tuner: str = "", seed: int | None = None,
    time: float = 0.0, session: Session | None = None,
) -> Record:  # fmt: skip
    """The record of one measurement. ``task.func`` need not have canonical names."""
    common = Record(
        workload=task.described,
        target=task.target,
        steps=tuple(_plain(candidate.trace.to_json())),
        candidate=candidate.key,
        seconds=None,
        decisions=_plain(candidate.values()),
        function=str(task.func) if task.has_own_names else "",
        dims=dict(task.dims),
        versions=tuner_versions(),
        time=time,
        tuner=tuner,
        seed=seed,
        task=task.name,
        session=session,
    )
    if isinstance(result, Failed):
        return dataclasses.replace(common, failure=str(result.kind), message=result.message)
    return dataclasses.replace(
        common, seconds=result.seconds, samples=result.samples, error=result.error,
        compile_seconds=result.compile_seconds,
    )  # fmt: skip


def result_of(record: Record) -> MeasureResult:
    """The result that a record keeps. A kind of failure that this version does not know is one of a lost worker."""
    if record.seconds is not None:
        return Ok(record.seconds, record.samples, record.error or 0.0, record.compile_seconds or 0.0)
    kinds = [k for k in FailureKind if k.value == record.failure]
    return Failed(kinds[0] if kinds else FailureKind.WORKER_LOST, record.message)


# -- targets -------------------------------------------------------------------------------------------------------
def isa_class(target: Target) -> str:
    """What must be equal for a schedule to be legal and to mean the same: architecture and vector unit."""
    arch = target.triple.split("-")[0]
    fma = " fma" if target.has_fma else ""
    return f"{arch} {target.vector_bits}-bit x{target.vector_registers}{fma}"


def machine_of(target: Target) -> Machine:
    """What makes two machines the same for a record."""
    t = target
    return (isa_class(t), t.cpu, t.threads, t.l1_bytes, t.l2_bytes, t.l3_bytes)


def target_differences(a: Target, b: Target) -> tuple[str, ...]:
    """What makes ``b`` another machine than ``a``, the weightiest first: ``2 -> 4 threads``."""
    out = []
    if isa_class(a) != isa_class(b):
        out.append(f"{isa_class(a)} -> {isa_class(b)}")
    if a.cpu != b.cpu:
        out.append(f"{a.cpu} -> {b.cpu}")
    if a.threads != b.threads:
        out.append(f"{a.threads} -> {b.threads} threads")
    for level in ("l1", "l2", "l3"):
        x, y = getattr(a, f"{level}_bytes"), getattr(b, f"{level}_bytes")
        if x != y:
            out.append(f"{level} {x >> 10} -> {y >> 10} KiB")
    return tuple(out)


@functools.cache
def tuner_versions() -> Mapping[str, str]:
    """The versions that decide what a trace turns into."""
    out = {}
    for name in ("tilewright", "llvmlite", "numpy"):
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            out[name] = "unknown"
    return out


# -- text ----------------------------------------------------------------------------------------------------------
def to_line(line: Line) -> str:
    """A line by itself: its JSON text in schema 1, without the newline. Logs have it shorter, see ``compact.py``."""
    return json.dumps(line_json(line), separators=(",", ":"), allow_nan=False)


def line_json(line: Line) -> _Json:
    """The fields of a line in schema 1, also those that this version does not know."""
    return _merged(line.extra, known_json(line))


def known_json(line: Line) -> _Json:
    """The fields that this version writes."""
    match line:
        case Record():
            return _record_json(line)
        case Verdict():
            return _verdict_json(line)
        case Choice():
            return _choice_json(line)


def head_json(workload: Workload, target: Target) -> _Json:
    """The fields of a measurement in front of its trace."""
    return {
        "schema": SCHEMA_VERSION,
        "kind": "measurement",
        "workload": {"hash": workload.hash, "structure": workload.structure, "text": workload.text},
        "target": _target_json(target),
    }


def _record_json(r: Record) -> _Json:
    return {
        **head_json(r.workload, r.target),
        "trace": [dict(s) for s in r.steps],
        "decisions": {k: list(v) if isinstance(v, tuple) else v for k, v in r.decisions.items()},
        "function": r.function,
        "candidate": r.candidate,
        "seconds": r.seconds,
        "samples": list(r.samples),
        "error": None if r.error is None or not math.isfinite(r.error) else r.error,
        "failure": None if r.failure is None else str(r.failure),
        "message": r.message,
        "compile_seconds": r.compile_seconds,
        "dims": dict(r.dims),
        "versions": dict(r.versions),
        "time": r.time,
        "tuner": r.tuner,
        "seed": r.seed,
        "task": r.task,
        **({} if r.session is None else {"session": r.session.to_json()}),
    }


def _verdict_json(v: Verdict) -> _Json:
    return {
        "schema": SCHEMA_VERSION,
        "kind": "verdict",
        "workload": {"hash": v.workload},
        "network": v.network,
        "target": _target_json(v.target),
        "candidate": v.candidate,
        "helps": v.helps,
        "tuned_seconds": v.tuned_seconds,
        "default_seconds": v.default_seconds,
        "time": v.time,
        "scope": v.scope,
    }


def _choice_json(c: Choice) -> _Json:
    return {
        "schema": SCHEMA_VERSION,
        "kind": "choice",
        "workload": {"hash": c.workload},
        "network": c.network,
        "target": _target_json(c.target),
        "implementation": c.implementation,
        "seconds": dict(c.seconds),
        "time": c.time,
        **({"errors": dict(c.errors)} if c.errors else {}),
        **({"nodes": {k: _node_json(n) for k, n in c.nodes.items()}} if c.nodes else {}),
    }


def _node_json(n: NodeChoice) -> _Json:
    return {"name": n.name, "implementation": n.implementation, "seconds": dict(n.seconds), "error": n.error}


def _target_json(t: Target) -> _Json:
    return {
        "legality": {"isa": isa_class(t), **{k: getattr(t, k) for k in _LEGALITY}},
        "performance": {k: getattr(t, k) for k in _PERFORMANCE},
    }


def _merged(extra: Mapping[str, Any], known: Mapping[str, Any]) -> _Json:
    out: _Json = dict(known)
    for k, v in extra.items():
        if k not in out:
            out[k] = v
        elif isinstance(v, dict) and isinstance(out[k], dict):
            out[k] = _merged(v, out[k])
    return out


def decisions_of(steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Labels and answers of the steps that sample."""
    out: dict[str, Any] = {}
    for s in steps:
        match s:
            case {"primitive": "sample_categorical", "args": {"label": label, "decision": decision}}:
                out[str(label)] = decision
            case {"primitive": "sample_perfect_tile", "args": {"loop": loop, "decision": decision}}:
                out[f"{loop}.tile"] = decision
            case {"primitive": "sample_compute_location", "args": {"block": block, "decision": decision}}:
                out[f"{block}.at"] = decision
    return out


def sort_key(r: Record) -> tuple[float, float, str]:
    """Records from best to worst; ties are broken by what does not depend on the order of lines."""
    return (r.seconds if r.seconds is not None else float("inf"), r.time, r.candidate)


def _plain(data: Any) -> Any:
    """Data as it comes back from a file: tuples as lists."""
    return json.loads(json.dumps(data))
