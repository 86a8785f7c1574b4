"""Models for another machine: built and looked at, never called."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.errors import TargetError
from tilewright.tests.api.models import perceptron

ARM = "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1"
NEWER = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=diamondrapids"
FEED = {"x": np.ones((3, 32), np.float32)}

pytestmark = pytest.mark.skipif(not detect_host().triple.startswith("x86_64"), reason="the targets are foreign to x86")


@pytest.mark.parametrize("target", [ARM, NEWER])
def test_a_foreign_model_can_be_looked_at_and_not_run(target: str, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), target=target, cache=False)
    assert [s.name for s in model.inputs] == ["x"]
    assert "kernel" in model.explain()
    assert any(p.suffix == ".s" for p in model.dump(tmp_path))
    for call in (model.run, model.profile, model.symbols):
        with pytest.raises(TargetError, match=r"^built for .*, this (machine|CPU) "):
            call(FEED)


@pytest.mark.parametrize("stage", ["lower", "schedule", "codegen"])
def test_the_stages_of_a_foreign_build(stage: str) -> None:
    assert tilewright.compile(perceptron(), target=ARM, stop_after=stage, cache=False)  # type: ignore[call-overload]


def test_a_foreign_target_is_not_tuned() -> None:
    with pytest.raises(TargetError, match="tune: built for aarch64"):
        tilewright.tune(perceptron(), target=ARM, time_budget_s=1)
