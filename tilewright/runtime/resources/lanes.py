"""Several calls of one model at once: who waits, who runs, where, and on how many threads.

A call that comes alone gets all threads. Calls that come together run side by side on a share each, for a loop that two
threads share costs more than half of it alone, and what is between two loops is done by one anyway. Who waits is
admitted in the order of arrival: with a plain lock a thread that calls in a loop would take it again before those that
it has woken are awake, and of sixteen some would wait for many times as long as others.

A call that finds a lane runs on the thread of its caller; one that has to wait is run by a thread of the lane, which
goes from call to call without sleeping. If each caller were woken for its turn, the system would often put it on the
processor of another call and leave one idle: of two, sixteen callers kept 1.5 busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from threading import Lock
from typing import Any, Generic, TypeAlias, TypeVar

from tilewright.runtime.resources.workers import WORKERS

L = TypeVar("L")
R = TypeVar("R")
Work: TypeAlias = "Callable[[L, int], Any]"
"""What a call does with a lane and its number of threads."""


class _Ticket(Generic[L]):
    """Of a call that waits: the lock is released when it is done. Until it is admitted, its threads are 0."""

    __slots__ = ("context", "error", "lock", "place", "result", "threads", "whole", "work")

    def __init__(self, work: Work[L], whole: bool) -> None:
        self.work, self.whole = work, whole
        self.context = copy_context()  # of numpy's error handling, for one
        self.place = self.threads = 0
        self.result: Any = None
        self.error: BaseException | None = None
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
        self._lone_has_all = self._fixed in (0, threads)
        self._quiet = self._lone_has_all  # nobody runs or waits, and who left last did so alone
        self._guard = Lock()
        self._waiting: deque[_Ticket[L]] = deque()

    def run(self, work: Callable[[L, int], R], whole: bool = False) -> R:
        """What ``work`` gives, which is called with a lane and the threads that the call gets; it may wait before.
        ``whole``: it runs by itself, on all of them."""
        ticket: _Ticket[L] | None = None
        with self._guard:
            if self._quiet:  # most calls come alone
                self._quiet = False
                self._running, self._free = 1, 0
                self._busy[0] = True
                place, threads = 0, self.threads
            else:
                threads = 0 if self._waiting else self._share(0, whole)
                if threads:
                    place = self._take(threads)
                else:
                    ticket = _Ticket(work, whole)
                    self._waiting.append(ticket)
        if ticket is not None:
            result: R = self._result(ticket)
            return result
        try:
            return work(self._lane(place), threads)
        finally:
            self._hand_over(self._leave(place, threads))

    def _lane(self, place: int) -> L:
        lane = self._made[place]
        if lane is None:
            lane = self._made[place] = self._another()
        return lane

    def _leave(self, place: int, threads: int) -> list[_Ticket[L]]:
        """Give back lane ``place`` and the threads. Gives those of the queue that can run now.

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
            return self._admit() if self._waiting else []

    def _serve(self, ticket: _Ticket[L] | None) -> None:
        """Run the call, and in its place one that has waited, and so on until none is left for this lane."""
        while ticket is not None:
            try:
                ticket.result = ticket.context.run(self._use, ticket)
            except BaseException as e:  # noqa: BLE001 - it is raised in the thread of the caller
                ticket.error = e
            admitted = self._leave(ticket.place, ticket.threads)
            ticket.lock.release()
            ticket = admitted.pop(0) if admitted else None
            self._hand_over(admitted)

    def _hand_over(self, admitted: list[_Ticket[L]]) -> None:
        """Let threads of lanes run these calls; this one, if there can be no more threads."""
        for ticket in admitted:
            try:
                WORKERS.start(partial(self._serve, ticket))
            except RuntimeError:
                self._serve(ticket)

    def _use(self, ticket: _Ticket[L]) -> Any:
        return ticket.work(self._lane(ticket.place), ticket.threads)

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

    def _admit(self) -> list[_Ticket[L]]:
        """Let in who can run now, the first in the queue first."""
        admitted = []
        while self._waiting:
            ticket = self._waiting[0]
            threads = self._share(len(self._waiting) - 1, ticket.whole)
            if not threads:
                break
            self._waiting.popleft()
            ticket.threads, ticket.place = threads, self._take(threads)
            admitted.append(ticket)
        return admitted

    def _result(self, ticket: _Ticket[L]) -> Any:
        try:
            ticket.lock.acquire()
        except BaseException:  # an interrupt: give up the place in the queue; what runs already writes to arrays
            with self._guard:
                is_waiting = not ticket.threads
                if is_waiting:
                    self._waiting.remove(ticket)
                    admitted = self._admit()
            if is_waiting:
                self._hand_over(admitted)
            else:
                ticket.lock.acquire()
            raise
        if ticket.error is not None:
            try:
                raise ticket.error
            finally:
                ticket.error = None  # its traceback holds this frame
        return ticket.result
