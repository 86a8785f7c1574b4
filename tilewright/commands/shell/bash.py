"""The command line as a script for bash."""

from __future__ import annotations

import shlex

from tilewright.commands.shell.words import Argument, Command

_HEAD = """\
# bash completion of tilewright, from `tilewright completion bash`

_tilewright() {
    local word path=tilewright current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$path $word" in
"""


def script(root: Command) -> str:
    """The script. Paths are completed by bash itself."""
    commands = list(root.walk())
    lines = [_HEAD.rstrip("\n")]
    lines += [f'            {_alternatives([c.path for c in commands[1:]])}) path="$path $word" ;;']
    lines += ["        esac", "    done", "    COMPREPLY=()", '    case "$path $previous" in']
    for c in commands:
        for o in c.options:
            if o.takes_value:
                lines.append(f"        {_alternatives([f'{c.path} {f}' for f in o.flags])}) {_value(o)}; return ;;")
    lines += ["    esac", '    case "$path" in']
    lines += [f"        {shlex.quote(c.path)}) {_words(c)} ;;" for c in commands]
    lines += ["    esac", "}", "", "complete -F _tilewright tilewright"]
    return "\n".join(lines) + "\n"


def _alternatives(words: list[str]) -> str:
    return "|".join(map(shlex.quote, words))


def _reply(words: list[str]) -> str:
    return f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(words))} -- "$current"))'


def _value(option: Argument) -> str:
    if option.values:
        return _reply(list(option.values))
    return "compopt -o default" if option.takes_file else ":"


def _words(command: Command) -> str:
    """What can stand here: options behind a dash, else actions, the values of a place, or paths."""
    here = [*command.actions, *(v for p in command.places for v in p.values)]
    flags = [f for o in command.options for f in o.flags]
    if any(p.takes_file for p in command.places):
        other = f"{_reply(here)}; compopt -o default" if here else "compopt -o default"
    else:
        other = _reply(here or flags)
    return f"if [[ $current == -* ]]; then {_reply(flags)}; else {other}; fi"
