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


@pytest.fixture(params=["", "address,undefined", "thread"])
def compiler(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words of a compiler without and with sanitizers, which exports use, too."""
    name = next(c for c in ("gcc", "clang", "cc") if shutil.which(c))
    flags = [f"-fsanitize={request.param}", "-fno-sanitize-recover=all"] if request.param else []
    if flags and not links(name, flags, tmp_path):
        pytest.skip(f"{name} has no {request.param} sanitizer")
    monkeypatch.setenv("CC", " ".join([name, *flags]))
    return [name, *flags]


def run_program(compiler: list[str], library: Path, *arguments: Path) -> None:
    program = library.with_name("interface")
    places = [f"-I{tilewright.get_include()}", f"-Wl,-rpath,{library.parent}"]
    source = Path(__file__).with_name("interface.c")
    subprocess.run([*compiler, *WARNINGS, source, library, *places, "-pthread", "-o", program], check=True)
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=1:allocator_may_return_null=1"}
    done = subprocess.run([program, *arguments], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("weights", ["inside", "beside"])
def test_a_model_that_is_linked(compiler: list[str], weights: str, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), threads=2, progress=False)
    library, *_ = model.export(tmp_path / "libmodel.so", weights=weights)  # type: ignore[arg-type]
    run_program(compiler, library)


@pytest.mark.parametrize("name", ["model.so", "model.twa"])
def test_a_model_that_is_opened(compiler: list[str], name: str, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), threads=2, progress=False)
    if name.endswith(".so"):
        model.export(tmp_path / name)
    else:
        tilewright.export_package(tmp_path / name, [model])
    run_program(compiler, tilewright.export_loader(tmp_path / "libtilewright.so"), tmp_path / name)


def links(compiler: str, flags: list[str], folder: Path) -> bool:
    """True if programs with these flags can be made and run here."""
    source, program = folder / "empty.c", folder / "empty"
    source.write_text("int main(void) { return 0; }\n")
    made = subprocess.run([compiler, *flags, source, "-o", program], capture_output=True, check=False)
    return made.returncode == 0 and subprocess.run([program], check=False).returncode == 0
