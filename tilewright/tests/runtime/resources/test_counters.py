"""Hardware counters: what is counted in calls and scaled, what is taken off, and every way to be refused."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Mapping

import pytest

from tilewright.core.errors import MeasurementError
from tilewright.runtime.resources import counters
from tilewright.runtime.resources.counters import HARDWARE, Counters, LinuxEvents

SOFTWARE = {"task_clock": (1, 1), "page_faults": (1, 2)}


class Fake:
    """Counters that go on by ``rate`` a step of work while they run, and by ``overhead`` at each start. ``turns``: the
    share of the time for which they count, if they have to share. ``errors``: by number of the event."""

    def __init__(self, overhead: int = 0, turns: float = 1.0, errors: Mapping[int, int] | None = None) -> None:
        self.overhead, self.turns, self.errors = overhead, turns, errors or {}
        self.values: dict[int, list[float]] = {}
        self.running = False
        self.closed: list[int] = []

    def open(self, kind: int, number: int) -> int:
        if number in self.errors:
            raise OSError(self.errors[number], os.strerror(self.errors[number]))
        self.values[number] = [0.0, 0.0, 0.0]
        return number

    def work(self, steps: int) -> int:
        if self.running:
            for number, v in self.values.items():
                v[0] += (number + 1) * steps * self.turns
                v[1] += steps
                v[2] += steps * self.turns
        return steps

    def read(self, counter: int) -> tuple[int, int, int]:
        return tuple(map(int, self.values[counter]))  # type: ignore[return-value]

    def start(self) -> None:
        self.running = True
        self.work(self.overhead)

    def stop(self) -> None:
        self.running = False

    def close(self, counter: int) -> None:
        self.closed.append(counter)


def counted(fake: Fake) -> tuple[Counters, Callable[..., int]]:
    found = Counters(lambda: fake, {"one": (0, 0), "three": (0, 2)})
    return found, found.around(fake.work)


def test_only_what_is_done_in_calls_is_counted() -> None:
    fake = Fake()
    c, call = counted(fake)
    fake.work(1000)
    assert (call(10), call(5)) == (10, 5)
    fake.work(1000)
    assert c.take() == {"one": 15.0, "three": 45.0}
    assert c.take() == {}, "nothing ran since"
    call(1)
    assert c.take() == {"one": 1.0, "three": 3.0}


def test_the_cost_of_counting_is_taken_off() -> None:
    fake = Fake(overhead=100)
    c, call = counted(fake)
    call(7)
    call(8)
    assert c.take() == {"one": 15.0, "three": 45.0}
    call(0)
    assert c.take() == {"one": 0.0, "three": 0.0}


def test_counters_that_take_turns_are_scaled() -> None:
    c, call = counted(Fake(turns=0.25))
    call(400)
    assert c.take() == {"one": 400.0, "three": 1200.0}


def test_a_call_that_fails_is_stopped() -> None:
    fake = Fake()
    c, _ = counted(fake)

    def fails() -> int:
        raise KeyError

    with pytest.raises(KeyError):
        c.around(fails)()
    assert not fake.running


def test_they_are_given_back() -> None:
    fake = Fake()
    with counted(fake)[0]:
        pass
    assert fake.closed == [0, 2]


def test_an_event_alone_may_be_missing() -> None:
    c = Counters(lambda: Fake(errors={3: errno.ENOENT}))
    assert set(c.refused) == {"llc_misses"}
    assert c.refused["llc_misses"].startswith("this CPU has no such counter (No such file or directory); virtual")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            errno.EACCES,
            "does not let this process count (/proc/sys/kernel/perf_event_paranoid is 4): sysctl kernel.perf",
        ),
        (errno.EPERM, "CAP_PERFMON; in a container also a seccomp profile that allows perf_event_open"),
        (errno.ENOENT, "virtual machines mostly hide theirs"),
        (errno.EOPNOTSUPP, "virtual machines mostly hide theirs"),
        (errno.ENOSYS, "this system has none: Function not implemented"),
        (errno.EMFILE, "the system gives none: Too many open files"),
    ],
)
def test_each_refusal_says_what_to_do(code: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Paranoid:
        def read_text(self) -> str:
            return "4\n"

        def __str__(self) -> str:
            return "/proc/sys/kernel/perf_event_paranoid"

    monkeypatch.setattr(counters, "_PARANOID", Paranoid())
    refusing = Fake(errors={number: code for _, number in HARDWARE.values()})
    with pytest.raises(MeasurementError) as e:
        Counters(lambda: refusing)
    assert str(e.value).startswith("counters: ")
    assert words in str(e.value)
    assert str(e.value).count(words) == 1, "said once, not for each event"


@pytest.mark.parametrize(("system", "machine"), [("win32", "AMD64"), ("darwin", "arm64"), ("linux", "sparc")])
def test_other_systems_have_none(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(counters.platform, "machine", lambda: machine)
    with pytest.raises(
        MeasurementError, match=rf"counters: this system has none: .* on {machine} has no perf_event_open"
    ):
        Counters()


def test_of_this_system() -> None:
    """What every Linux counts by itself, if it lets us: the time that this thread ran."""
    try:
        found = Counters(events=SOFTWARE)
    except MeasurementError as e:
        pytest.skip(str(e))
    with found as c:
        call = c.around(lambda n: sum(range(n)))
        call(10)
        short = c.take()
        call(1_000_000)
        long = c.take()
    assert set(short) <= set(SOFTWARE)
    if "task_clock" in long:
        assert long["task_clock"] > short["task_clock"]
    with pytest.raises(OSError, match=os.strerror(errno.ENOENT)):
        LinuxEvents().open(1, 1 << 40)
