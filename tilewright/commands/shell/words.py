"""What can stand where on the command line, read from the parsers."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilewright.cli import COMMANDS, load_command

_FILES = re.compile(r"\.\w+$|^(FILE|LOG|DIR|MODEL|OLD|NEW|FIRST|SECOND)(\.\w+)?$")
"""Placeholders for paths, as help texts have them: ``X.npz``, ``LOG``."""


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument. ``flags``: what an option is called; none for one that goes by its place. ``values``: the words
    that it may be. ``takes_file``: it may be a path. ``takes_value``: a word follows it. ``repeats``: it may come
    again."""

    flags: tuple[str, ...]
    help: str
    values: tuple[str, ...] = ()
    placeholder: str = ""
    takes_file: bool = False
    takes_value: bool = True
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command, or an action of one. ``path``: the words that lead to it: ``tilewright graph diff``."""

    path: str
    help: str
    arguments: tuple[Argument, ...]
    actions: Mapping[str, Command]

    @property
    def options(self) -> list[Argument]:
        """The arguments that have flags."""
        return [a for a in self.arguments if a.flags]

    @property
    def places(self) -> list[Argument]:
        """The arguments that go by their places, in order."""
        return [a for a in self.arguments if not a.flags]

    def walk(self) -> Iterator[Command]:
        """This command and all below it."""
        yield self
        for action in self.actions.values():
            yield from action.walk()


def command_line() -> Command:
    """The whole of it. Loads the module of every command."""
    actions = {
        name: _command(f"tilewright {name}", text, load_command(name)[1]) for name, (_, text) in COMMANDS.items()
    }
    own = (Argument(("--version",), "print the version", takes_value=False),)
    return Command("tilewright", "ONNX models to tuned CPU machine code", own, actions)


def _command(path: str, text: str, parser: argparse.ArgumentParser) -> Command:
    arguments: list[Argument] = []
    actions: dict[str, Command] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {a.dest: a.help or "" for a in action._choices_actions}
            actions = {n: _command(f"{path} {n}", helps.get(n, ""), p) for n, p in action.choices.items()}
        else:
            arguments.append(_argument(action))
    return Command(path, text, tuple(arguments), actions)


def _argument(action: argparse.Action) -> Argument:
    placeholder = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    values = () if action.choices is None else tuple(map(str, action.choices))
    return Argument(
        tuple(action.option_strings),
        " ".join(((action.help or "") % {"default": action.default, "prog": ""}).split()),
        values,
        placeholder,
        takes_file=not values and action.nargs != 0 and _FILES.search(placeholder) is not None,
        takes_value=action.nargs != 0,
        repeats=action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction),
    )
