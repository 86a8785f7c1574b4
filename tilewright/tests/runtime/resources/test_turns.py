"""Turns are given in the order of arrival; one that is interrupted is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tilewright.runtime.resources import turns as module
from tilewright.runtime.resources.turns import Turns


def _wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(100_000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it never came true")


def test_turns_are_in_the_order_of_arrival() -> None:
    turns, order = Turns(), list[int]()

    def work(i: int) -> None:
        with turns:
            order.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    with turns:
        for i, t in enumerate(threads):
            t.start()
            _wait_until(lambda i=i: len(turns._waiting) == i + 1)  # type: ignore[misc]
    for t in threads:
        t.join()
    assert order == list(range(8))


def test_who_comes_back_waits_behind_the_others() -> None:
    turns, order = Turns(), list[str]()

    def other() -> None:
        with turns:
            order.append("other")

    with turns:
        thread = threading.Thread(target=other)
        thread.start()
        _wait_until(lambda: len(turns._waiting) == 1)
    with turns:  # a plain lock would be taken here before the thread is awake
        order.append("mine")
    thread.join()
    assert order == ["other", "mine"]


def test_an_error_gives_the_turn_away() -> None:
    turns = Turns()
    with pytest.raises(ValueError, match="mine"), turns:
        raise ValueError("mine")
    with turns:
        pass


@pytest.mark.parametrize("has_come", [False, True])
def test_an_interrupt_while_waiting(has_come: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()

    class Ticket:
        """A lock whose second acquisition is interrupted, before or just after the turn has come."""

        def __init__(self) -> None:
            self.count = 0

        def acquire(self) -> None:
            self.count += 1
            if self.count == 2:
                if has_come:
                    turns.__exit__(None, None, None)
                raise KeyboardInterrupt

        def release(self) -> None:
            pass

    turns.__enter__()
    monkeypatch.setattr(module, "Lock", Ticket)
    with pytest.raises(KeyboardInterrupt), turns:
        pass
    monkeypatch.undo()
    assert not turns._waiting
    if not has_come:
        turns.__exit__(None, None, None)
    with turns:
        pass
