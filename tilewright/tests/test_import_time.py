"""Importing the package loads nothing heavy; running a command's help does not either."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("numpy", "onnx", "llvmlite", "xgboost", "scipy", "onnxruntime", "ml_dtypes", "jinja2", "matplotlib", "rich")


def _loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    return set(run.stdout.split("\n")[-2].split())


@pytest.mark.parametrize(
    "code", ["import tilewright", "import tilewright.cli", "import tilewright; tilewright.TilewrightError"]
)
def test_light(code: str) -> None:
    assert not _loaded_after(code) & set(HEAVY)


def test_compiling_loads_neither_xgboost_nor_scipy() -> None:
    code = """
import numpy as np, onnx, tilewright
from onnx import helper, TensorProto as T
g = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g",
    [helper.make_tensor_value_info("x", T.FLOAT, [4])], [helper.make_tensor_value_info("y", T.FLOAT, [4])])
m = tilewright.compile(helper.make_model(g, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
m.run({"x": np.ones(4, np.float32)})
"""
    assert not _loaded_after(code) & {"xgboost", "scipy", "onnxruntime", "jinja2", "matplotlib", "rich"}


def test_running_needs_no_ir_room() -> None:
    """The runtime imports neither an IR, nor LLVM, nor ONNX."""
    script = "import sys, tilewright.runtime.model\nprint(*(m for m in sys.modules if m.startswith('tilewright.')))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = {m.split(".")[1] for m in run.stdout.split()}
    assert loaded <= {"core", "machine", "runtime"}


@pytest.mark.parametrize("first", ["import tilewright.api.session", "import tilewright.compile", "pass"])
def test_compile_is_the_function_whatever_was_imported_first(first: str) -> None:
    script = f"{first}\nimport tilewright\nassert tilewright.compile.__name__ == 'compile', tilewright.compile\n"
    subprocess.run([sys.executable, "-c", script + "assert callable(tilewright.compile)"], timeout=60, check=True)


def test_looking_at_the_options_of_report_needs_no_plots() -> None:
    assert not _loaded_after("import tilewright.commands.report") & {"jinja2", "matplotlib"}
