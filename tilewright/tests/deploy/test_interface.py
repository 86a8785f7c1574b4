"""The C interface from a C program, as it is and under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import tilewright
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.exported import needs_compiler

pytestmark = needs_compiler
WARNINGS = ("-std=c11", "-g", "-Wall", "-Wextra", "-Werror")


@pytest.mark.parametrize("sanitizer", ["", "address,undefined", "thread"])
@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_interface(sanitizer: str, weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = next(c for c in ("gcc", "clang", "cc") if shutil.which(c))
    flags = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] if sanitizer else []
    if sanitizer and not links(compiler, flags, tmp_path):
        pytest.skip(f"{compiler} has no {sanitizer} sanitizer")
    monkeypatch.setenv("CC", " ".join([compiler, *flags]))
    library, *_ = tilewright.compile(perceptron(), threads=2, progress=False).export(
        tmp_path / "libmodel.so", weights=weights
    )
    source = Path(__file__).with_name("interface.c")
    program = tmp_path / "interface"
    places = [f"-I{tilewright.get_include()}", f"-Wl,-rpath,{tmp_path}"]
    command = [compiler, *WARNINGS, *flags, source, library, *places, "-pthread"]
    subprocess.run([*command, "-o", program], check=True)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def links(compiler: str, flags: list[str], folder: Path) -> bool:
    """True if programs with these flags can be made and run here."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    made = subprocess.run([compiler, *flags, source, "-o", program], capture_output=True, check=False)
    return made.returncode == 0 and subprocess.run([program], check=False).returncode == 0
