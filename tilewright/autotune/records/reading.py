"""Lines of a tuning log as records: what they must have, what is wrong with a damaged one, and how to read many fast.

A log of 50,000 measurements of schema 1 is 400 MB of text in which almost everything comes again and again: the
workload and the target stand in every record of a kernel, and its traces are made of the same steps. So a
:class:`LineReader` remembers these parts by their text, and what it makes of equal parts is one object. Lines of schema
2 are read as those of schema 1 that they stand for.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, TypeVar

from msgspec import Meta, Raw, Struct, ValidationError
from msgspec.json import Decoder, decode

from tilewright.autotune.base.space import candidate_key
from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.definitions import COMPACT_SCHEMA, Definitions, is_definition
from tilewright.autotune.records.record import (
    SCHEMA_VERSION,
    STANDARD,
    Choice,
    Line,
    NodeChoice,
    Record,
    Verdict,
    decisions_of,
    head_json,
    known_json,
)
from tilewright.autotune.records.session import Session
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.trace import Trace, make_step

_Json: TypeAlias = dict[str, Any]
_T = TypeVar("_T")

_TRACE = b',"trace":['
_NO_VALUE = b"null"
_NULL = Raw(_NO_VALUE)
_SHORT = b'{"schema":2,"like":"'
_KINDS = ("measurement", "verdict", "choice")
_OPEN = ("dims", "versions", "decisions")
_DEEPEST = 64
"""Levels of lists and objects inside a field."""
_LATEST: Final = 253_402_300_800
"""The year 10,000, in seconds since 1970."""

_Duration = Annotated[float, Meta(ge=0.0, le=1e12)]
_Measured = Annotated[float, Meta(ge=1e-12, le=1e12)]
_Time = Annotated[float, Meta(ge=0.0, lt=_LATEST)]
_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class TornLine(ParseError):
    """A line that is no JSON object with a schema: cut off, or damaged."""


# -- fields --------------------------------------------------------------------------------------------------------
class _Legality(Struct):
    triple: str
    features: str
    vector_bits: _Count
    vector_registers: _Count
    has_fma: bool


class _Performance(Struct):
    cpu: str
    l1_bytes: _Count
    l2_bytes: _Count
    l3_bytes: _Count
    threads: _Count


class _Target(Struct):
    legality: _Legality
    performance: _Performance


class _Workload(Struct):
    hash: str
    structure: str
    text: str | None = None


class _Front(Struct):
    """What stands in front of a measurement."""

    schema: int
    workload: Raw
    target: Raw
    kind: str = "measurement"


class _Compact(Struct):
    """What stands in front of a measurement of schema 2."""

    schema: int
    like: str
    kind: str = "measurement"
    workload: Raw = _NULL
    target: Raw = _NULL


class _Session(Struct):
    id: str
    model: str = ""
    digest: str = ""
    started: _Time = 0.0
    commit: str = ""
    host: str = ""


class _Head(Struct):
    workload: _Workload
    target: _Target


class _Measurement(Struct):
    workload: Raw
    target: Raw
    trace: list[Raw]
    candidate: str | None = None
    seconds: _Measured | None = None
    samples: list[_Duration] | None = None
    error: float | None = None
    failure: str | None = None
    message: str | None = None
    compile_seconds: _Duration | None = None
    decisions: dict[str, str | int | list[int]] | None = None
    function: str | None = None
    dims: dict[str, _Count] | None = None
    versions: dict[str, str] | None = None
    time: _Time = 0.0
    tuner: str | None = None
    seed: int | None = None
    task: str | None = None
    session: Raw = _NULL

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.failure is None):
            raise ValueError("expected either 'seconds' or 'failure'")


class _Named(Struct):
    hash: str


class _Verdict(Struct):
    workload: _Named
    network: str
    target: _Target
    candidate: str
    helps: bool
    tuned_seconds: _Measured
    default_seconds: _Measured
    time: _Time
    scope: str = "kernel"


class _Node(Struct):
    name: str
    implementation: str
    seconds: dict[str, _Measured] = {}
    error: float | None = None


class _Choice(Struct):
    workload: _Named
    network: str
    target: _Target
    seconds: dict[str, _Measured]
    time: _Time
    implementation: str | None = None
    algorithm: str | None = None
    errors: dict[str, float] | None = None
    nodes: dict[str, _Node] | None = None


_FIELDS, _FRONT, _MEASUREMENT = Decoder(dict[str, Raw]), Decoder(_Front), Decoder(_Measurement)
_VERDICT, _CHOICE, _COMPACT, _SESSION = Decoder(_Verdict), Decoder(_Choice), Decoder(_Compact), Decoder(_Session)
_KNOWN: Final = frozenset(("schema", "kind", *_Measurement.__struct_fields__))


# -- lines ---------------------------------------------------------------------------------------------------------
class LineReader:
    """Reads the lines of logs; equal parts of what it read are one object. ``definitions``: what ``define`` took."""

    def __init__(self, definitions: Definitions | None = None) -> None:
        self.definitions = Definitions() if definitions is None else definitions
        self._heads: dict[tuple[bytes, bytes], tuple[Workload, Target, bool]] = {}
        self._front: tuple[bytes, tuple[Workload, Target]] | None = None
        self._fronts: dict[str, tuple[Workload, Target]] = {}
        self._steps: dict[bytes, Mapping[str, Any]] = {}
        self._versions: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
        self._sessions: dict[bytes, Session] = {}
        self._parts: dict[Any, Any] = {}

    def define(self, raw: bytes) -> bool:
        """Take the definitions of a line; False for a line of another kind. Raises ParseError if some are damaged,
        after it took the others."""
        if not is_definition(raw):
            return False
        self.definitions.add(raw)
        return True

    def read(self, text: str) -> Line | None:
        """The line that ``text`` holds; None for a kind of line, or a schema, that this version does not know.

        Raises TornLine if it is not JSON, MissingDefinition if it needs one that the reader was not given, another
        ParseError if it lacks what version 1 requires.
        """
        fields, schema, kind = _front_of(text)
        if schema == COMPACT_SCHEMA and kind in _KINDS:
            expanded = self.definitions.expand(text.encode()).decode()
            line = self._read(expanded, _front_of(expanded)[0], kind)
            if isinstance(line, Record) and not line.decisions and '"decisions":' not in expanded:
                return dataclasses.replace(line, decisions=decisions_of(line.steps))
            return line
        return self._read(text, fields, kind) if schema == SCHEMA_VERSION and kind in _KINDS else None

    def _read(self, text: str, fields: Mapping[str, Raw], kind: object) -> Line:
        line: Line
        try:
            match kind:
                case "verdict":
                    line = self._verdict(_VERDICT.decode(text))
                case "choice":
                    line = self._choice(_CHOICE.decode(text))
                case _:
                    line, is_plain = self._record(_MEASUREMENT.decode(text))
                    if is_plain:
                        extra = {k: decode(v) for k, v in fields.items() if k not in _KNOWN}
                        return dataclasses.replace(line, extra=_require_shallow(extra)) if extra else line
            extra = _unknown(decode(text), known_json(line))
            return dataclasses.replace(line, extra=_require_shallow(extra)) if extra else line
        except (ValueError, RecursionError) as e:
            raise ParseError(f"record: missing or malformed field: {e}") from e

    def peek(self, raw: bytes) -> tuple[Workload, Target] | None:
        """What a line is about that looks like a whole measurement; None for others, and for those that need a
        definition which is not here."""
        if self._front is not None and raw.startswith(self._front[0]) and raw.endswith(b"}"):
            return self._front[1]  # lines of one kernel mostly follow each other
        try:
            if raw.startswith(_SHORT):
                return self._peek_short(raw)
            front = _FRONT.decode(raw)
            if front.schema != SCHEMA_VERSION or front.kind != "measurement":
                return None
            workload, target, _ = self._head(front.workload, front.target)
        except (ValueError, RecursionError, ParseError):
            return None
        start, _, _ = raw.partition(_TRACE)
        self._front = (start + _TRACE, (workload, target)) if start.endswith(bytes(front.target)) else None
        return workload, target

    def _peek_short(self, raw: bytes) -> tuple[Workload, Target] | None:
        front = _COMPACT.decode(raw)
        if front.kind != "measurement" or bytes(front.workload) + bytes(front.target) != 2 * _NO_VALUE:
            return None
        if front.like not in self._fronts:
            fields = self.definitions.shared(front.like)
            if not fields.keys() >= {"workload", "target"}:
                return None
            workload, target, _ = self._head(Raw(fields["workload"]), Raw(fields["target"]))
            self._fronts[front.like] = workload, target
        return self._fronts[front.like]

    def _record(self, m: _Measurement) -> tuple[Record, bool]:
        """The record, and whether its workload and target have no fields but those of this version."""
        workload, target, is_plain = self._head(m.workload, m.target)
        steps = self._known_steps(list(map(bytes, m.trace)))
        versions = tuple((m.versions or {}).items())
        record = Record(
            workload, target, steps, m.candidate or candidate_key(Trace.from_json(list(steps))), m.seconds,
            tuple(m.samples or ()), m.error, m.failure, m.message or "", m.compile_seconds, m.decisions or {},
            self._one(m.function or ""), m.dims or {}, self._versions.setdefault(versions, dict(versions)), m.time,
            self._one(m.tuner or ""), m.seed, self._one(m.task or ""), {}, self._session(m.session),
        )  # fmt: skip
        return record, is_plain

    def _verdict(self, v: _Verdict) -> Verdict:
        return Verdict(
            v.workload.hash, v.network, self._target(v.target), v.candidate, v.helps, v.tuned_seconds,
            v.default_seconds, v.time, "network" if v.scope == "network" else "kernel",
        )  # fmt: skip

    def _choice(self, c: _Choice) -> Choice:
        """Lines from before implementations had names of their own have ``algorithm``."""
        chosen = c.implementation if c.algorithm is None else c.algorithm
        if chosen is None:
            raise ValueError("Object missing required field `implementation`")

        def name(x: str) -> str:
            return STANDARD if c.algorithm is not None and x == "direct" else x

        seconds = {name(k): x for k, x in c.seconds.items()}
        nodes = {k: NodeChoice(n.name, n.implementation, n.seconds, n.error) for k, n in (c.nodes or {}).items()}
        return Choice(
            c.workload.hash, c.network, self._target(c.target), name(chosen), seconds, c.time, errors=c.errors or {},
            nodes=nodes,
        )  # fmt: skip

    def _session(self, raw: Raw) -> Session | None:
        if (text := bytes(raw)) == _NO_VALUE:
            return None
        if text not in self._sessions:
            s = _SESSION.decode(text)
            more = {k: v for k, v in decode(text).items() if k not in _Session.__struct_fields__}
            self._sessions[text] = Session(
                s.id, s.model, s.digest, s.started, s.commit, s.host, _require_shallow(more)
            )  # fmt: skip
        return self._sessions[text]

    # -- parts ---------------------------------------------------------------------------------------------------------
    def _one(self, part: _T) -> _T:
        """Of equal parts the first."""
        found: _T = self._parts.setdefault(part, part)
        return found

    def _head(self, workload: Raw, target: Raw) -> tuple[Workload, Target, bool]:
        key = bytes(workload), bytes(target)
        if key not in self._heads:
            text = b'{"workload":%b,"target":%b}' % key
            head = decode(text, type=_Head)
            w = head.workload
            of, on = self._one(Workload(w.hash, w.structure, w.text or "")), self._target(head.target)
            self._heads[key] = of, on, not _unknown(decode(text), head_json(of, on))
        return self._heads[key]

    def _target(self, t: _Target) -> Target:
        legal, fast = t.legality, t.performance
        return self._one(
            Target(
                legal.triple, fast.cpu, legal.features, legal.vector_bits, legal.vector_registers, fast.l1_bytes,
                fast.l2_bytes, fast.l3_bytes, fast.threads, legal.has_fma,
            )
        )  # fmt: skip

    def _known_steps(self, texts: list[bytes]) -> tuple[Mapping[str, Any], ...]:
        known = self._steps
        for t in texts:
            if t not in known:
                known[t] = _require_step(decode(t, type=dict[str, Any]))
        return tuple([known[t] for t in texts])


def from_line(text: str) -> Line | None:
    """The line that ``text`` holds, by a reader of its own; see :meth:`LineReader.read`."""
    return LineReader().read(text)


def _front_of(text: str) -> tuple[Mapping[str, Raw], int, object]:
    """The fields of a line, its schema and its kind. Raises TornLine."""
    try:
        fields = _FIELDS.decode(text)
        schema, kind = (decode(fields.get(k, other)) for k, other in (("schema", b"null"), ("kind", b'"measurement"')))
    except ValidationError as e:
        raise TornLine("expected an object with an integer 'schema'") from e
    except ValueError as e:
        raise TornLine(f"not JSON: {e}") from e
    except RecursionError as e:
        raise TornLine("not JSON that anybody wrote: nested too deeply") from e
    if type(schema) is not int:
        raise TornLine("expected an object with an integer 'schema'")
    return fields, schema, kind


def _unknown(data: Mapping[str, Any], known: Mapping[str, Any]) -> _Json:
    """The fields of ``data``, at any depth of objects, that ``known`` has not."""
    out: _Json = {}
    for k, v in data.items():
        if k not in known:
            out[k] = v
        elif k not in _OPEN and isinstance(v, dict) and isinstance(known[k], dict) and (inner := _unknown(v, known[k])):
            out[k] = inner
    return out


def _require_shallow(data: _T, levels: int = _DEEPEST) -> _T:
    """Data that can be written again wherever this is called from."""
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    if inner and not levels:
        raise ValueError(f"expected at most {_DEEPEST} levels of lists and objects")
    for x in inner:
        _require_shallow(x, levels - 1)
    return data


def _require_step(data: _Json) -> Mapping[str, Any]:
    """A step that is one of this version, or not known to it."""
    name, args = data.get("primitive"), data.get("args")
    if not isinstance(name, str) or not isinstance(args, dict):
        raise ValueError("trace: expected steps with 'primitive' and 'args'")
    if name in PRIMITIVES and args.keys() <= {f.name for f in dataclasses.fields(PRIMITIVES[name])}:
        try:
            make_step("trace", name, (), args)
        except (ParseError, ScheduleError) as e:
            raise ValueError(str(e)) from e
    return _require_shallow(data)
