"""What measuring finds on this machine: it takes part in no decision unless a target asks for it."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from tilewright.autotune.measure import peaks
from tilewright.codegen.detect_cpu import detect_host
from tilewright.machine.costs import GENERIC


def test_rates_are_work_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    target = replace(detect_host(), threads=3, l1_bytes=32 << 10, l2_bytes=1 << 20, l3_bytes=32 << 20)
    monkeypatch.setattr(peaks, "_best_seconds", lambda func, target, trace=None, runs=8: 1e-3 * target.threads)
    monkeypatch.setattr(peaks, "measure_peaks", peaks.measure_peaks.__wrapped__)
    found = peaks.measure_costs.__wrapped__(target)
    assert found.memory == pytest.approx((128 << 20) / 1e6)
    assert found.l1 == found.l2 == found.l3 == pytest.approx((64 << 20) / 1e6)
    assert found.operations == pytest.approx(128 * found.exponentials)
    assert found.parallel_start == pytest.approx(2e6)
    assert peaks.measure_costs.__wrapped__(replace(target, l3_bytes=0)).l3 is None


def test_a_target_takes_them_when_it_is_told_to() -> None:
    host = detect_host()
    found = peaks.measure_costs(host)
    assert all(getattr(found, f.name) is None or getattr(found, f.name) >= 0 for f in fields(found))
    own = found.costs(GENERIC)
    assert (own.memory_rate, own.multiply_add_rate) == (found.memory, found.multiply_adds)
    assert replace(own, memory_rate=12.0, multiply_add_rate=80.0, operation_rate=8.0, stream_rate=50.0) == GENERIC
    assert host.costs is not own
    assert replace(host, own_costs=own).costs is own
