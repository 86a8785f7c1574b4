"""What is printed: tables that no terminal's width changes, colours and movements only where they are wanted."""

from __future__ import annotations

import io

import pytest

from tilewright.core.console import console, table
from tilewright.tests.screen import Screen


def test_a_table_is_as_wide_as_its_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    rows = [("[bold]k0 :smile:", "12.5", "x" * 300), ("矩陣", "1000.0"), ("two\nlines", "", "end")]
    assert table(("kernel", " us", "nodes"), rows).split("\n") == [
        "kernel                us  nodes",
        "-" * (16 + 2 + 6 + 2 + 300),
        f"[bold]k0 :smile:    12.5  {'x' * 300}",
        "矩陣              1000.0",
        "two                       end",
        "lines",
    ]


def test_a_file_is_neither_coloured_nor_drawn_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    out = io.StringIO()
    console(out).print("long" * 40, style="bold red", soft_wrap=True)
    assert out.getvalue() == "long" * 40 + "\n"
    assert not console(out).is_terminal


@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        ({"TERM": "xterm", "NO_COLOR": ""}, "\x1b[31m[text]\x1b[0m\n"),
        ({"TERM": "xterm", "NO_COLOR": "1"}, "[text]\n"),
        ({"TERM": "dumb", "NO_COLOR": ""}, "[text]\n"),
    ],
)
def test_a_terminal_is_coloured_as_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], shown: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    screen = Screen()
    console(screen).print("[text]", style="red")
    assert screen.getvalue() == shown
