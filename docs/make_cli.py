#!/usr/bin/env python3
"""Writes docs/reference/cli.md: every command with its arguments, as the parsers have them.

python docs/make_cli.py            write the page
python docs/make_cli.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator

from generated import GeneratedPage, note

from tilewright.cli import COMMANDS, load_command

HEAD = f"""\
# Command line

{note(__file__)}

`tilewright COMMAND --help` prints the same. Exit status: 0 done; 1 a check failed (`verify`, `demo`, `simplify`,
`db verify`, `--require-tuned`), two models differ (`graph diff`) or kernels became slower (`db diff`); 2 the model, the
inputs or the arguments are wrong; 130 interrupted. Results go to standard output, warnings and errors to standard
error. `python -m tilewright` is the same program; [completion](../shell-completion.md) teaches it to a shell.
"""


def render() -> str:
    """The page."""
    lines = [HEAD, "| command | |", "|---|---|"]
    lines += [f"| [`{name}`](#{name}) | {_cell(text)} |" for name, (_, text) in COMMANDS.items()]
    for name in COMMANDS:
        lines += ["", *_command(load_command(name)[1], 2)]
    return "\n".join(lines) + "\n"


def _command(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """A section for the command, and one for each of its actions."""
    yield f"{'#' * level} {parser.prog.removeprefix('tilewright ')}"
    yield ""
    if parser.description:
        yield f"{parser.description[0].upper()}{parser.description[1:].rstrip('.')}."
        yield ""
    yield from ("```text", _usage(parser), "```", "")
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    plain = [a for a in parser._actions if a not in actions and not isinstance(a, argparse._HelpAction)]
    for title, rows in (
        ("argument", [a for a in plain if not a.option_strings]),
        ("option", [a for a in plain if a.option_strings]),
    ):
        if rows:
            yield from (f"| {title} | |", "|---|---|")
            yield from (f"| {_name(a)} | {_cell(_help(a))} |" for a in rows)
            yield ""
    for action in actions:
        for sub in action.choices.values():
            yield from _command(sub, level + 1)


def _usage(parser: argparse.ArgumentParser) -> str:
    """Arguments that must be given, and that there are options."""
    words = [parser.prog]
    for a in parser._actions:
        word = a.metavar if isinstance(a.metavar, str) else a.dest.upper()
        if isinstance(a, argparse._HelpAction):
            continue
        if not a.option_strings:
            many = {"+": f"{word} ...", "*": f"[{word} ...]", "?": f"[{word}]"}
            words.append(many.get(str(a.nargs), word))
        elif a.required:
            words.append(f"{a.option_strings[-1]} {word}")
    if any(a.option_strings and not a.required and not isinstance(a, argparse._HelpAction) for a in parser._actions):
        words.append("[options]")
    return " ".join(words)


def _name(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest.upper()}`"
    value = "" if action.nargs == 0 else f" {_value(action)}"
    return ", ".join(f"`{o}{value}`" for o in action.option_strings)


def _value(action: argparse.Action) -> str:
    word = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None and action.metavar is None:
        word = "{" + ",".join(map(str, action.choices)) + "}"
    return f"{word} ..." if action.nargs in ("+", "*") else word


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {"default": action.default}
    if "default" in text or action.default in (None, False, [], {}, argparse.SUPPRESS) or not action.option_strings:
        return text + (" (may be repeated)" if isinstance(action, argparse._AppendAction) else "")
    return f"{text} (default: {action.default})"


def _cell(text: str) -> str:
    """Text in a table: options in backquotes."""
    return re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", " ".join(text.split()).replace("|", "\\|"))


PAGE = GeneratedPage(__file__, "reference/cli.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
