"""Lines of a tuning log as records: what they must have, what is wrong with a damaged one, and how to read many fast.

A log of 50,000 measurements is 400 MB of text in which almost everything comes again and again: the workload and the
target stand in front of every record of a kernel, and its traces are made of the same steps. So a :class:`LineReader`
remembers these parts by their text, and what it makes of equal parts is one object. Lines that are not written as
``to_line`` writes them are read as JSON as a whole; what is read is the same.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from tilewright.autotune.base.space import candidate_key
from tilewright.autotune.base.workload import Workload
from tilewright.autotune.records.record import (
    SCHEMA_VERSION,
    STANDARD,
    Choice,
    Line,
    Record,
    Verdict,
    head_json,
    known_json,
)
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.machine.target import Target
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.trace import Trace, make_step

_Json: TypeAlias = dict[str, Any]
_Steps: TypeAlias = tuple[Mapping[str, Any], ...]

_START = '{"schema":1,"kind":"measurement","workload":{'
_TRACE = ',"trace":[{"primitive":'
_STEP = '},{"primitive":'
_TRACE_END = '}],"decisions":'
_HEAD: Final = frozenset(("schema", "kind", "workload", "target", "trace"))
_TAIL: Final = frozenset(
    ("decisions", "function", "candidate", "seconds", "samples", "error", "failure", "message", "compile_seconds",
     "dims", "versions", "time", "tuner", "seed", "task")
)  # fmt: skip
_OPEN = ("dims", "versions", "decisions")
_DEEPEST = 64
"""Levels of lists and objects inside a field."""
_SHOWN = 60
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What reading a field raises that is not what it should be."""
_SHORTEST, _LONGEST = 1e-12, 1e12
"""Seconds that anything takes."""
_LATEST = 253_402_300_800
"""The year 10,000, in seconds since 1970."""


class TornLine(ParseError):
    """A line that is no JSON object with a schema: cut off, or damaged."""


class LineReader:
    """Reads the lines of logs; equal parts of what it read are one object."""

    def __init__(self) -> None:
        self._heads: dict[str, tuple[Workload, Target]] = {}
        self._front: tuple[str, tuple[Workload, Target]] | None = None
        self._steps: dict[str, Mapping[str, Any]] = {}
        self._texts: dict[str, str] = {}
        self._dicts: dict[object, Mapping[str, str]] = {}
        self._workloads: dict[Workload, Workload] = {}
        self._targets: dict[Target, Target] = {}

    def read(self, text: str) -> Line | None:
        """The line that ``text`` holds; None for a kind of line, or a schema, that this version does not know.

        Raises TornLine if it is not JSON, another ParseError if it lacks what version 1 requires.
        """
        try:
            return self._known_form(text) or self._any_form(text)
        except _MALFORMED as e:
            what = f"{e.args[0]!r} is missing" if isinstance(e, KeyError) else str(e)
            raise ParseError(f"record: missing or malformed field: {what}") from e

    def peek(self, raw: bytes) -> tuple[Workload, Target] | None:
        """What a line is about that looks like a whole measurement as ``to_line`` writes it; None for others."""
        text = raw.decode(errors="replace")
        front = self._front_of(text)
        return None if front is None or not text.endswith("}") else front[1]

    # -- the two ways --------------------------------------------------------------------------------------------------
    def _known_form(self, text: str) -> Record | None:
        """A measurement as ``to_line`` writes it; None for any other text.

        In JSON no string has a quote without a backslash before it, so the marks that are looked for are between its
        strings; if the parts between them are JSON, then so is the whole.
        """
        front = self._front_of(text)
        if front is None:
            return None
        at = len(front[0])
        end = text.rfind(_TRACE_END, at)
        if end < 0:
            return None
        try:
            steps = self._known_steps(text[at:end].split(_STEP))
            tail = _loads("{" + text[end + 3 :])
        except TornLine:
            return None
        if not tail.keys().isdisjoint(_HEAD):
            return None
        extra = {k: v for k, v in tail.items() if k not in _TAIL}
        return self._record(*front[1], steps, tail, extra)

    def _front_of(self, text: str) -> tuple[str, tuple[Workload, Target]] | None:
        if self._front is None or not text.startswith(self._front[0]):  # lines of one kernel mostly follow each other
            self._front = self._find_front(text)
        return self._front

    def _find_front(self, text: str) -> tuple[str, tuple[Workload, Target]] | None:
        """A measurement's text up to its first step, and what stands in front of its trace. None for another text, one
        that is malformed there, or has fields that this version does not know."""
        at = text.find(_TRACE)
        if at < 0 or not text.startswith(_START):
            return None
        front, head = text[: at + len(_TRACE)], text[:at]
        if head not in self._heads:
            try:
                data = _loads(head + "}")
                workload, target = self._workload(data["workload"]), self._target(data["target"])
            except (ParseError, *_MALFORMED):
                return None
            if _unknown(data, head_json(workload, target)):
                return None
            self._heads[head] = workload, target
        return front, self._heads[head]

    def _known_steps(self, pieces: list[str]) -> _Steps:
        known = self._steps
        try:
            return tuple([known[p] for p in pieces])
        except KeyError:
            for p in pieces:
                if p not in known:
                    known[p] = _require_step(_loads('{"primitive":' + p + "}"))
            return tuple([known[p] for p in pieces])

    def _any_form(self, text: str) -> Line | None:
        data = _loads(text)
        if type(data.get("schema")) is not int:
            raise TornLine("expected an object with an integer 'schema'")
        if data["schema"] != SCHEMA_VERSION:
            return None
        line: Line
        match data.get("kind", "measurement"):
            case "measurement":
                steps = tuple(map(_require_step, _list("trace", data["trace"])))
                line = self._record(self._workload(data["workload"]), self._target(data["target"]), steps, data, {})
            case "verdict":
                line = self._verdict(data)
            case "choice":
                line = self._choice(data)
            case _:
                return None
        extra = _unknown(data, known_json(line))
        return dataclasses.replace(line, extra=_require_plain(extra)) if extra else line

    # -- lines ---------------------------------------------------------------------------------------------------------
    def _record(self, workload: Workload, target: Target, steps: _Steps, d: _Json, extra: _Json) -> Record:
        get, text = d.get, self._text
        seconds, failure = get("seconds"), get("failure")
        if (seconds is None) == (failure is None):
            raise ValueError("expected either 'seconds' or 'failure'")
        return Record(
            workload,
            target,
            steps,
            candidate=_plain_text("candidate", get("candidate")) or candidate_key(Trace.from_json(list(steps))),
            seconds=None if seconds is None else _measured("seconds", seconds),
            samples=_durations("samples", get("samples") or []),
            error=None if get("error") is None else _number("error", d["error"]),
            failure=None if failure is None else text("failure", failure),
            message=text("message", get("message")),
            compile_seconds=None if get("compile_seconds") is None else _duration("compiling", d["compile_seconds"]),
            decisions=self._decisions(_object("decisions", get("decisions"))),
            function=text("function", get("function")),
            dims={text("dims", k): _count("dims", v) for k, v in _object("dims", get("dims")).items()},
            versions=self._versions(_object("versions", get("versions"))),
            time=_time(get("time", 0.0)),
            tuner=text("tuner", get("tuner")),
            seed=None if get("seed") is None else _whole("seed", d["seed"]),
            task=text("task", get("task")),
            extra=_require_plain(extra) if extra else extra,
        )

    def _verdict(self, d: _Json) -> Verdict:
        workload = _object("workload", d["workload"])
        return Verdict(
            self._text("workload.hash", workload["hash"]), self._text("network", d["network"]),
            self._target(d["target"]), self._text("candidate", d["candidate"]), _flag("helps", d["helps"]),
            _measured("tuned_seconds", d["tuned_seconds"]), _measured("default_seconds", d["default_seconds"]),
            _time(d["time"]), "network" if d.get("scope") == "network" else "kernel",
        )  # fmt: skip

    def _choice(self, d: _Json) -> Choice:
        workload = _object("workload", d["workload"])
        old = "algorithm" in d  # written before implementations had names of their own

        def name(x: object) -> str:
            return STANDARD if old and x == "direct" else self._text("implementation", x)

        return Choice(
            self._text("workload.hash", workload["hash"]), self._text("network", d["network"]),
            self._target(d["target"]), name(d["algorithm" if old else "implementation"]),
            {name(k): _measured("seconds", v) for k, v in _object("seconds", d["seconds"]).items()}, _time(d["time"]),
        )  # fmt: skip

    # -- parts ---------------------------------------------------------------------------------------------------------
    def _text(self, name: str, value: object) -> str:
        """:func:`_plain_text`, equal ones as one object."""
        known = self._texts.get(value) if type(value) is str else None
        if known is None:
            known = _plain_text(name, value)
            self._texts[known] = known
        return known

    def _versions(self, d: _Json) -> Mapping[str, str]:
        name = tuple(d.items())
        if name not in self._dicts:
            self._dicts[name] = {_plain_text("versions", k): _plain_text("versions", v) for k, v in name}
        return self._dicts[name]

    def _decisions(self, d: _Json) -> _Json:
        known, text = self._texts, self._text
        try:
            return {known[k]: v if type(v) is int else known[v] for k, v in d.items()}
        except (KeyError, TypeError):
            return {text("decisions", k): v if type(v) is int else self._decision(v) for k, v in d.items()}

    def _decision(self, value: object) -> str | list[int]:
        if isinstance(value, list):
            return [_whole("decisions", x) for x in value]
        return self._text("decisions", value)

    def _workload(self, data: object) -> Workload:
        d = _object("workload", data)
        found = Workload(
            self._text("workload.hash", d["hash"]), self._text("workload.structure", d["structure"]),
            self._text("workload.text", d.get("text")),
        )  # fmt: skip
        return self._workloads.setdefault(found, found)

    def _target(self, data: object) -> Target:
        d = _object("target", data)
        legality, performance = (_object(f"target.{k}", d[k]) for k in ("legality", "performance"))
        found = Target(
            self._text("triple", legality["triple"]), self._text("cpu", performance["cpu"]),
            self._text("features", legality["features"]), _count("vector_bits", legality["vector_bits"]),
            _count("vector_registers", legality["vector_registers"]), _count("l1_bytes", performance["l1_bytes"]),
            _count("l2_bytes", performance["l2_bytes"]), _count("l3_bytes", performance["l3_bytes"]),
            _count("threads", performance["threads"]), _flag("has_fma", legality["has_fma"]),
        )  # fmt: skip
        return self._targets.setdefault(found, found)


def from_line(text: str) -> Line | None:
    """The line that ``text`` holds, by a reader of its own; see :meth:`LineReader.read`."""
    return LineReader().read(text)


# -- JSON ----------------------------------------------------------------------------------------------------------
def _refuse(text: str) -> float:
    raise ValueError(f"{text} is not a number in JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _loads(text: str) -> _Json:
    """An object. Raises TornLine."""
    try:
        data, end = _DECODER.raw_decode(text)
        if end != len(text):
            data = _DECODER.decode(text)
    except ValueError as e:
        raise TornLine(f"not JSON: {e}") from e
    except RecursionError as e:
        raise TornLine("not JSON that anybody wrote: nested too deeply") from e
    if not isinstance(data, dict):
        raise TornLine("expected an object with an integer 'schema'")
    return data


def _unknown(data: Mapping[str, Any], known: Mapping[str, Any]) -> _Json:
    """The fields of ``data``, at any depth of objects, that ``known`` has not."""
    out: _Json = {}
    for k, v in data.items():
        if k not in known:
            out[k] = v
        elif k not in _OPEN and isinstance(v, dict) and isinstance(known[k], dict) and (inner := _unknown(v, known[k])):
            out[k] = inner
    return out


def _require_plain(extra: _Json) -> _Json:
    """Unknown fields as they are, if they can be written again."""
    level: list[Any] = [extra]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for container in level:
            for v in container.values() if isinstance(container, dict) else container:
                kind = type(v)
                if kind is float and not math.isfinite(v):
                    raise ValueError(f"expected finite numbers, got {v}")
                if kind is dict or kind is list:
                    inner.append(v)
        if not inner:
            return extra
        level = inner
    raise ValueError(f"expected at most {_DEEPEST} levels of lists and objects")


def _require_step(step: _Json) -> Mapping[str, Any]:
    """A step that is one of this version, or not known to it."""
    name, args = step.get("primitive"), step.get("args")
    if not isinstance(name, str) or not isinstance(args, dict):
        raise ValueError("trace: expected steps with 'primitive' and 'args'")
    if name in PRIMITIVES and args.keys() <= {f.name for f in dataclasses.fields(PRIMITIVES[name])}:
        try:
            make_step("trace", name, (), args)
        except (ParseError, ScheduleError) as e:
            raise ValueError(str(e)) from e
    _require_plain(step)
    return step


# -- values --------------------------------------------------------------------------------------------------------
def _wrong(name: str, expected: str, value: object) -> ValueError:
    return ValueError(f"{name}: expected {expected}, got {_short(value)}")


def _number(name: str, value: object) -> float:
    if type(value) is float or type(value) is int:
        number = float(value)
        if math.isfinite(number):
            return number
    raise _wrong(name, "a finite number", value)


def _durations(name: str, value: object) -> tuple[float, ...]:
    values = _list(name, value)
    if set(map(type, values)) == {float} and min(values) >= 0.0 and max(values) <= _LONGEST:
        return tuple(values)
    return tuple([_duration(name, x) for x in values])


def _duration(name: str, value: object) -> float:
    seconds = _number(name, value)
    if 0.0 <= seconds <= _LONGEST:
        return seconds
    raise _wrong(name, "seconds", value)


def _measured(name: str, value: object) -> float:
    seconds = _duration(name, value)
    if seconds >= _SHORTEST:
        return seconds
    raise _wrong(name, "a positive number of seconds", value)


def _time(value: object) -> float:
    seconds = _number("time", value)
    if 0.0 <= seconds < _LATEST:
        return seconds
    raise _wrong("time", "seconds since 1970", value)


def _whole(name: str, value: object) -> int:
    if type(value) is int:
        return value
    raise _wrong(name, "a whole number", value)


def _count(name: str, value: object) -> int:
    number = _whole(name, value)
    if 0 <= number < 1 << 63:
        return number
    raise _wrong(name, "a count", value)


def _flag(name: str, value: object) -> bool:
    if type(value) is bool:
        return value
    raise _wrong(name, "true or false", value)


def _plain_text(name: str, value: object) -> str:
    """Text that can be written; absent is empty."""
    if value is None:
        return ""
    if type(value) is not str:
        raise _wrong(name, "text", value)
    value.encode()  # half of a surrogate pair is a ValueError
    return value


def _object(name: str, value: object) -> _Json:
    """An object; absent is empty."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    raise _wrong(name, "an object", value)


def _list(name: str, value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    raise _wrong(name, "a list", value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
