"""The command line, command by command, in this process."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilewright.cli import COMMANDS, main
from tilewright.commands import doctor
from tilewright.inspect.ort import is_installed
from tilewright.tests.api.broadcast_patterns import PATTERNS
from tilewright.tests.api.models import convolution, perceptron, perceptron_by_hand, saved

ALONE = ["--alone"] if not is_installed() else []


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(perceptron(), tmp_path_factory.mktemp("models"), "perceptron")


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(convolution(12), tmp_path_factory.mktemp("models"), "convolution")


def _error(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that a failing command prints."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert "Traceback" not in captured.err
    return captured.err.strip()


@pytest.mark.parametrize("command", COMMANDS)
def test_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert capsys.readouterr().out.startswith(f"usage: tilewright {command}")


def test_overview(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([])
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


def test_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["tune-everything"])
    assert "expected a command, got 'tune-everything'" in capsys.readouterr().err


def test_verify_follows_sizes_that_broadcast(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(PATTERNS["chain"].model(), tmp_path, "chain")
    assert main(["verify", path, "--shapes", "a=1,b=5,c=3,d=5"]) == 0
    said = capsys.readouterr()
    assert "sizes broadcast: verifying the version of the model for that" in said.err
    assert "all layers agree" in said.out
    message = _error(capsys, "verify", path, "--shapes", "a=1,b=5,c=3,d=5", "--broadcasting", "refuse")
    assert "expected dimensions that agree, got a = 1 and c = 3" in message


def test_as_a_module() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "tilewright", "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stdout.startswith("tilewright ")


# -- run -----------------------------------------------------------------------------------------------------------
def test_run_with_inputs(dynamic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    out = tmp_path / "y.npz"
    assert main(["run", dynamic, "--inputs", str(tmp_path / "x.npz"), "--output", str(out)]) == 0
    with np.load(out) as results:
        np.testing.assert_allclose(results["y"], perceptron_by_hand(perceptron(), x), rtol=1e-4, atol=1e-5)
    assert "float32[3, 10]" in capsys.readouterr().out


def test_run_with_random_inputs_is_seeded(dynamic: str, tmp_path: Path) -> None:
    results = []
    for k, seed in enumerate("001"):
        out = tmp_path / f"{k}.npz"
        assert main(["run", dynamic, "--shapes", "batch=2", "--seed", seed, "--output", str(out)]) == 0
        with np.load(out) as arrays:
            results.append(arrays["y"])
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])


def test_shapes_by_input_name(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", dynamic, "--shapes", "x=4x32", "--specialize", "--threads", "1", "--no-cache"]) == 0
    assert "float32[4, 10]" in capsys.readouterr().out


# -- inspect -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("stage", "texts"),
    [
        ("import", ("MatMul", "Relu", "batch")),
        ("passes", ("MatMul", "Relu")),
        ("plan", ("kernel k0_matmul_add_relu", "hidden, bias, relu")),
        ("function", ("block(", "def k0", "def k1")),
        ("trace", ("# k0_matmul_add_relu", "vectorize(")),
        ("scheduled", ("vectorized(", "parallel(")),
        ("llvm", ("define void @k0_matmul_add_relu", "define void @k1_matmul")),
        ("asm", (".text", "k0_matmul_add_relu:")),
    ],
)
def test_inspect(stage: str, texts: tuple[str, ...], dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", dynamic, "--stage", stage]) == 0
    out = capsys.readouterr().out
    assert all(t in out for t in texts)


def test_inspect_one_kernel(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", dynamic, "--stage", "function", "--kernel", "k1"]) == 0
    out = capsys.readouterr().out
    assert "def k1_matmul" in out
    assert "def k0" not in out
    assert "expected one of k0_matmul_add_relu, k1_matmul; got 'k7'" in _error(
        capsys, "inspect", dynamic, "--stage", "trace", "--kernel", "k7"
    )


# -- the others ----------------------------------------------------------------------------------------------------
def test_verify(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", dynamic, "--shapes", "batch=5"]) == 0
    out = capsys.readouterr().out
    assert "all layers agree" in out
    assert "MatMul+Add+Relu" in out


def test_bench(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", static, "--runs", "4", *ALONE]) == 0
    out = capsys.readouterr().out
    assert "tilewright" in out
    assert ("onnxruntime" in out) == is_installed()


def test_profile(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", static, "--runs", "2"]) == 0
    assert "GFLOP/s" in capsys.readouterr().out


def test_explain_and_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [saved(convolution(200), tmp_path, "large"), "--threads", "2"]
    assert main(["explain", *words, "--dump", str(tmp_path)]) == 0
    assert "graph passes" in capsys.readouterr().out
    assert (tmp_path / "2_passes.txt").is_file()
    assert main(["inspect", *words, "--stage", "plan"]) == 0
    plan = capsys.readouterr().out
    assert "all threads" in plan
    assert (tmp_path / "4_plan.txt").read_text().endswith(plan.strip())


def test_pinned_implementations(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    node = "conv1"
    assert main(["explain", static, "--implementation", f"{node}=direct"]) == 0
    assert f"{node} (Conv): direct, by user" in capsys.readouterr().out
    assert main(["verify", static, "--implementation", f"{node}=winograd2"]) == 0
    assert "all layers agree" in capsys.readouterr().out
    message = _error(capsys, "run", static, "--implementation", f"{node}=winogrd2")
    assert "unknown implementation 'winogrd2', expected one of" in message
    with pytest.raises(SystemExit):
        main(["run", static, "--implementation", node])
    assert "expected a node's name, =, and the name of an implementation, got 'conv1'" in capsys.readouterr().err


def test_inspect_of_ports(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    zen = ("--target", "llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    assert main(["inspect", static, "--stage", "ports", *zen]) == 0
    out = capsys.readouterr().out
    assert "a model, not a measurement" in out
    assert "multiply-adds" in out
    message = _error(capsys, "inspect", static, "--stage", "ports", "--target", "llvm -mcpu=x86-64-v3")
    assert "port pressure: expected one of znver2," in message


def test_disable_pass(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", static, "--stage", "passes", "--disable-pass", "channels_last"]) == 0
    assert "NHWC" not in capsys.readouterr().out


def test_all_features_are_shown_to_those_who_ask(
    static: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "wrong_tile_products", lambda target: [])  # takes long, and other tests do it
    shown = {}
    for words in (
        ["explain", static],
        ["explain", static, "-v"],
        ["doctor", "--no-peaks"],
        ["doctor", "--no-peaks", "-v"],
    ):
        assert main(words) == 0
        shown[" ".join(words).replace(static, "M")] = capsys.readouterr().out
    features = doctor.detect_host().features
    assert features not in shown["explain M"]
    assert f"target in full: {doctor.detect_host().legality_key()}" in shown["explain M -v"]
    few, all_of_them = (
        re.search(r"features: (.*)", shown[k])[1].split()  # type: ignore[index]
        for k in ("doctor --no-peaks", "doctor --no-peaks -v")
    )
    assert set(few) < set(all_of_them) == set(doctor.detect_host().enabled)


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--no-peaks"]) == 0
    out = capsys.readouterr().out
    for part in ("CPU:", "features:", "affinity mask", "object cache:", "llvmlite", "rich"):
        assert part in out
    assert re.search(r"\n  cost +assumed  measured  unit\n  -+\n(  .*\n)*  read from memory +12 +bytes/ns\n", out)


def test_doctor_tells_of_matrix_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    host = doctor.detect_host()
    for has, wrong, refusal, line in (
        (True, [], "", "used for products of bfloat16 and bytes; checked here"),
        (True, ["tiles_dot2_1x1"], "", "used for products of bfloat16 and bytes; WRONG here: tiles_dot2_1x1"),
        (False, [], "the system refuses them", "not used, the system refuses them"),
    ):
        monkeypatch.setattr(doctor, "has_matrix_tiles", lambda target, product, has=has: has)
        monkeypatch.setattr(doctor, "wrong_tile_products", lambda target, wrong=wrong: wrong)
        monkeypatch.setattr(doctor, "tiles_refusal", lambda refusal=refusal: refusal)
        assert doctor._tile_lines(doctor._matrix_tiles(host)) == [f"matrix tiles: {line}"]
    monkeypatch.setattr(doctor, "tiles_refusal", lambda: "")
    assert doctor._tile_lines(doctor._matrix_tiles(host)) == []


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "list"]) == 0
    assert "squeezenet" in capsys.readouterr().out.split()
    assert "expected one of" in _error(capsys, "demo", "lenet")


# -- errors --------------------------------------------------------------------------------------------------------
def test_errors_are_one_line(dynamic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "need sizes: give --shapes batch=1" in _error(capsys, "run", dynamic)
    assert "nowhere.onnx" in _error(capsys, "run", str(tmp_path / "nowhere.onnx"))
    assert "nowhere.npz" in _error(capsys, "run", dynamic, "--inputs", str(tmp_path / "nowhere.npz"))
    (tmp_path / "text.npz").write_text("not arrays")
    assert "expected an .npz file" in _error(capsys, "run", dynamic, "--inputs", str(tmp_path / "text.npz"))
    assert "TargetError" in _error(capsys, "explain", dynamic, "--target", "cuda")
    assert "name of a pass or rule" in _error(capsys, "explain", dynamic, "--disable-pass", "inline")
    assert "has 2 dimensions, got 3" in _error(capsys, "run", dynamic, "--shapes", "x=4x32x1")
    assert "expected float32[batch, 32], got 4x33" in _error(capsys, "run", dynamic, "--shapes", "x=4x33")


def test_malformed_shapes(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["run", dynamic, "--shapes", "batch"])
    assert "expected name=4, name=8..64 or name=1x3x224x224, got 'batch'" in capsys.readouterr().err
