"""``db check LOG``: what of the log no build can use any more, and why."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from tilewright.autotune.records.database import open_database
from tilewright.autotune.records.record import Line, Record
from tilewright.commands.db.options import add_filters, add_log, answer, selected, task
from tilewright.commands.output.json_output import add_json_option
from tilewright.core.console import table
from tilewright.core.errors import ParseError, ScheduleError

_HEAD = ("workload", "task", "why it does not replay", " measurements")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    add_filters(parser, "checked")
    add_json_option(parser)


def run(args: argparse.Namespace) -> int:
    database = open_database(args.log)
    lines = selected(database, args)
    lost, measured = unusable(lines)
    rows = [
        {"workload": w, "task": name, "why": why, "measurements": n} for (w, name, why), n in sorted(lost.items())
    ]  # fmt: skip
    data = {"measurements": measured, "do_not_replay": rows, "skipped": list(database.skipped)}
    answer(args, data, check(lines, database.skipped))
    return 0


def unusable(lines: Sequence[Line]) -> tuple[Counter[tuple[str, str, str]], int]:
    """How many measurements do not replay, by workload, task and reason; how many there are."""
    measured = [r for r in lines if isinstance(r, Record) and r.seconds is not None]
    schedules = {(r.text, r.candidate): r for r in measured}
    refusals = {name: why for name, r in schedules.items() if (why := _refusal(r))}
    lost = Counter(
        (r.workload.hash, task(r), refusals[name]) for r in measured if (name := (r.text, r.candidate)) in refusals
    )
    return lost, len(measured)


def check(lines: Sequence[Line], skipped: Sequence[str]) -> str:
    """The measurements whose trace does not replay on their own function, a row per workload and reason, and the lines
    that are damaged."""
    lost, measured = unusable(lines)
    rows = [(w[:12], name, why, str(n)) for (w, name, why), n in sorted(lost.items())]
    parts = [table(_HEAD, rows)] if rows else []
    parts += ["\n".join(skipped)] if skipped else []
    return "\n\n".join([*parts, f"{measured - lost.total()} of {measured} measurements replay"])


def _refusal(record: Record) -> str:
    """Why a record's trace does not replay; empty if it does."""
    try:
        record.trace.apply(record.scheduled_function())
    except (ParseError, ScheduleError) as e:
        return str(e).splitlines()[0]
    return ""
