"""Lanes: who gets how many threads, in which order, on which thread, and what an interrupt leaves behind."""

from __future__ import annotations

import gc
import random
import threading
import weakref
from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from tilewright.runtime.resources import lanes as module
from tilewright.runtime.resources.lanes import Lanes


def _lanes(threads: int, streams: int | None = None) -> Lanes[str]:
    made = count(1)
    return Lanes(threads, streams, "lane 0", lambda: f"lane {next(made)}")


def _got(lane: str, threads: int) -> tuple[str, int]:
    return lane, threads


def _wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(100_000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it never came true")


class _Caller:
    """A thread whose call ends when it is told to. ``ran_on``: the thread that the work ran on."""

    def __init__(self, lanes: Lanes[str], whole: bool = False) -> None:
        self.go, self.got = threading.Event(), list[tuple[str, int]]()
        self.ran_on: threading.Thread | None = None

        def work(lane: str, threads: int) -> None:
            self.ran_on = threading.current_thread()
            self.got.append((lane, threads))
            self.go.wait(60)

        before = len(lanes._waiting)
        self.thread = threading.Thread(target=lambda: lanes.run(work, whole))
        self.thread.start()
        _wait_until(lambda: bool(self.got) or len(lanes._waiting) > before)

    def leave(self) -> None:
        self.go.set()
        self.thread.join()


def test_one_caller_has_all_threads() -> None:
    lanes = _lanes(4)
    for _ in range(3):
        assert lanes.run(_got) == ("lane 0", 4)


def test_who_waits_is_run_by_a_thread_of_the_lane_and_others_by_their_own() -> None:
    lanes = _lanes(2, 1)
    callers = [_Caller(lanes) for _ in range(3)]
    for c in callers:
        _wait_until(lambda c=c: bool(c.got))  # type: ignore[misc]
        c.leave()
    assert callers[0].ran_on is callers[0].thread
    assert callers[1].ran_on is callers[2].ran_on is not callers[1].thread
    assert lanes.run(lambda lane, threads: threading.current_thread()) is threading.current_thread()


def test_callers_that_come_together_share() -> None:
    lanes = _lanes(2)
    a = _Caller(lanes)
    b, c = _Caller(lanes), _Caller(lanes)
    assert (a.got, b.got, c.got) == ([("lane 0", 2)], [], [])
    a.leave()
    _wait_until(lambda: bool(b.got and c.got))
    assert sorted((*b.got, *c.got)) == [("lane 0", 1), ("lane 1", 1)]
    b.leave()
    c.leave()


def test_who_left_a_queue_is_expected_back_once() -> None:
    lanes = _lanes(2)
    a = _Caller(lanes)
    b = _Caller(lanes)
    a.leave()
    _wait_until(lambda: bool(b.got))
    assert b.got[0][1] == 1
    again = _Caller(lanes)
    assert again.got[0][1] == 1
    b.leave()
    again.leave()
    for _ in range(2):
        lanes.run(_got)
    assert lanes.run(_got) == ("lane 0", 2)


@pytest.mark.parametrize(("threads", "shares"), [(64, {64, 32, 16, 8, 4, 2, 1}), (6, {6, 3, 1}), (2, {2, 1})])
def test_there_are_few_sizes_of_shares(threads: int, shares: set[int]) -> None:
    """Each size has pools of its own, which stay: of 64 threads at most 321 instead of 1500."""
    rng, lanes = random.Random(0), _lanes(threads)
    inside, most = list[tuple[int, int]](), dict.fromkeys(shares, 0)
    for _ in range(3000):
        if inside and (rng.random() < 0.5 or not lanes._share(0, False)):
            lanes._leave(*inside.pop(rng.randrange(len(inside))))
        else:
            share = lanes._share(0, False)
            inside.append((lanes._take(share), share))
            most[share] = max(most[share], sum(n == share for _, n in inside))
        assert sum(n for _, n in inside) <= threads
    assert most.keys() == shares
    assert sum(n * (share - 1) for share, n in most.items()) <= sum(threads - threads // n for n in shares)


@pytest.mark.parametrize(
    ("threads", "streams", "most", "share"), [(4, 1, 1, 4), (4, 2, 2, 2), (4, 3, 3, 1), (2, 9, 2, 1), (1, None, 1, 1)]
)
def test_streams_have_equal_shares(threads: int, streams: int | None, most: int, share: int) -> None:
    lanes = _lanes(threads, streams)
    assert lanes.streams == most
    callers = [_Caller(lanes) for _ in range(most + 1)]
    assert [c.got for c in callers[:-1]] == [[(f"lane {k}", share)] for k in range(most)]
    assert callers[-1].got == []
    for c in callers:
        c.leave()


def test_the_threads_in_use_are_never_more_than_there_are() -> None:
    lanes, most, guard, used = _lanes(3), [0], threading.Lock(), [0]

    def work(_: str, threads: int) -> None:
        with guard:
            used[0] += threads
            most[0] = max(most[0], used[0])
        with guard:
            used[0] -= threads

    def call() -> None:
        for _ in range(300):
            lanes.run(work)

    workers = [threading.Thread(target=call) for _ in range(8)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert 1 <= most[0] <= 3
    assert not any(lanes._busy)
    assert (lanes._running, lanes._free, len(lanes._waiting)) == (0, 3, 0)


def test_a_call_by_itself_waits_for_all_others_and_they_for_it() -> None:
    lanes = _lanes(2, 2)
    a = _Caller(lanes)
    alone = _Caller(lanes, whole=True)
    later = _Caller(lanes)
    assert (alone.got, later.got) == ([], [])
    a.leave()
    _wait_until(lambda: bool(alone.got))
    assert (alone.got, later.got) == ([("lane 0", 2)], [])
    alone.leave()
    _wait_until(lambda: bool(later.got))
    later.leave()


def test_turns_are_in_the_order_of_arrival() -> None:
    lanes, order = _lanes(2, 1), list[int]()
    first = _Caller(lanes)
    threads = [threading.Thread(target=lanes.run, args=(lambda *_, i=i: order.append(i),)) for i in range(8)]
    for i, t in enumerate(threads):
        t.start()
        _wait_until(lambda i=i: len(lanes._waiting) == i + 1)  # type: ignore[misc]
    first.leave()
    for t in threads:
        t.join()
    assert order == list(range(8))


def _fail(lane: str, threads: int) -> None:
    raise ValueError(f"mine, in {lane} on {threads}")


@pytest.mark.parametrize("waits", [False, True])
def test_an_error_gives_the_lane_back(waits: bool) -> None:
    lanes, errors = _lanes(2, 1), list[str]()

    def call() -> None:
        with pytest.raises(ValueError, match="mine, in lane 0 on 2") as caught:
            lanes.run(_fail)
        errors.append(str(caught.value))

    first = _Caller(lanes) if waits else None
    caller = threading.Thread(target=call)
    caller.start()
    if first is not None:
        _wait_until(lambda: bool(lanes._waiting))
        first.leave()
    caller.join()
    assert errors
    assert lanes.run(_got) == ("lane 0", 2)


def test_a_lane_that_cannot_be_made() -> None:
    def fail() -> str:
        raise MemoryError("no lane")

    lanes: Lanes[str] = Lanes(2, 2, "lane 0", fail)
    first = _Caller(lanes)
    with pytest.raises(MemoryError, match="no lane"):
        lanes.run(_got)
    assert (lanes._running, lanes._free, lanes._made, lanes._busy) == (1, 1, ["lane 0", None], [True, False])
    first.leave()


def test_who_waits_keeps_its_way_with_errors_of_numpy() -> None:
    lanes, seen = _lanes(2, 1), list[str]()

    def call() -> None:
        with np.errstate(divide="raise"):
            lanes.run(lambda *_: seen.append(np.geterr()["divide"]))

    first = _Caller(lanes)
    caller = threading.Thread(target=call)
    caller.start()
    _wait_until(lambda: bool(lanes._waiting))
    first.leave()
    caller.join()
    assert seen == ["raise"]


def test_who_waits_is_run_where_there_can_be_no_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = _lanes(2, 1)

    def refuse(job: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.WORKERS, "start", refuse)
    first, second = _Caller(lanes), _Caller(lanes)
    second.go.set()
    first.leave()
    second.leave()
    assert second.ran_on is first.thread
    assert lanes.run(_got) == ("lane 0", 2)


def test_threads_of_lanes_hold_nothing_when_they_are_idle() -> None:
    lanes = _lanes(2, 1)
    first, second = _Caller(lanes), _Caller(lanes)
    first.leave()
    second.leave()
    kept = weakref.ref(lanes)
    del lanes, first, second

    def is_gone() -> bool:
        gc.collect()
        return kept() is None

    _wait_until(is_gone)


@pytest.mark.parametrize("runs", [False, True])
def test_an_interrupt_while_waiting(runs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its turn a call gives up its place; one that runs already ends first, since it writes to arrays."""
    lanes, order, real_lock = _lanes(2), list[str](), threading.Lock
    first = _Caller(lanes)

    class Interrupted:
        """A lock of a ticket, whose second acquisition is interrupted."""

        def __init__(self) -> None:
            self.lock, self.count = real_lock(), 0

        def acquire(self) -> None:
            self.count += 1
            if self.count == 2:
                if runs:
                    first.leave()
                    _wait_until(lambda: bool(order))
                raise KeyboardInterrupt
            self.lock.acquire()

        def release(self) -> None:
            order.append("ended")
            self.lock.release()

    monkeypatch.setattr(module, "Lock", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        lanes.run(lambda *_: order.append("began"))
    monkeypatch.undo()
    assert order == (["began", "ended"] if runs else [])
    assert not lanes._waiting
    first.leave()
    assert (lanes._running, lanes._free, lanes._busy) == (0, 2, [False, False])
