"""What kinds of files there are for which target, and who links them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core.errors import InputError, TargetError
from tilewright.deploy.loader import Artifact
from tilewright.deploy.systems import zig_target
from tilewright.deploy.toolchain import find_toolchain
from tilewright.tests.api.models import perceptron
from tilewright.tests.deploy.exported import assert_same, needs_compiler
from tilewright.tests.deploy.program import build_program, needs_zig
from tilewright.tests.deploy.tools import needs

X = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


@pytest.mark.parametrize(
    ("target", "name", "message"),
    [
        (
            "x86_64-unknown-linux-gnu -mcpu=x86-64",
            "model.dll",
            r"expected model\.so or model\.a for x86_64-.*model\.dll",
        ),
        ("x86_64-pc-windows-gnu -mcpu=x86-64", "model.so", r"expected model\.dll or model\.a"),
        (
            "arm64-apple-macos",
            "net.so",
            r"expected net\.dylib or net\.a for arm64-apple-macos, or format=, got net\.so",
        ),
        ("wasm32-wasi", "model", r"expected model\.wasm or model\.a"),
    ],
)
def test_extensions(target: str, name: str, message: str, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), target=f"llvm -mtriple={target}", progress=False)
    with pytest.raises(InputError, match=message):
        model.export(tmp_path / name)
    with pytest.raises(InputError, match="format"):
        model.export(tmp_path / "model", format="exe")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("triple", "message"),
    [
        ("x86_64-pc-windows-msvc", "expected -mtriple=x86_64-pc-windows-gnu"),
        ("x86_64-unknown-freebsd", "expected a target with one of the systems linux, windows"),
    ],
)
def test_systems(triple: str, message: str, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), target=f"llvm -mtriple={triple} -mcpu=x86-64", progress=False)
    with pytest.raises(TargetError, match=message):
        model.export(tmp_path / "model.so")


@needs_compiler
def test_a_format_that_the_extension_does_not_say(tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), progress=False)
    model.export(tmp_path / "model", format="so")
    assert_same(model, Artifact(tmp_path / "model"), {"x": X})


@needs_compiler
@pytest.mark.parametrize("is_linked", [True, False])
def test_programs_of_this_machine(is_linked: bool, tmp_path: Path) -> None:
    model = tilewright.compile(perceptron(), progress=False)
    program = build_program(model, "llvm", tmp_path, is_linked)
    assert program.run({"x": X})["y"].tobytes() == model.run({"x": X})["y"].tobytes()


@needs("aarch64-linux-gnu-gcc", "qemu-aarch64")
def test_cross_compilers_of_the_system(tmp_path: Path) -> None:
    assert find_toolchain(parse_target(ARM)).what == "aarch64-linux-gnu-gcc"
    model, here = (tilewright.compile(perceptron(), target=t, progress=False) for t in (ARM, None))
    got = build_program(model, ARM, tmp_path).run({"x": X})["y"]
    np.testing.assert_allclose(got, here.run({"x": X})["y"], 1e-5, 1e-6)


@needs_zig
def test_zig_is_there_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_toolchain(parse_target(ARM)).what == "zig cc"


def test_no_compiler_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("tilewright.deploy.toolchain._find_zig", lambda: None)
    with pytest.raises(TargetError, match=r"\(aarch64-linux-gnu-gcc\), found none; pip install 'tilewright\[deploy\]'"):
        find_toolchain(parse_target(ARM))
    with pytest.raises(TargetError, match=r"cc, gcc, clang, or what \$CC names"):
        find_toolchain(parse_target(None))


def test_the_words_of_zig() -> None:
    assert zig_target("x86_64-unknown-linux-gnu") == "x86_64-linux-gnu.2.17"
    assert zig_target("riscv64-unknown-linux-musl") == "riscv64-linux-musl"
    assert zig_target("arm64-apple-macosx14.0") == "aarch64-macos.11.0"
    assert zig_target("wasm32-unknown-wasi") == "wasm32-wasi"
