"""Lines as a log has them: short, with what they share as definitions.

Four kinds of definitions make a measurement short: its workload, its machine, its session and its task are objects;
a candidate is an object with its trace, of which pieces are shared (from one decision to the next), and in these the
steps. So a record is what was measured, and one id.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tilewright.autotune.records.definitions import COMPACT_SCHEMA, define_line, id_of, short_step, short_workload
from tilewright.autotune.records.record import Line, decisions_of, line_json, to_line

_Json: TypeAlias = Mapping[str, Any]

_SAMPLE = "sample_"
_COMMON = ("target", "session", "versions")
_TASK = ("function", "dims", "tuner", "seed", "task", "weight")
_CANDIDATE = ("trace", "decisions", "candidate", "predicted", "batch", "default")
_EMPTY: Mapping[str, Any] = {
    "function": "", "dims": {}, "versions": {}, "tuner": "", "seed": None, "task": "", "error": None, "failure": None,
    "message": "", "compile_seconds": None, "samples": [], "seconds": None, "candidate": None, "session": None,
}  # fmt: skip
"""What an absent field means."""


@dataclass(slots=True)
class CompactLine:
    """A line of schema 2, and the texts by id that it needs. ``common``: those of them that all lines of a session
    need."""

    text: bytes = b""
    common: frozenset[str] = frozenset()
    objects: dict[str, bytes] = field(default_factory=dict)
    steps: dict[str, bytes] = field(default_factory=dict)

    def object(self, fields: _Json, like: Sequence[str] = ()) -> str:
        """The id of an object with these fields."""
        text = _dumped({**_like(like), **fields})
        self.objects[name := id_of(text)] = text
        return name

    def list_of_steps(self, items: Sequence[Any]) -> str:
        """The id of a list of steps."""
        text = _dumped(items)
        self.steps[name := id_of(text)] = text
        return name


def compact_line(line: Line) -> CompactLine:
    """The line, and its definitions; one of schema 1 if it has an unknown field of the name that schema 2 needs."""
    out = CompactLine()
    data = dict(line_json(line))
    if "like" in data:
        out.text = to_line(line).encode()
        return out
    del data["schema"]
    if data["kind"] == "measurement":
        del data["kind"]
        like = [_candidate(out, data)]
    else:
        like = [out.object({"target": data.pop("target")})]
        out.common = frozenset(like)
    out.text = _dumped({"schema": COMPACT_SCHEMA, **_like(like), **data})
    return out


def _candidate(out: CompactLine, data: dict[str, Any]) -> str:
    """The id of the candidate that a measurement is of; what it has is taken from ``data``."""
    if data["decisions"] == decisions_of(data["trace"]):
        del data["decisions"]
    for name, empty in _EMPTY.items():
        if name in data and data[name] == empty and type(data[name]) is type(empty):
            del data[name]
    workload = out.object({"workload": short_workload(data.pop("workload"))})
    common = [out.object({name: data.pop(name)}) for name in _COMMON if name in data]
    out.common = frozenset(common)
    task = out.object(_taken(data, _TASK), [workload, *common])
    data["trace"] = [out.list_of_steps(_shared(out, p)) for p in _pieces(data["trace"])]
    return out.object(_taken(data, _CANDIDATE), [task])


def _pieces(steps: Iterable[_Json]) -> list[list[_Json]]:
    """The steps, cut in front of each decision."""
    out: list[list[_Json]] = []
    for s in steps:
        if not out or str(s.get("primitive")).startswith(_SAMPLE):
            out.append([])
        out[-1].append(s)
    return out


def _shared(out: CompactLine, piece: Sequence[_Json]) -> Sequence[Any]:
    """A piece of several steps as ids of them."""
    short = [short_step(s) for s in piece]
    return short if len(piece) == 1 else [out.list_of_steps([s]) for s in short]


def lines_with_definitions(
    made: Iterable[CompactLine], known: Container[str], near: Container[str]
) -> tuple[list[bytes], set[str]]:
    """The texts of lines, with those of their definitions in front that are not ``known``; of those that many lines
    need (common ones, and steps) also those that are not ``near``. The ids of what is defined."""
    objects: dict[str, bytes] = {}
    steps: dict[str, bytes] = {}
    texts = []
    for x in made:
        objects |= {k: v for k, v in x.objects.items() if k not in (near if k in x.common else known)}
        steps |= {k: v for k, v in x.steps.items() if k not in near}
        texts.append(x.text)
    first = [define_line(objects, steps)] if objects or steps else []
    return [*first, *filter(None, texts)], objects.keys() | steps.keys()


def _taken(data: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {n: data.pop(n) for n in names if n in data}


def _like(names: Sequence[str]) -> dict[str, Any]:
    return {"like": names[0] if len(names) == 1 else list(names)} if names else {}


def _dumped(data: Any) -> bytes:
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
