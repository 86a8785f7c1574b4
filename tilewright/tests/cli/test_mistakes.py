"""What the command line says to a mistake: one line, with the nearest known word."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from tilewright import cli


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["bild", "x"], "tilewright: argument COMMAND: expected a command, got 'bild'; did you mean 'build'?"),
        (["run", "m.onnx", "--shaps", "b=1"], "unrecognized arguments: --shaps b=1; did you mean '--sh"),
        (["run"], "tilewright run: the following arguments are required: model; see tilewright run --help"),
        (["graph", "dif", "a", "b"], "did you mean 'diff'"),
        (["build", "m.onnx", "--opt-level", "bsic"], "argument --opt-level: invalid choice: 'bsic'"),
    ],
)  # fmt: skip
def test_one_line_and_the_nearest_word(words: Sequence[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(words)
    said = capsys.readouterr().err
    assert stop.value.code == 2
    assert said.count("\n") == 1
    assert text in said


def test_an_interrupt_has_no_traceback(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(args: object) -> int:
        raise KeyboardInterrupt

    module = SimpleNamespace(add_arguments=lambda parser: None, run=interrupted)
    monkeypatch.setattr(cli, "import_module", lambda name: module)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "tilewright: interrupted\n"


_WITHOUT = """
import sys, warnings
for name in ("xgboost", "scipy", "onnxruntime", "matplotlib", "jinja2", "distributed"):
    sys.modules[name] = None
import numpy as np
import tilewright
from tilewright.autotune.cost_model.xgboost_model import XGBoostModel, default_model
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.quantization.gptq import inverse_factor

b = GraphBuilder("g")
x = b.input("x", "float32", (3,))
y = b.op("Add", b.op("Erf", b.constant(np.ones(3, np.float32), "c")), x)
model = tilewright.compile(b.build(y), progress=False)
assert abs(model.run({"x": np.zeros(3, np.float32)})[model.output_names[0]][0] - 0.8427008) < 1e-6
try:
    inverse_factor("w", np.eye(3))
except InputError as e:
    print(e)
try:
    XGBoostModel()._train(np.zeros((2, 3)), np.zeros(2), np.zeros(2, np.int64))
except ModuleNotFoundError as e:
    print(e)
"""


def test_packages_of_extras_are_missed_by_what_needs_them_alone() -> None:
    run = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, timeout=120)
    assert run.stdout.splitlines() == [
        "gptq: scipy is not installed: pip install 'tilewright[quantize]'",
        "xgboost is not installed: pip install 'tilewright[tuning]'",
    ], run.stderr
