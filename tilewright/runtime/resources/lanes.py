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
    """Of a call that waits: the lock is released when it is admitted, with its place and its threads (0: not yet)."""

    __slots__ = ("lock", "place", "threads", "whole")

    def __init__(self, whole: bool) -> None:
        self.whole = whole
        self.place = self.threads = 0
        self.lock = Lock()
        self.lock.acquire()


class Lanes(Generic[L]):
    """``threads`` shared by at most ``streams`` calls at once (None: as the calls come, at most one for each thread).

    A lane is what one call uses alone (its arena); ``first`` is there, ``another`` makes one more when it is needed.
    """

    def __init__(self, threads: int, streams: int | None, first: L, another: Callable[[], L]) -> None:
        self.threads = threads
        self.streams = threads if streams is None else min(streams, threads)
        self._fixed = 0 if streams is None else threads // self.streams
        self._another = another
        self._made: list[L | None] = [first, *[None] * (self.streams - 1)]
        self._busy = [False] * self.streams
        self._free = threads
        self._running = 0
        self._crowd = 1
        self._alone = 0, first, threads
        self._lone_has_all = self._fixed in (0, threads)
        self._quiet = self._lone_has_all  # nobody runs or waits, and who left last did so alone
        self._guard = Lock()
        self._waiting: deque[_Ticket[L]] = deque()

    def enter(self, whole: bool = False) -> tuple[int, L, int]:
        """Wait for a lane: its number, the lane, and the threads that the call gets. ``whole``: it runs by itself, on
        all of them. Every call of this is followed by one of :meth:`leave`."""
        with self._guard:
            if self._quiet:  # most calls come alone
                self._quiet = False
                self._running, self._free = 1, 0
                self._busy[0] = True
                return self._alone
            threads = 0 if self._waiting else self._share(0, whole)
            if threads:
                place = self._take(threads)
            else:
                ticket: _Ticket[L] = _Ticket(whole)
                self._waiting.append(ticket)
        if not threads:
            self._wait(ticket)
            place, threads = ticket.place, ticket.threads
        lane = self._made[place]
        if lane is None:
            try:
                lane = self._made[place] = self._another()
            except BaseException:
                self.leave(place, threads)
                raise
        return place, lane, threads

    def leave(self, place: int, threads: int) -> None:
        """Give back lane ``place`` and the threads, as :meth:`enter` gave them.

        Who leaves while others run or wait will probably be back: the next call counts with it.
        """
        with self._guard:
            if self._waiting or self._running > 1:
                self._crowd = self._running + len(self._waiting)
            else:
                self._crowd, self._quiet = 1, self._lone_has_all
            self._running -= 1
            self._free += threads
            self._busy[place] = False
            if self._waiting:
                self._admit()

    def _share(self, others: int, whole: bool) -> int:
        """The threads of the call that is next, with ``others`` behind it; 0: it has to wait.

        All, or a half of all, or a half of that: each number of threads is a pool of its own.
        """
        if self._running == self.streams or not self._free:
            return 0
        if whole or self.streams == 1:
            return 0 if self._running else self.threads
        if self._fixed:
            return self._fixed
        calls, threads = max(self._running + others + 1, self._crowd), self.threads
        while threads > 1 and (threads * calls > self.threads or threads > self._free):
            threads //= 2
        return threads

    def _take(self, threads: int) -> int:
        """The number of the first lane that is idle, which is taken."""
        place = self._busy.index(False)
        self._running += 1
        self._free -= threads
        self._busy[place], self._quiet = True, False
        return place

    def _admit(self) -> None:
        """Let in who can run now, the first in the queue first."""
        while self._waiting:
            ticket = self._waiting[0]
            threads = self._share(len(self._waiting) - 1, ticket.whole)
            if not threads:
                return
            self._waiting.popleft()
            ticket.threads, ticket.place = threads, self._take(threads)
            ticket.lock.release()

    def _wait(self, ticket: _Ticket[L]) -> None:
        try:
            ticket.lock.acquire()
        except BaseException:  # an interrupt: give up the place in the queue, or the lane if it came just now
            with self._guard:
                is_waiting = not ticket.threads
                if is_waiting:
                    self._waiting.remove(ticket)
                    self._admit()
            if not is_waiting:
                self.leave(ticket.place, ticket.threads)
            raise
