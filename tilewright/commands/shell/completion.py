"""``completion SHELL``: a script that teaches a shell the commands and options; ``docs/shell-completion.md``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from tilewright.commands.shell import bash, fish, zsh
from tilewright.commands.shell.words import Command, command_line

SHELLS: Mapping[str, Callable[[Command], str]] = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
"""Shell -> the script for it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Try it: source <(tilewright completion bash). For good: docs/shell-completion.md."
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell that is to read the script")


def run(args: argparse.Namespace) -> int:
    print(SHELLS[args.shell](command_line()), end="")
    return 0
