"""The measuring slot of a host: builders together, a timer alone."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tilewright.autotune.measure.hostlock import HostLock

fcntl = pytest.importorskip("fcntl")


def is_free(path: Path, alone: bool) -> bool:
    with path.open("a") as f:
        try:
            fcntl.flock(f, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_who_may_do_what(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with HostLock(path).building():
        assert is_free(path, alone=False)
        assert not is_free(path, alone=True)
    with HostLock(path).timing():
        assert not is_free(path, alone=False)
    assert is_free(path, alone=True)


def test_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order: list[str] = []

    def other() -> None:
        with HostLock(path).timing():
            order.append("other")

    with HostLock(path).timing():
        thread = threading.Thread(target=other)
        thread.start()
        thread.join(0.05)
        order.append("first")
    thread.join(30)
    assert order == ["first", "other"]
