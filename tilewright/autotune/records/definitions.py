"""Lines of schema 2: what many of them have in common is in the log once, as definitions that they name.

A line of kind ``define`` has ``objects`` and ``steps`` by id. An object is some fields of a line; ``like`` in a line,
or in another object, names one object or several, whose fields it has unless it has its own. A list of steps may have
ids in it, which stand for the steps of these definitions; a step may be a list of its name and its arguments. A
workload may lack what follows from its text. So every line of schema 2 is short for one of schema 1, which
:meth:`Definitions.expand` gives, and the rest of this room reads that.

An id is a digest of what it stands for. So definitions of several writers, files and times never contradict each other,
they may come in any order and again, and a damaged one is found.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Raw, Struct
from msgspec.json import Decoder, decode, encode

from tilewright.autotune.base.workload import digests_of
from tilewright.core.errors import ParseError

COMPACT_SCHEMA = 2
DEFINE = "define"
_ID_LENGTH: Final = 10
"""Digits of base 64: of a million definitions two have the same id with a probability of 4e-7."""
_DEEPEST = 16
"""How many definitions may be inside each other."""
_LONGEST_TRACE = 4 << 20
"""Bytes of a trace that is written out: definitions inside each other could double it at each level."""
_OWN = frozenset(("schema", "like"))
_DEFINING = frozenset(("schema", "kind", "objects", "steps"))


class MissingDefinition(ParseError):
    """A line that names a definition which the log does not have."""


class _Define(Struct):
    objects: dict[str, Raw] = {}
    steps: dict[str, Raw] = {}


class _Kind(Struct):
    schema: int
    kind: str = "measurement"


_FIELDS, _STEPS, _KIND, _DEFINE = Decoder(dict[str, Raw]), Decoder(list[Raw]), Decoder(_Kind), Decoder(_Define)
_ID, _IDS = Decoder(str), Decoder(list[str])


def id_of(text: bytes) -> str:
    """The id of what is written as ``text``: compact JSON."""
    return base64.urlsafe_b64encode(hashlib.sha256(text).digest())[:_ID_LENGTH].decode()


def is_definition(line: bytes) -> bool:
    """True for a line of kind ``define`` of this schema."""
    if b'"define"' not in line:
        return False
    try:
        found = _KIND.decode(line)
    except (ValueError, RecursionError):
        return False
    return found.schema == COMPACT_SCHEMA and found.kind == DEFINE


def is_compact(line: bytes) -> bool:
    """True for a line of this schema, of any kind."""
    try:
        return _KIND.decode(line).schema == COMPACT_SCHEMA
    except (ValueError, RecursionError):
        return False


def define_line(objects: Mapping[str, bytes], steps: Mapping[str, bytes]) -> bytes:
    """A line that defines these texts by their ids."""

    def table(given: Mapping[str, bytes]) -> bytes:
        return b"{%b}" % b",".join(b'"%b":%b' % (k.encode(), v) for k, v in given.items())

    parts = [b'"%b":%b' % (n, table(g)) for n, g in ((b"steps", steps), (b"objects", objects)) if g]
    return b'{"schema":%d,"kind":"%b",%b}' % (COMPACT_SCHEMA, DEFINE.encode(), b",".join(parts))


def references_of(text: bytes) -> set[str]:
    """The ids that a line, an object or a list of steps names itself."""
    if text.startswith(b"["):
        return {_ID.decode(x) for x in _STEPS.decode(text) if bytes(x).startswith(b'"')}
    fields = _FIELDS.decode(text)
    out = set(_likes(fields))
    trace = bytes(fields.get("trace", b""))
    return out | (references_of(trace) if trace.startswith(b"[") else set())


class Definitions:
    """Definitions by id, from lines that come in any order."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}
        self._fields: dict[str, Mapping[str, bytes]] = {}
        self._steps: dict[str, bytes] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def texts(self) -> Mapping[str, bytes]:
        """All that is here, by id."""
        return self._texts

    def add(self, line: bytes) -> None:
        """Take what a line defines. What is damaged is left out, and a ParseError at the end says so."""
        try:
            found = _DEFINE.decode(line)
        except (ValueError, RecursionError) as e:
            raise ParseError(f"definitions: {e}") from e
        damaged = []
        for name, raw in (*found.objects.items(), *found.steps.items()):
            if name not in self._texts:
                try:
                    self._texts[name] = _checked(name, bytes(raw))
                except (ValueError, RecursionError):
                    damaged.append(name)
        if damaged:
            raise ParseError(
                f"definitions: expected what the id is a digest of, got another text ({', '.join(damaged)})"
            )

    def trimmed(self, line: bytes, names: set[str]) -> tuple[bytes | None, set[str]]:
        """A line of definitions with those alone that are among ``names``, and which these are; None if there are none.
        One with fields that this version does not know stays as it is."""
        found, fields = _DEFINE.decode(line), _FIELDS.decode(line.decode(errors="replace"))
        objects, steps = (
            {k: self._texts[k] for k in part if k in names and k in self._texts}
            for part in (found.objects, found.steps)
        )
        defined = objects.keys() | steps.keys()
        if fields.keys() - _DEFINING:
            return line, defined
        return define_line(objects, steps) if defined else None, defined

    def used_by(self, names: set[str]) -> set[str]:
        """These definitions, and all that they name, as far as they are here."""
        out: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name in self._texts and name not in out:
                out.add(name)
                todo.extend(references_of(self._texts[name]))
        return out

    def expand(self, line: bytes) -> bytes:
        """The line of schema 1 that a line of schema 2 stands for. Raises MissingDefinition, ParseError."""
        try:
            fields = _FIELDS.decode(line)
            whole = {**self._inherited(fields, _DEEPEST), **self._own(fields)}
            return b'{"schema":1,%b}' % b",".join(b"%b:%b" % (encode(k), v) for k, v in whole.items())
        except (ValueError, RecursionError) as e:
            raise ParseError(f"record: malformed reference: {e}") from e

    def shared(self, name: str) -> Mapping[str, bytes]:
        """All fields of an object, with those that it has from others. Raises MissingDefinition, ParseError."""
        return self._object(name, _DEEPEST)

    def _object(self, name: str, levels: int) -> Mapping[str, bytes]:
        known = self._fields.get(name)
        if known is None:
            fields = _FIELDS.decode(self._text(name, b"{", levels))
            known = self._fields[name] = {**self._inherited(fields, levels - 1), **self._own(fields)}
        return known

    def _inherited(self, fields: Mapping[str, Raw], levels: int) -> dict[str, bytes]:
        out: dict[str, bytes] = {}
        for name in _likes(fields):
            out.update(self._object(name, levels))
        return out

    def _own(self, fields: Mapping[str, Raw]) -> dict[str, bytes]:
        out = {k: bytes(v) for k, v in fields.items() if k not in _OWN}
        trace = out.get("trace", b"")
        if trace.startswith(b"["):
            out["trace"] = b"[%b]" % self._joined(trace, _DEEPEST)
        if "workload" in out:
            out["workload"] = _whole_workload(out["workload"])
        return out

    def _joined(self, text: bytes, levels: int) -> bytes:
        """The steps in a list, separated by commas."""
        parts, length = [], 0
        for raw in _STEPS.decode(text):
            part = bytes(raw)
            if part.startswith(b'"'):
                part = self._named_steps(_ID.decode(part), levels)
            elif part.startswith(b"["):
                part = b'{"primitive":%b,"args":%b}' % decode(part, type=tuple[Raw, Raw])
            parts.append(part)
            length += len(part) + 1
            if length > _LONGEST_TRACE:
                raise ParseError(f"record: expected a trace of at most {_LONGEST_TRACE} bytes, got a longer one")
        return b",".join(p for p in parts if p)

    def _named_steps(self, name: str, levels: int) -> bytes:
        known = self._steps.get(name)
        if known is None:
            known = self._steps[name] = self._joined(self._text(name, b"[", levels), levels - 1)
        return known

    def _text(self, name: str, start: bytes, levels: int) -> bytes:
        text = self._texts.get(name)
        if text is None:
            raise MissingDefinition(f"record: it needs a definition that the log does not have ({name})")
        if not text.startswith(start) or not levels:
            raise ParseError(f"record: expected another kind of definition, got {name}")
        return text


def _likes(fields: Mapping[str, Raw]) -> list[str]:
    text = bytes(fields.get("like", b"[]"))
    return [_ID.decode(text)] if text.startswith(b'"') else _IDS.decode(text)


def short_step(step: Mapping[str, Any]) -> list[Any] | Mapping[str, Any]:
    """A step as a definition has it."""
    return list(step.values()) if tuple(step) == ("primitive", "args") else step


def short_workload(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """A workload as a definition has it."""
    made = digests_of(text) if isinstance(text := fields.get("text"), str) and text else {}
    return {k: v for k, v in fields.items() if made.get(k) != v}


def _whole_workload(text: bytes) -> bytes:
    fields = decode(text)
    if (
        not isinstance(fields, dict)
        or not isinstance(fields.get("text"), str)
        or fields.keys() >= {"hash", "structure"}
    ):
        return text
    return json.dumps({**digests_of(fields["text"]), **fields}, separators=(",", ":"), allow_nan=False).encode()


def _checked(name: str, text: bytes) -> bytes:
    """The text, compact, if it is what ``name`` is a digest of. Raises ValueError."""
    text.decode()
    if id_of(text) == name:
        return text
    plain = json.dumps(decode(text), separators=(",", ":"), allow_nan=False).encode()  # written again by another tool
    if id_of(plain) != name:
        raise ValueError(name)
    return plain
