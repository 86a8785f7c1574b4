"""The command line as a script for zsh."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from tilewright.commands.shell.words import Argument, Command


def script(root: Command) -> str:
    """The script: a function for each command, with what ``_arguments`` of zsh is told about it."""
    lines = ["#compdef tilewright", "# zsh completion of tilewright, from `tilewright completion zsh`"]
    for c in root.walk():
        lines += ["", *_function(c)]
    lines += [
        "",
        "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then  # a file _tilewright in $fpath",
        '    _tilewright "$@"',
        "else  # sourced",
        "    compdef _tilewright tilewright",
        "fi",
    ]
    return "\n".join(lines) + "\n"


def _name(path: str) -> str:
    return "_" + re.sub(r"\W", "_", path)


def _function(command: Command) -> Iterator[str]:
    specs = [s for o in command.options for s in _option(o)]
    yield f"{_name(command.path)}() {{"
    if not command.actions:
        specs += [_place(n, p) for n, p in enumerate(command.places, 1)]
        yield "    _arguments -s \\"
        yield from (f"        {s} \\" for s in specs[:-1])
        yield f"        {specs[-1]}"
        yield "}"
        return
    yield "    local state line context curcontext=$curcontext"
    yield "    typeset -A opt_args"
    yield "    _arguments -C \\"
    yield from (f"        {s} \\" for s in specs)
    yield "        '1:command:->command' '*::argument:->argument'"
    yield "    case $state in"
    yield "        command)"
    yield "            local -a actions=("
    for name, action in command.actions.items():
        yield f"                {shlex.quote(f'{name}:{action.help}')}"
    yield "            )"
    yield "            _describe command actions ;;"
    yield "        argument)"
    yield "            case $line[1] in"
    yield from (f"                {n}) {_name(a.path)} ;;" for n, a in command.actions.items())
    yield "            esac ;;"
    yield "    esac"
    yield "}"


def _option(option: Argument) -> Iterator[str]:
    """Its specifications, one a flag. A flag that came excludes the others, if the option does not repeat."""
    others = "" if option.repeats else f"({' '.join(option.flags)})"
    star = "*" if option.repeats else ""
    for flag in option.flags:
        behind = f":{_plain(option.placeholder)}:{_action(option)}" if option.takes_value else ""
        yield shlex.quote(f"{others}{star}{flag}[{_plain(option.help)}]{behind}")


def _place(number: int, place: Argument) -> str:
    where = "*" if place.repeats else str(number)
    return shlex.quote(f"{where}:{_plain(place.placeholder)}:{_action(place)}")


def _action(argument: Argument) -> str:
    if argument.values:
        return f"({' '.join(argument.values)})"
    return "_files" if argument.takes_file else " "


def _plain(text: str) -> str:
    """Text without meaning to ``_arguments``."""
    return re.sub(r"([\\\[\]:])", r"\\\1", text)
