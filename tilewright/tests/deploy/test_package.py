"""Packages: several targets in one file, the best that the CPU has, and refusals in sentences."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.cli import main
from tilewright.codegen.detect_cpu import detect_host
from tilewright.deploy.files.package import read_package, write_package
from tilewright.deploy.files.seal import seal_of
from tilewright.deploy.loader import Artifact, ArtifactError, Status
from tilewright.deploy.pack import member_system, read_manifests
from tilewright.deploy.source.model import ModelSource
from tilewright.deploy.toolchain import find_toolchain
from tilewright.tests.api.models import perceptron, saved
from tilewright.tests.deploy.exported import assert_same, needs_compiler

pytestmark = needs_compiler
X = np.random.default_rng(0).standard_normal((5, 32)).astype(np.float32)
HOST = tilewright.compile(perceptron(), progress=False)
X86_64_V1 = "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64"


def package(path: Path, *targets: str | None) -> list[tilewright.CompiledModel]:
    models = [tilewright.compile(perceptron(), target=t, progress=False) for t in targets]
    tilewright.export_package(path, models)
    return models


def test_one_target(tmp_path: Path) -> None:
    (model,) = package(tmp_path / "model.twa", None)
    artifact = tilewright.load(tmp_path / "model.twa")
    assert_same(model, artifact, {"x": X})
    assert artifact.manifest["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 32]}]


def test_the_best_target_is_taken(tmp_path: Path) -> None:
    plain, own = package(tmp_path / "model.twa", X86_64_V1, None)
    first, second = read_manifests(tmp_path / "model.twa")
    assert len(first["target"]["features"]) > len(second["target"]["features"])
    artifact = tilewright.load(tmp_path / "model.twa")
    assert artifact.manifest == first
    assert_same(own, artifact, {"x": X})
    assert plain.run({"x": X})["y"].shape == (5, 10)


def code_of(folder: Path, feature: str = "") -> tuple[bytes, Path]:
    """Code that needs a feature more, and its weights."""
    inner = ModelSource.text

    def text(self: ModelSource, said: str, threads: int, features: list[str], *rest: Any) -> str:
        return inner(self, said, threads, [*features, *filter(None, [feature])], *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelSource, "text", text)
        code, weights = HOST.export(folder / "code.so", weights="beside")
    return code.read_bytes(), weights


def test_code_for_other_cpus_is_passed_over(tmp_path: Path) -> None:
    here = member_system(detect_host().triple)
    fits, weights = code_of(tmp_path)
    needs_more, _ = code_of(tmp_path, "sse9")
    others = [("sparc-linux", fits, b"{}", weights), (here, needs_more, b"{}", weights)]
    write_package(tmp_path / "model.twa", [*others, (here, fits, b"{}", weights)])
    assert_same(HOST, Artifact(tmp_path / "model.twa"), {"x": X})
    write_package(tmp_path / "none.twa", others)
    with pytest.raises(ArtifactError, match=r"no code in it is for this CPU: for sparc-linux.*a CPU with sse9"):
        Artifact(tmp_path / "none.twa")


def test_equal_weights_are_there_once(tmp_path: Path) -> None:
    code, weights = code_of(tmp_path)
    write_package(tmp_path / "model.twa", [(system, code, b"{}", weights) for system in ("a-linux", "b-linux")])
    first, second = read_package(memoryview((tmp_path / "model.twa").read_bytes()))
    assert (first.weights, first.code) == (second.weights, second.code)


def test_damage(tmp_path: Path) -> None:
    package(tmp_path / "model.twa", None)
    data = (tmp_path / "model.twa").read_bytes()
    (member,) = read_package(memoryview(data))
    parts = (member.code, member.manifest, member.weights)
    places = [0, 9, 13, 17, 30, 45, 80, 110, *(p.offset + p.size // 2 for p in parts)]
    for place in places:
        bad = bytearray(data)
        bad[place] ^= 0x10
        (tmp_path / "bad.twa").write_bytes(bad)
        if parts[1].offset <= place < parts[1].offset + parts[1].size:
            continue  # the manifest beside the code is for listings
        with pytest.raises(ArtifactError):
            Artifact(tmp_path / "bad.twa")
    for size in (0, 3, 40, 100, 5000, len(data) - 1):
        (tmp_path / "bad.twa").write_bytes(data[:size])
        with pytest.raises(ArtifactError):
            Artifact(tmp_path / "bad.twa")


def test_newer_formats_say_so(tmp_path: Path) -> None:
    package(tmp_path / "model.twa", None)
    data = bytearray((tmp_path / "model.twa").read_bytes())
    data[8] = 9
    (tmp_path / "new.twa").write_bytes(data)
    with pytest.raises(ArtifactError, match="expected format 1, got 9: a newer release"):
        tilewright.load(tmp_path / "new.twa")


def test_newer_interfaces_say_so(tmp_path: Path) -> None:
    """To Python, and to programs that open the library through libtilewright."""
    names = re.findall(r"X\((\w+)\)", (Path(tilewright.get_include()) / "tilewright_dl.h").read_text())
    assert "session_run" in names
    (tmp_path / "new.c").write_text("".join(f"int tw_{n}(void) {{ return 9; }}\n" for n in names))
    compiler = find_toolchain(detect_host()).compiler
    subprocess.run([*compiler, "-shared", "-fPIC", "-o", "new.so", "new.c"], cwd=tmp_path, check=True)
    path = tmp_path / "new.so"
    code = path.read_bytes()
    path.write_bytes(code + seal_of(memoryview(code), (0, 0)))
    with pytest.raises(ArtifactError, match="expected version 1 of the interface, got 9"):
        tilewright.load(path)
    loader = ctypes.CDLL(str(tilewright.export_loader(tmp_path / "libtilewright.so")))
    loader.tw_error.restype = ctypes.c_char_p
    model = ctypes.c_void_p()
    assert loader.tw_model_load(str(path).encode(), ctypes.byref(model)) == Status.INVALID_ARTIFACT
    assert b"expected version 1 of the interface, got 9" in loader.tw_error()


def test_loading_needs_numpy_alone(tmp_path: Path) -> None:
    package(tmp_path / "model.twa", None)
    code = f"""
import sys, numpy as np
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('onnx', 'llvmlite', 'xgboost', 'scipy', 'ml_dtypes'):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
import tilewright
y = tilewright.load({str(tmp_path / "model.twa")!r}).run({{'x': np.ones((3, 32), np.float32)}})['y']
assert y.shape == (3, 10)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(perceptron(), tmp_path)
    for name in ("model.twa", "model.so"):
        assert main(["build", path, "-o", str(tmp_path / name)]) == 0
        assert main(["inspect", str(tmp_path / name)]) == 0
        out = capsys.readouterr().out
        assert "input  x: float32[batch, 32]" in out
        assert "kernels" in out
    assert main(["bench", str(tmp_path / "model.twa"), "--shapes", "batch=4", "--runs", "1"]) == 0
    assert "10 processes in C at once" in capsys.readouterr().out
    assert main(["build", path, "-o", str(tmp_path / "b.so"), "--target", "llvm", "--target", X86_64_V1]) == 2
    assert "expected a package (.twa) for 2 targets" in capsys.readouterr().err
