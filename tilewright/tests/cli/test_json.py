"""``--json``: one object on standard output with the documented keys, and nothing else there; messages beside it."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilewright.cli import main
from tilewright.commands.output.json_output import SCHEMA, print_json
from tilewright.commands.output.keys import HEAD, KEYS
from tilewright.core.io.messages import LOGGER, shown_messages
from tilewright.inspect.ort import is_installed
from tilewright.tests.api.models import convolution, perceptron, saved
from tilewright.tests.deploy.exported import has_compiler


@pytest.fixture(scope="module")
def static(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(convolution(12), tmp_path_factory.mktemp("models"), "convolution")


@pytest.fixture(scope="module")
def dynamic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return saved(perceptron(), tmp_path_factory.mktemp("models"), "perceptron")


def tree(keys: Mapping[str, str]) -> dict[str, Any]:
    """Documented keys as nested objects; ``[]`` and ``{}`` stand for all elements and for all names."""
    out: dict[str, Any] = {}
    for key in keys:
        at = out
        for word in re.sub(r"\{\w+\}", "{}", key).replace("[]", ".[]").split("."):
            at = at.setdefault(word, {})
    return out


def require_documented(value: Any, wanted: Mapping[str, Any], where: str) -> None:
    """Every key is documented, and every documented one is there; what is not known is null."""
    if value is None:
        return
    if not wanted:
        assert not isinstance(value, dict | list), where
    elif "[]" in wanted:
        assert isinstance(value, list), where
        for x in value:
            require_documented(x, wanted["[]"], f"{where}[]")
    elif "{}" in wanted:
        for name, x in value.items():
            require_documented(x, wanted["{}"], f"{where}.{name}")
    else:
        assert value.keys() == wanted.keys(), where
        for name, x in value.items():
            require_documented(x, wanted[name], f"{where}.{name}")


def said(capsys: pytest.CaptureFixture[str], *argv: str, keys: str = "", status: int = 0) -> dict[str, Any]:
    """The object that a command prints, after a look at its keys."""
    assert main([*argv, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    require_documented(found, tree({**HEAD, **KEYS[keys or argv[0]]}), argv[0])
    assert (found["command"], found["schema"]) == (argv[0], SCHEMA)
    return found


def test_bench(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "bench", static, "--runs", "3", *([] if is_installed() else ["--alone"]))
    assert found["contenders"]["tilewright"]["runs"] == 3
    assert (found["speed"] is None) == ("onnxruntime" not in found["contenders"]) == (not is_installed())
    assert found["inputs"] == {"x": [1, 3, 12, 12]}


def test_bench_alone(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "bench", static, "--runs", "1", "--alone")["speed"] is None


@pytest.mark.skipif(
    not has_compiler() or not sys.platform.startswith("linux"), reason="needs a C compiler, reads /proc"
)
def test_bench_of_an_artifact(static: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", static, "-o", str(tmp_path / "model.so")]) == 0
    capsys.readouterr()
    found = said(capsys, "bench", str(tmp_path / "model.so"), "--runs", "1", keys="bench of an artifact")
    assert set(found["first_results"]) == {"C", "Python"}
    assert found["file_bytes"] == (tmp_path / "model.so").stat().st_size


def test_profile(dynamic: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "profile", dynamic, "--runs", "2", "--shapes", "batch=3")
    assert found["inputs"] == {"x": [3, 32]}
    assert [k["nodes"] for k in found["kernels"]] == [["hidden", "bias", "relu"], ["readout"]]
    assert sum(k["time_share"] for k in found["kernels"]) == pytest.approx(1.0)
    assert found["peaks"]["operations_per_second"] > 0
    assert found["counts"] is None
    counts = said(capsys, "profile", dynamic, "--runs", "1", "--shapes", "batch=3", "--counters")["counts"]
    assert bool(counts["refusal"]) == (counts["kernels"] == [])


def test_verify(dynamic: str, static: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "verify", dynamic, "--shapes", "batch=3")
    assert found["agrees"]
    assert found["first_bad"] is None
    assert len(found["layers"]) == found["compared"]["lowered"]
    found = said(capsys, "verify", static, "--tolerance", "0", "--against", "lowered", status=1)
    assert not found["agrees"]
    assert found["first_bad"] in {x["value"] for x in found["layers"] if x["is_bad"]}
    assert found["suspect"]


def test_explain(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "explain", static)
    assert {c["node"] for c in found["build"]["implementations"]} >= {"conv1", "conv2"}
    assert {k["kernel"] for k in found["build"]["kernels"]} == {k["kernel"] for k in found["coverage"]["kernels"]}
    assert sum(k["code_bytes"] for k in found["build"]["kernels"]) > 1000
    assert sum(sum(p["fired"].values()) for p in found["build"]["passes"]) > 0


def test_tune(dynamic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(tmp_path / "log.jsonl")
    options = ("--shapes", "batch=3", "--trials", "1", "--time", "60", "--no-check")
    found = said(capsys, "tune", dynamic, "--log", log, *options)
    assert (found["log"], found["trials"], found["network"]) == (log, 1, None)
    assert found["seconds"] == pytest.approx(sum(found["spent"].values()))
    assert {"running candidates", "building candidates", "choosing candidates", "waiting"} <= found["spent"].keys()
    assert sum(t["trials"] for t in found["tasks"]) == 1


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    found = said(capsys, "doctor", "--no-peaks")
    assert found["threads"]["count"] >= 1
    assert found["peaks"] == []
    assert found["packages"]["numpy"]


def test_numbers_that_json_lacks_are_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json("verify", {"errors": {"a": float("inf"), "b": [float("nan"), 1.5]}})
    assert json.loads(capsys.readouterr().out)["errors"] == {"a": None, "b": [None, 1.5]}


def test_an_error_leaves_standard_output_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "nowhere.onnx", "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


# -- messages ------------------------------------------------------------------------------------------------------
def test_quiet_and_verbose(static: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["explain", static, "--json"]
    for more, lines in (((), 0), (("--quiet",), 0), (("-v",), 1), (("-vv",), 4)):
        assert main([*words, *more]) == 0
        out, err = capsys.readouterr()
        json.loads(out)
        assert (err.count("\n") >= lines) if lines else err == ""
        assert all(line.startswith("tilewright: compile: ") for line in err.splitlines())
    assert re.search(r"compile: \S+ built in \d+\.\d+ s, \d+ kernels, \d+ of them from the object cache", err)


@pytest.mark.filterwarnings("always")
def test_messages_and_warnings_are_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    def speak() -> None:
        for n in (1, 1, 2):
            LOGGER.warning("said %d", n)
            warn(n)

    def warn(n: int) -> None:
        import warnings

        warnings.warn(f"warned {n}", UserWarning, stacklevel=1)

    with shown_messages(False, 0):
        speak()
    lines = capsys.readouterr().err.splitlines()
    assert sorted(lines) == [
        "tilewright: UserWarning: warned 1", "tilewright: UserWarning: warned 2", "tilewright: said 1",
        "tilewright: said 2",
    ]  # fmt: skip
    with shown_messages(True, 0):
        speak()
        LOGGER.error("wrong")
    assert capsys.readouterr().err == "tilewright: wrong\n"


def test_the_logger_is_as_it_was(static: str) -> None:
    before = (LOGGER.level, LOGGER.propagate, tuple(LOGGER.handlers))
    main(["doctor", "--no-peaks", "-vv"])
    assert (LOGGER.level, LOGGER.propagate, tuple(LOGGER.handlers)) == before


def test_the_library_prints_nothing(dynamic: str) -> None:
    script = (
        "import sys, numpy as np, tilewright\n"
        "s = tilewright.InferenceSession(sys.argv[1])\n"
        "x = {'x': np.ones((2, 32), np.float32)}\n"
        "s.run(None, x), s.model.profile(x, 1), s.model.coverage(), s.model.explain(), s.model.account()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, dynamic], capture_output=True, text=True, timeout=120, check=True
    )
    assert (run.stdout, run.stderr) == ("", "")


def test_python_hears_of_a_build(caplog: pytest.LogCaptureFixture, dynamic: str) -> None:
    import tilewright

    with caplog.at_level(logging.INFO, logger="tilewright"):
        tilewright.compile(dynamic)
    assert [r.levelname for r in caplog.records] == ["INFO"]
