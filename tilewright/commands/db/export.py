"""``db export LOG``: a log as one JSON document, or its measurements as CSV."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilewright.autotune.exchange.export import COLUMNS, FORMAT, to_csv, to_json
from tilewright.autotune.records.database import open_database
from tilewright.commands.db.options import add_filters, add_log, selected
from tilewright.core.io.files import begins_with, write_file

FILES = {
    "json": begins_with("an exported log", f'{{\n "format": "{FORMAT}"'.encode()),
    "csv": begins_with("a table of measurements", ",".join(COLUMNS).encode()),
}
"""Of each form: what is written, and replaced."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument("--format", choices=tuple(FILES), help="default: that of the file's name, or json")
    add_filters(parser, "exported")


def run(args: argparse.Namespace) -> int:
    ending = Path(args.output).suffix.removeprefix(".") if args.output else ""
    form = args.format or (ending if ending in FILES else "json")
    lines = selected(open_database(args.log), args)
    text = to_csv(lines) if form == "csv" else to_json(lines) + "\n"
    if args.output:
        write_file(args.output, FILES[form], text.encode())
        print(f"{args.output}: {len(lines)} lines of {args.log} as {form}")
    else:
        sys.stdout.write(text)
    return 0
