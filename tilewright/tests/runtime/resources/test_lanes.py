"""Lanes: who gets how many threads, in which order, and what an interrupt leaves behind."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest

from tilewright.runtime.resources import lanes as module
from tilewright.runtime.resources.lanes import Lanes


def _lanes(threads: int, streams: int | None = None) -> Lanes[str]:
    made = count(1)
    return Lanes(threads, streams, "lane 0", lambda: f"lane {next(made)}")


@contextmanager
def _inside(lanes: Lanes[str], whole: bool = False) -> Iterator[tuple[str, int]]:
    place, lane, threads = lanes.enter(whole)
    try:
        yield lane, threads
    finally:
        lanes.leave(place, threads)


def _wait_until(holds: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(100_000):
        if holds():
            return
        pause.wait(0.001)
    raise AssertionError("it never came true")


class _Caller:
    """A thread that enters, and leaves when it is told to."""

    def __init__(self, lanes: Lanes[str], whole: bool = False) -> None:
        self.go, self.got = threading.Event(), list[tuple[str, int]]()

        def work() -> None:
            with _inside(lanes, whole) as got:
                self.got.append(got)
                self.go.wait(60)

        before = len(lanes._waiting)
        self.thread = threading.Thread(target=work)
        self.thread.start()
        _wait_until(lambda: bool(self.got) or len(lanes._waiting) > before)

    def leave(self) -> None:
        self.go.set()
        self.thread.join()


def test_one_caller_has_all_threads() -> None:
    lanes = _lanes(4)
    for _ in range(3):
        with _inside(lanes) as got:
            assert got == ("lane 0", 4)


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
        with _inside(lanes):
            pass
    with _inside(lanes) as got:
        assert got == ("lane 0", 2)


@pytest.mark.parametrize(("threads", "shares"), [(64, {64, 32, 16, 8, 4, 2, 1}), (6, {6, 3, 1}), (2, {2, 1})])
def test_there_are_few_sizes_of_shares(threads: int, shares: set[int]) -> None:
    """Each size has pools of its own, which stay: of 64 threads at most 321 instead of 1500."""
    rng, lanes = random.Random(0), _lanes(threads)
    inside, most = list[tuple[int, int]](), dict.fromkeys(shares, 0)
    for _ in range(3000):
        if inside and (rng.random() < 0.5 or not lanes._share(0, False)):
            lanes.leave(*inside.pop(rng.randrange(len(inside))))
        else:
            place, _, share = lanes.enter()
            inside.append((place, share))
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

    def work() -> None:
        for _ in range(300):
            with _inside(lanes) as (_, threads):
                with guard:
                    used[0] += threads
                    most[0] = max(most[0], used[0])
                with guard:
                    used[0] -= threads

    workers = [threading.Thread(target=work) for _ in range(8)]
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

    def work(i: int) -> None:
        with _inside(lanes):
            order.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    with _inside(lanes):
        for i, t in enumerate(threads):
            t.start()
            _wait_until(lambda i=i: len(lanes._waiting) == i + 1)  # type: ignore[misc]
    for t in threads:
        t.join()
    assert order == list(range(8))


def test_an_error_gives_the_lane_back() -> None:
    lanes = _lanes(2)
    with pytest.raises(ValueError, match="mine"), _inside(lanes):
        raise ValueError("mine")
    with _inside(lanes) as got:
        assert got == ("lane 0", 2)


def test_a_lane_that_cannot_be_made() -> None:
    def fail() -> str:
        raise MemoryError("no lane")

    lanes: Lanes[str] = Lanes(2, 2, "lane 0", fail)
    with _inside(lanes):
        with pytest.raises(MemoryError, match="no lane"):
            lanes.enter()
        assert (lanes._running, lanes._free, lanes._made, lanes._busy) == (1, 1, ["lane 0", None], [True, False])


@pytest.mark.parametrize("has_come", [False, True])
def test_an_interrupt_while_waiting(has_come: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    lanes = _lanes(2)

    class Ticket:
        """A lock whose second acquisition is interrupted, before or just after the call was admitted."""

        def __init__(self) -> None:
            self.count = 0

        def acquire(self) -> None:
            self.count += 1
            if self.count == 2:
                if has_come:
                    lanes.leave(first[0], first[2])
                raise KeyboardInterrupt

        def release(self) -> None:
            pass

    first = lanes.enter()
    monkeypatch.setattr(module, "Lock", Ticket)
    with pytest.raises(KeyboardInterrupt):
        lanes.enter()
    monkeypatch.undo()
    assert not lanes._waiting
    if not has_come:
        lanes.leave(first[0], first[2])
    assert (lanes._running, lanes._free, lanes._busy) == (0, 2, [False, False])
