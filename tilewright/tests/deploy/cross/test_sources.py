"""The C of the runtime compiles for every system, without a warning."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.deploy.include import get_include
from tilewright.deploy.toolchain import find_toolchain
from tilewright.tests.deploy.program import needs_zig

pytestmark = needs_zig


@pytest.mark.parametrize(
    "triple",
    ["x86_64-linux-musl", "aarch64-linux-musl", "riscv64-linux-musl", "x86_64-windows-gnu", "aarch64-macos",
     "x86_64-macos", "wasm32-wasi"],
)  # fmt: skip
def test_no_warnings(triple: str, tmp_path: Path) -> None:
    sources = sorted(str(p) for p in Path(get_include()).glob("*.c"))
    assert sources
    cpu = "x86-64" if triple.startswith("x86_64") else "generic"
    compiler = find_toolchain(parse_target(f"llvm -mtriple={triple} -mcpu={cpu}")).compiler
    for source in sources:
        command = [*compiler, "-std=c11", "-Os", "-Wall", "-Wextra", "-Werror", "-c", source]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stderr
