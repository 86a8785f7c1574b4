"""The line of progress: after a second, ten times a second at most, on terminals, and gone at the end."""

from __future__ import annotations

import pytest

from tilewright import progress
from tilewright.progress import Progress
from tilewright.tests.screen import Screen


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("TERM", "xterm")
    return now


def test_it_is_drawn_after_a_second_and_erased(clock: list[float]) -> None:
    screen = Screen()
    screen.write("kept\nof another view")
    before = screen.writes
    with Progress(stream=screen) as bar:
        bar.say("early")
        assert screen.writes == before
        clock[0] = 1.5
        bar.say("[compiling]", 3, 9)
        assert screen.seen == ["kept", "  1.5 s  [compiling] 3/9"]
        clock[0] = 1.55
        bar.say("too soon")
        assert screen.seen == ["kept", "  1.5 s  [compiling] 3/9"]
        clock[0] = 2.0
        bar.say("linking")
        assert screen.seen == ["kept", "  2.0 s  linking"]
    assert screen.seen == ["kept"]
    assert screen.at == 1


@pytest.mark.parametrize(("show", "term", "drawn"), [
    (None, "dumb", False), (False, "xterm", False), (True, "xterm", True), (None, "xterm", True),
])  # fmt: skip
def test_where_it_is_drawn(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, show: bool | None, term: str, drawn: bool
) -> None:
    monkeypatch.setenv("TERM", term)
    screen = Screen()
    with Progress(show, screen) as bar:
        clock[0] = 2.0
        bar.say("here")
    assert ("here" in screen.getvalue()) is drawn
    assert screen.seen == []
