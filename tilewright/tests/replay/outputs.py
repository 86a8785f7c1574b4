"""Functions, default traces and LLVM text of each network for each target, and the file with their hashes.

The targets are spelled out, so that the machine of the run does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

import onnx

import tilewright
from tilewright.codegen.emit.function import emit_kernel
from tilewright.codegen.prepare.steps import prepare
from tilewright.machine.target import Target
from tilewright.schedule.decisions import DefaultDecider
from tilewright.schedule.default import schedule_by_rule
from tilewright.tests.api import models as small
from tilewright.tests.api.large_models import windowed_attention
from tilewright.tests.frontend import models as imported
from tilewright.tests.frontend.float_models import MODELS as FLOAT_MODELS

TARGETS = {
    "avx2": Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32 << 10, 256 << 10, 8 << 20, 1),
    "avx512": Target(
        "x86_64-unknown-linux-gnu", "znver5", "+avx512f,+avx512vl,+avx512bw,+avx512dq,+fma", 512, 32, 48 << 10, 1 << 20,
        32 << 20, 2,
    ),
}  # fmt: skip
NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    **{name: make for name, (make, _) in FLOAT_MODELS.items()},
    "convolution": small.convolution, "two_inputs": small.two_inputs,
    "windowed_attention": lambda: windowed_attention(1),
    "shapes": imported.shapes, "resize": imported.resize, "quantized": imported.quantized,
}  # fmt: skip
PARTS = ("functions", "traces", "llvm")

EXPECTED = Path(__file__).with_name("expected.json")
UPDATE = "python -m tilewright.tests.replay"

Hashes = dict[str, dict[str, str]]
"""By ``network/target`` and part."""


def texts(name: str, target: str) -> dict[str, str]:
    """The three texts of a network for a target, kernel by kernel."""
    cpu = TARGETS[target]
    lowered = tilewright.compile(NETWORKS[name](), target=cpu, stop_after="lower", progress=False)
    out: dict[str, list[str]] = {part: [] for part in PARTS}
    for kernel, func in lowered.funcs.items():
        schedule = schedule_by_rule(func, cpu, DefaultDecider())
        out["functions"].append(str(func))
        out["traces"].append(schedule.trace.to_text())
        out["llvm"].append(emit_kernel(prepare(schedule.func, cpu), cpu, kernel))
    return {part: "\n".join(lines) for part, lines in out.items()}


def hashes(name: str, target: str) -> dict[str, str]:
    return {part: hashlib.sha256(text.encode()).hexdigest()[:16] for part, text in texts(name, target).items()}


def read_expected() -> Hashes:
    return dict(json.loads(EXPECTED.read_text(encoding="utf-8")))


def write_expected(found: Hashes) -> None:
    EXPECTED.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
