"""``db import FILE... -o LOG``: what ``db export`` wrote becomes a log again; of records of TVM it says what they are
and why they cannot be taken. Exit status: 1 if nothing was taken."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from tilewright.autotune.exchange.export import from_json
from tilewright.autotune.exchange.tvm import ForeignTask, is_autotvm, is_metaschedule, read_autotvm, read_metaschedule
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.record import Line
from tilewright.commands.db.options import add_dry_run, add_filters, answer, micros, selection_of
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import table
from tilewright.core.errors import InputError

_HEAD = ("tuned by TVM", "arguments", "target", " records", " its best us", " its tile")
_TRY = "a tile (rows x columns of results in registers) can be tried here by hand: docs/logs.md shows how"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE",
        help="a JSON document of db export, a log of AutoTVM, or the directory of a MetaSchedule database",
    )  # fmt: skip
    parser.add_argument("-o", "--output", required=True, metavar="LOG", help="a log, created or added to")
    add_dry_run(parser)
    add_filters(parser, "imported")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    lines: list[Line] = []
    refused: dict[str, int] = {}
    foreign: list[ForeignTask] = []
    for path in map(Path, args.files):
        if is_metaschedule(path):
            foreign += read_metaschedule(path)
            continue
        text = _text(path)
        if is_autotvm(text.partition("\n")[0]):
            foreign += read_autotvm(text.splitlines())
            continue
        found, reasons = from_json(text)
        lines += found
        refused = {k: refused.get(k, 0) + reasons.get(k, 0) for k in refused.keys() | reasons.keys()}
    output = JSONDatabase(args.output)
    target = MemoryDatabase(output.lines()) if args.dry_run else output
    wanted = selection_of(args).of(lines)
    added = target.merge(MemoryDatabase(wanted)) if wanted else 0
    data = {
        "output": str(output.path), "dry_run": args.dry_run, "read": len(lines), "added": added,
        "already_there": len(wanted) - added, "refused": refused, "foreign": [t.to_json() for t in foreign],
    }  # fmt: skip
    answer(args, data, _said(data, foreign))
    return 0 if wanted else 1


def _said(data: dict[str, Any], foreign: list[ForeignTask]) -> str:
    verb = "would be added" if data["dry_run"] else "added"
    parts = [f"{data['added']} lines {verb} to {data['output']}; {data['already_there']} were there"]
    parts += [f"{n} lines refused: {why}" for why, n in sorted(data["refused"].items())]
    if foreign:
        rows = [
            (t.what, ", ".join(t.arguments), t.target, str(t.records), micros(t.best),
             "" if t.tile is None else " x ".join(map(str, t.tile)))
            for t in foreign
        ]  # fmt: skip
        why: dict[str, int] = {}
        for t in foreign:
            for reason, n in t.why.items():
                why[reason] = why.get(reason, 0) + n
        total = sum(t.records for t in foreign)
        parts += ["", table(_HEAD, rows), "", f"none of these {total} records was taken:"]
        parts += [f"  {n}: {reason}" for reason, n in sorted(why.items(), key=lambda x: (-x[1], x[0]))]
        parts += [_TRY] if any(t.tile is not None for t in foreign) else []
    return "\n".join(parts)


def _text(path: Path) -> str:
    if path.is_dir():
        raise InputError(f"{path}: expected a file, or the directory of a MetaSchedule database")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as e:
        raise InputError(f"{path}: expected text in UTF-8, found something else") from e
