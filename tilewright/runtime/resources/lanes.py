"""Several calls of one model at once: who waits, who runs, and on how many threads.

A call that comes alone gets all threads. Calls that come together run side by side on a share each, for a loop that two
threads share costs more than half of it alone, and what is between two loops is done by one anyway. Who waits is
admitted in the order of arrival: with a plain lock a thread that calls in a loop would take it again before those that
it has woken are awake, and of sixteen some would wait for many times as long as others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

L = TypeVar("L")


class _Ticket(Generic[L]):
    """Of a call that waits: the lock is released when it is admitted, with its place and its threads."""

    __slots__ = ("admitted", "lane", "lock", "threads", "whole")

    def __init__(self, whole: bool) -> None:
        self.whole, self.admitted = whole, False
        self.threads = 0
        self.lane: tuple[int, L | None] = (0, None)
        self.lock = Lock()
        self.lock.acquire()


class Lanes(Generic[L]):
    """``threads`` shared by at most ``streams`` calls at once (None: as the calls come, at most one for each thread).

    A lane is what one call uses alone (its arena); ``first`` is there, ``another(k)`` makes lane ``k`` when it is first
    needed.
    """

    def __init__(self, threads: int, streams: int | None, first: L, another: Callable[[int], L]) -> None:
        self.threads = threads
        self.streams = threads if streams is None else min(streams, threads)
        self._fixed = 0 if streams is None else threads // self.streams
        self._another = another
        self._idle: list[tuple[int, L]] = [(0, first)]
        self._made = 1
        self._free = threads
        self._running = 0
        self._crowd = 1
        self._guard = Lock()
        self._waiting: deque[_Ticket[L]] = deque()

    def enter(self, whole: bool = False) -> tuple[int, L, int]:
        """Wait for a lane: its number, the lane, and the threads that the call gets. ``whole``: it runs by itself, on
        all of them. Every call of this is followed by one of :meth:`leave`."""
        with self._guard:
            threads = 0 if self._waiting else self._share(0, whole)
            if threads:
                place, lane = self._take(threads)
            else:
                ticket: _Ticket[L] = _Ticket(whole)
                self._waiting.append(ticket)
        if not threads:
            self._wait(ticket)
            threads, (place, lane) = ticket.threads, ticket.lane
        if lane is None:
            try:
                lane = self._another(place)
            except BaseException:
                with self._guard:
                    self._made -= 1
                    self._give_back(threads)
                raise
        return place, lane, threads

    def leave(self, place: int, lane: L, threads: int) -> None:
        """Give back what :meth:`enter` gave."""
        with self._guard:
            self._idle.append((place, lane))
            self._give_back(threads)

    def _share(self, others: int, whole: bool) -> int:
        """The threads of the call that is next, with ``others`` behind it; 0: it has to wait.

        Who has just left while others waited will probably be back: it counts for one more call.
        """
        if self._running == self.streams or not self._free:
            return 0
        if whole or self.streams == 1:
            return 0 if self._running else self.threads
        if self._fixed:
            return self._fixed
        calls = max(self._running + others + 1, self._crowd)
        return min(self._free, self.threads // min(calls, self.threads))

    def _take(self, threads: int) -> tuple[int, L | None]:
        """The lane of the lowest number that is idle, or a number for one that is to be made."""
        self._running += 1
        self._free -= threads
        if self._idle:
            found = min(self._idle, key=_place)
            self._idle.remove(found)
            return found
        self._made += 1
        return self._made - 1, None

    def _give_back(self, threads: int) -> None:
        self._crowd = self._running + len(self._waiting)
        self._running -= 1
        self._free += threads
        self._admit()

    def _admit(self) -> None:
        """Let in who can run now, the first in the queue first."""
        while self._waiting:
            ticket = self._waiting[0]
            threads = self._share(len(self._waiting) - 1, ticket.whole)
            if not threads:
                return
            self._waiting.popleft()
            ticket.threads, ticket.lane, ticket.admitted = threads, self._take(threads), True
            ticket.lock.release()

    def _wait(self, ticket: _Ticket[L]) -> None:
        try:
            ticket.lock.acquire()
        except BaseException:  # an interrupt: give up the place in the queue, or the lane if it came just now
            with self._guard:
                if not ticket.admitted:
                    self._waiting.remove(ticket)
                    self._admit()
                else:
                    place, lane = ticket.lane
                    if lane is None:
                        self._made -= 1
                    else:
                        self._idle.append((place, lane))
                    self._give_back(ticket.threads)
            raise


def _place(lane: tuple[int, object]) -> int:
    return lane[0]
