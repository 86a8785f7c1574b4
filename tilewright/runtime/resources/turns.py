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

    __slots__ = ("_guard", "_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = Lock()
        self._guard = Lock()
        self._waiting: deque[Lock] = deque()

    def __enter__(self) -> None:
        if self._waiting or not self._lock.acquire(False):
            self._wait()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, where: TracebackType | None
    ) -> None:
        self._lock.release()
        if self._waiting:  # who comes after this finds the lock free: it queues first and tries then
            self._next()

    def _wait(self) -> None:
        ticket = Lock()
        ticket.acquire()
        with self._guard:
            self._waiting.append(ticket)
        self._next()
        try:
            ticket.acquire()
        except BaseException:  # an interrupt: give up the place, or the turn if it came just now
            with self._guard:
                is_waiting = ticket in self._waiting
                if is_waiting:
                    self._waiting.remove(ticket)
            if not is_waiting:
                self.__exit__(None, None, None)
            raise

    def _next(self) -> None:
        """Hand the lock to the first in the queue, if it is free."""
        with self._guard:
            if self._waiting and self._lock.acquire(False):
                self._waiting.popleft().release()
