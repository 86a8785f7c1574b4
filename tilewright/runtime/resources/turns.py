"""Callers of several threads take turns, in the order in which they came."""

from __future__ import annotations

from collections import deque
from threading import Lock
from types import TracebackType


class Turns:
    """A lock that is handed to the caller who has waited longest.

    With a plain lock, a thread that calls in a loop takes it again before those that it has woken are awake; of
    sixteen, some would wait for many times as long as others.
    """

    __slots__ = ("_guard", "_is_held", "_waiting")

    def __init__(self) -> None:
        self._guard = Lock()
        self._is_held = False
        self._waiting: deque[Lock] = deque()

    def __enter__(self) -> None:
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            ticket = Lock()
            ticket.acquire()
            self._waiting.append(ticket)
        try:
            ticket.acquire()
        except BaseException:  # an interrupt: give up the place, or the turn if it came just now
            with self._guard:
                is_waiting = ticket in self._waiting
                if is_waiting:
                    self._waiting.remove(ticket)
            if not is_waiting:
                self._next()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self._next()

    def _next(self) -> None:
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._is_held = False
