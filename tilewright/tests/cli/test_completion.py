"""What shells complete, asked of the shells themselves."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tilewright.cli import COMMANDS, main
from tilewright.commands.shell.completion import SHELLS
from tilewright.commands.shell.words import Command, command_line

CASES = [
    ("tilewright gra", ["graph"]),
    ("tilewright graph d", ["diff"]),
    ("tilewright graph set", ["set-shape"]),
    ("tilewright run --opt-level ext", ["extended"]),
    ("tilewright run --no-c", ["--no-cache"]),
    ("tilewright tune model.onnx --str", ["--strategy"]),
    ("tilewright tune model.onnx --strategy gr", ["grid"]),
    ("tilewright db explain log.jsonl model.onnx --prec", ["--precision"]),
    ("tilewright completion fi", ["fish"]),
    ("tilewright run --seed ", []),
    ("tilewright run mod", ["model.onnx"]),
    ("tilewright run --inputs x", ["x.npz"]),
]
"""What is typed, and what it may become."""

needs = {s: pytest.mark.skipif(shutil.which(s) is None, reason=f"needs {s}") for s in SHELLS}


@pytest.fixture(scope="module")
def root() -> Command:
    return command_line()


@pytest.fixture
def folder(root: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two files and the scripts, in which the shells run."""
    for name in ("model.onnx", "x.npz"):
        (tmp_path / name).touch()
    (tmp_path / "scripts").mkdir()
    for shell, script in SHELLS.items():
        (tmp_path / "scripts" / shell).write_text(script(root), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def said(*words: str) -> list[str]:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=30).stdout.split("\n")


@needs["bash"]
@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_bash(typed: str, expected: list[str], folder: Path) -> None:
    asked = (
        'compopt() { COMPREPLY+=($(compgen -f -- "$current")); }; source scripts/bash; '  # outside of a completion
        'read -r -a COMP_WORDS <<< "$1"; [[ $1 == *" " ]] && COMP_WORDS+=(""); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
        '_tilewright; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert [w for w in said("bash", "-c", asked, "bash", typed) if w] == expected


@needs["fish"]
@pytest.mark.parametrize(("typed", "expected"), CASES)
def test_fish(typed: str, expected: list[str], folder: Path) -> None:
    lines = said("fish", "--no-config", "-c", 'source scripts/fish; complete -C "$argv[1]"', typed)
    assert [line.split("\t")[0] for line in lines if line] == expected


@needs["zsh"]
@pytest.mark.parametrize(("typed", "expected"), [c for c in CASES if c[1]])
def test_zsh(typed: str, expected: list[str], folder: Path) -> None:
    with zsh() as ask:
        ask(typed + "\t", f"{typed.rpartition(' ')[0]} {expected[0]}")


@contextmanager
def zsh() -> Iterator[Callable[[str, str], None]]:
    """An interactive zsh that knows the script: a function that types, and waits until the line is as expected."""
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(["zsh", "-f", "-i"], stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)

    def ask(typed: str, expected: str) -> None:
        os.write(ours, typed.encode())
        seen, until = "", time.monotonic() + 20
        while expected not in seen:
            assert time.monotonic() < until, f"expected {expected!r}, got {seen!r}"
            if select.select([ours], [], [], 0.2)[0]:
                seen += os.read(ours, 4096).decode(errors="replace")

    try:
        ask("PS1=; unset zle_bracketed_paste; autoload -Uz compinit; compinit -u -D; . scripts/zsh\r", "")
        ask("print $((40 + 2))\r", "42")
        yield ask
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)
        os.close(theirs)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text.startswith("#")
    assert all(name in text for name in COMMANDS)


def test_the_tree_has_every_option(root: Command) -> None:
    assert set(root.actions) == set(COMMANDS)
    at = {c.path: c for c in root.walk()}
    log = next(o for o in at["tilewright tune"].options if "--log" in o.flags)
    assert (log.takes_file, log.takes_value, log.values) == (True, True, ())
    cache = next(o for o in at["tilewright run"].options if "--no-cache" in o.flags)
    assert not cache.takes_value
    assert [p.placeholder for p in at["tilewright graph diff"].places] == ["OLD", "NEW"]
    assert all(p.takes_file for p in at["tilewright graph diff"].places)
