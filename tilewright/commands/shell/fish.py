"""The command line as a script for fish."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.commands.shell.words import Argument, Command


def script(root: Command) -> str:
    """The script: a line for each word that can stand somewhere."""
    commands = list(root.walk())
    paths = " ".join(_quoted(c.path) for c in commands[1:])
    lines = [
        "# fish completion of tilewright, from `tilewright completion fish`",
        "",
        "function __tilewright_at --description 'true if the words so far lead to this command'",
        "    set -l path tilewright",
        "    for word in (commandline -opc)[2..-1]",
        '        switch "$path $word"',
        f"            case {paths}",
        '                set path "$path $word"',
        "        end",
        "    end",
        '    test "$path" = "$argv[1]"',
        "end",
        "",
        "complete -c tilewright -f",
    ]
    for c in commands:
        lines += _lines(c)
    return "\n".join(lines) + "\n"


def _lines(command: Command) -> Iterator[str]:
    here = f"complete -c tilewright -n {_quoted(f'__tilewright_at {_quoted(command.path)}')}"
    for name, action in command.actions.items():
        yield f"{here} -a {name} -d {_quoted(action.help)}"
    for place in command.places:
        if place.takes_file:
            yield f"{here} -F"
        if place.values:
            yield f"{here} -a {_quoted(' '.join(place.values))} -d {_quoted(place.help)}"
    for option in command.options:
        yield f"{here} {_flags(option)} -d {_quoted(option.help)}"


def _flags(option: Argument) -> str:
    """Its flags, and what follows them."""
    words = [f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in option.flags]
    if option.values:
        words.append(f"-x -a {_quoted(' '.join(option.values))}")
    elif option.takes_value:
        words.append("-r -F" if option.takes_file else "-x")
    return " ".join(words)


def _quoted(text: str) -> str:
    """In single quotes, where only the backslash and the quote itself mean something."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
