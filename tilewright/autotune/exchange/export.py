"""A log as one JSON document, from which it can be made again, or as a table of its measurements."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

from tilewright.autotune.records.reading import LineReader
from tilewright.autotune.records.record import Line, Record, isa_class, line_json
from tilewright.core.errors import InputError, ParseError

FORMAT = "tilewright tuning log"
VERSION = 1

COLUMNS = (
    "workload", "task", "model", "isa", "cpu", "threads", "candidate", "seconds", "failure", "samples", "error",
    "compile_seconds", "dims", "time", "tuner", "seed", "version", "session", "default",
)  # fmt: skip
"""Of the table. ``samples``: seconds, separated by spaces; ``dims``: ``n0=4 n1=8``; ``time``: seconds since 1970."""


def to_json(lines: Iterable[Line]) -> str:
    """All of the lines, each as it is in schema 1, which ``docs/log-format.md`` describes."""
    return json.dumps({"format": FORMAT, "version": VERSION, "lines": [line_json(x) for x in lines]}, indent=1)


def from_json(text: str) -> tuple[list[Line], dict[str, int]]:
    """The lines of :func:`to_json`; what was not understood, as reasons with how often each came.

    Raises InputError for text that is not in this form.
    """
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as e:
        raise InputError(f"import: expected JSON, got {e}") from e
    if not is_ours(data):
        raise InputError(f"import: expected an object with format {FORMAT!r} and a list of lines")
    if data["version"] != VERSION:
        raise InputError(f"import: expected version {VERSION} of the format, got {data['version']!r}")
    reader, out, refused = LineReader(), [], dict[str, int]()
    for item in data["lines"]:
        try:
            line = reader.read(json.dumps(item, allow_nan=False))
            reason = "of a newer version or another kind"
        except (ParseError, ValueError) as e:
            line, reason = None, str(e)
        if line is None:
            refused[reason] = refused.get(reason, 0) + 1
        else:
            out.append(line)
    return out, refused


def is_ours(data: object) -> bool:
    """True for what :func:`to_json` writes, of any version."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        return False
    return "version" in data and isinstance(data.get("lines"), list)


def to_csv(lines: Iterable[Line]) -> str:
    """A row per measurement, under :data:`COLUMNS`; without traces."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(_row(x) for x in lines if isinstance(x, Record))
    return out.getvalue()


def _row(r: Record) -> Sequence[Any]:
    s = r.session
    return (
        r.workload.hash, r.task, s.model if s else "", isa_class(r.target), r.target.cpu, r.target.threads, r.candidate,
        "" if r.seconds is None else repr(r.seconds), r.failure or "", " ".join(map(repr, r.samples)),
        "" if r.error is None else repr(r.error), "" if r.compile_seconds is None else repr(r.compile_seconds),
        " ".join(f"{k}={v}" for k, v in r.dims.items()), repr(r.time), r.tuner, "" if r.seed is None else r.seed,
        r.versions.get("tilewright", ""), s.id if s else "", int(r.is_default),
    )  # fmt: skip
