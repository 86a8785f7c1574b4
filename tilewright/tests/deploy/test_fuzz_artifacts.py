"""Some of the artifacts that ``fuzz_artifacts`` makes."""

from __future__ import annotations

from tilewright.tests.deploy.exported import needs_compiler
from tilewright.tests.deploy.fuzz_artifacts import fuzz

pytestmark = needs_compiler


def test_damaged_artifacts() -> None:
    found = fuzz(150)
    assert found.keys() <= {"refused", "same"}, found
    assert len(found["refused"]) > 100
