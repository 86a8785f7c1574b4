"""Winners measured again: what holds, what does not, and what is not ours to check."""

from __future__ import annotations

import dataclasses

import pytest

from tilewright.autotune.base.measure_result import Failed, FailureKind, MeasureResult, Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.workload import canonical
from tilewright.autotune.measure.measurer import LocalMeasurer, Measurable, TableMeasurer
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.autotune.records.record import Record
from tilewright.autotune.review.recheck import Checked, Finding, recheck, winners
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.errors import InputError
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, with_threads


def _best(m: int = 24, number: int = 1) -> Record:
    return record(dense(m), candidates(dense(m), HERE, number + 1)[number], 1e-3)


def _check(r: Record, result: MeasureResult, default: float = 2e-3) -> Checked:
    def table(c: Measurable) -> MeasureResult:
        return result if c.key == r.candidate else Ok(default, (default,) * 9, 0.0, 0.1)

    (done,) = recheck(winners([r], HERE), TableMeasurer(table))
    return done


def _ok(seconds: float) -> Ok:
    return Ok(seconds, (seconds,) * 9, 0.0, 0.1)


def test_what_holds() -> None:
    done = _check(_best(), _ok(1.5e-3))
    assert done.finding is Finding.HOLDS
    assert done.against_default == pytest.approx(0.75)
    assert done.against_record == pytest.approx(1.5)
    assert not done.finding.is_bad


def test_what_does_not() -> None:
    assert _check(_best(), _ok(3e-3)).finding is Finding.SLOWER
    wrong = _check(_best(), Failed(FailureKind.WRONG_RESULT, "off by 1"))
    assert (wrong.finding, wrong.why) == (Finding.WRONG, "wrong_result: off by 1")
    assert _check(_best(), Failed(FailureKind.CRASH, "signal 11")).finding is Finding.FAILED
    assert _check(_best(), Failed(FailureKind.ILLEGAL, "no")).finding is Finding.ILLEGAL
    step = {"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}}
    broken = _check(dataclasses.replace(_best(), steps=(step,)), _ok(1.0))
    assert broken.finding is Finding.ILLEGAL
    assert "expected the name of a loop" in broken.why
    assert all(f.is_bad for f in (Finding.SLOWER, Finding.WRONG, Finding.FAILED, Finding.ILLEGAL))


def test_a_little_slower_or_by_chance_holds() -> None:
    assert _check(_best(), _ok(2.02e-3)).finding is Finding.HOLDS
    noisy = Ok(3e-3, (1e-3, 9e-3, 1.5e-3, 8e-3), 0.0, 0.1)
    assert _check(_best(), noisy).finding is Finding.HOLDS


def test_the_default_is_not_compared_with_itself() -> None:
    done = _check(_best(number=0), _ok(7e-3))
    assert Space(canonical(dense()), HERE).default().key == _best(number=0).candidate
    assert (done.finding, done.against_default) == (Finding.HOLDS, 1.0)


def test_records_of_other_machines_are_left_out() -> None:
    other = dataclasses.replace(_best(30), target=dataclasses.replace(HERE, cpu="skylake"))
    wide = dataclasses.replace(_best(31), target=dataclasses.replace(HERE, vector_bits=512))
    todo = winners([_best(), other, wide, with_threads(_best(32), 64)], HERE)
    reasons = sorted(c.why for c in todo)
    assert reasons[0] == ""
    assert reasons[1] == "for 64 threads; there are 2"
    assert reasons[2] == "for skylake; this is znver4"
    assert reasons[3].startswith("for x86_64 512-bit x16 fma; this is")
    asked = TableMeasurer(lambda c: 1e-3)
    done = recheck(todo, asked)
    assert len({c.record.workload.hash for c in done if c.finding is Finding.HOLDS}) == 1
    assert sum(c.finding is Finding.UNCHECKED for c in done) == 3


def test_the_best_only_and_each_is_told() -> None:
    seen: list[Checked] = []
    both = [_best(), dataclasses.replace(_best(number=2), seconds=2e-3)]
    recheck(winners(both, HERE), TableMeasurer(lambda c: 1e-3), on_result=seen.append)
    assert [c.record.candidate for c in seen] == [_best().candidate]
    with pytest.raises(InputError, match="verify: expected at least 1 round, got 0"):
        recheck([], TableMeasurer({}), rounds=0)


def test_in_worker_processes() -> None:
    """A record that is right, and one whose trace gives another candidate than it says it is."""
    here = detect_host().with_threads(1)
    func = dense(16, 32, 8)
    good = record(func, candidates(func, here, 2)[1], 1e-6, target=here)
    with LocalMeasurer(EvaluatorConfig()) as measurer:
        (done,) = recheck(winners([good], detect_host()), measurer, rounds=3)
    assert done.finding in (Finding.HOLDS, Finding.SLOWER)
    assert done.seconds is not None
    assert done.default_seconds is not None
