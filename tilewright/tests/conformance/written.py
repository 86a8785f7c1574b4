"""The cases through the writer: read, perhaps simplified, written and read again; the written model must give what the
case expects, here, and in onnxruntime where that runs the original."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import onnx

from tilewright.core.errors import UnsupportedError
from tilewright.edit.diff import diff_graphs
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.pipeline import run_passes
from tilewright.inspect.ort import open_session
from tilewright.tests.conformance.cases import Case, DataSet
from tilewright.tests.conformance.expected import EXPECTED, read_expected, status
from tilewright.tests.conformance.runner import is_random, require_similar, run_model, short
from tilewright.writer import to_onnx

_ROUNDED = 1e-5
"""Relative error of passes that reassociate, and of what stands for an operator in an older opset."""


def run_written(case: Case, level: str, opset: int | None = None) -> str:
    """``native`` or ``host: operators``, with whether onnxruntime was asked; ``unsupported: what``; or ``failing``."""
    try:
        return _run(case, level, opset)
    except UnsupportedError as e:
        return f"unsupported: {short(str(e))}"
    except Exception as e:  # noqa: BLE001 - whatever goes wrong in a case is its result
        return f"failing: {short(f'{type(e).__name__}: {e}')}"


def _run(case: Case, level: str, opset: int | None) -> str:
    model, sets = case.load()
    kept = read_model(model)
    graph = kept.graph if level == "none" else run_passes(kept.graph, level)[0]
    written = to_onnx(kept.with_graph(graph), opset)
    if (why := why_invalid(written)) is not None and why_invalid(model) is None:
        raise why
    if level == "none" and written.opset_import[0].version == kept.opset:
        difference = diff_graphs(kept.graph, read_model(written).graph)
        if difference:
            raise AssertionError(f"written and read again: {difference}")
    rounded = level != "none" or opset is not None
    case = replace(case, rtol=max(case.rtol, _ROUNDED), atol=max(case.atol, _ROUNDED)) if rounded else case
    theirs = _in_onnxruntime(case, model, written, sets)
    if status(read_expected(EXPECTED).get(case.name, "failing")) in ("unsupported", "failing"):
        return f"unsupported: not compiled; {theirs}"
    names = [i.name for i in model.graph.input]
    return f"{run_model(case, written, sets, names)}; {theirs}".replace("; ", ": ", 1) if opset is None else "native"


def why_invalid(model: onnx.ModelProto) -> Exception | None:
    """What ONNX's checker says. It refuses some models that the standard allows, among them cases of its own."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        return None if any(t in str(e) for t in _CHECKER) else e
    return None


_CHECKER = (
    "Field 'shape' of 'type' is required but missing",  # of a result of unknown rank
    "(op_type:MeanVarianceNormalization",  # its definition there is one of float32
    "(op_type:ConvTranspose",  # it makes shapes of two dims where output_shape is smaller than the operand
)
"""What ONNX's checker holds against a model because of types that are right."""


def _in_onnxruntime(case: Case, model: onnx.ModelProto, written: onnx.ModelProto, sets: Sequence[DataSet]) -> str:
    """Raises if onnxruntime gives what is expected for the model and not for the written one."""
    try:
        _require_right(case, model, model, sets)
    except Exception:  # noqa: BLE001 - onnxruntime does not take the case, or gives something else
        return "onnxruntime does not run the original"
    _require_right(case, model, written, sets)
    return "in onnxruntime too"


def _require_right(case: Case, original: onnx.ModelProto, model: onnx.ModelProto, sets: Sequence[DataSet]) -> None:
    session = open_session(model, 1, False)
    assert session is not None
    names = [i.name for i in original.graph.input]
    accepted = {i.name for i in session.get_inputs()}
    for given, wanted in sets:
        feed = {n: x for n, x in zip(names, given, strict=False) if n in accepted}
        got = session.run([o.name for o in original.graph.output], feed)
        require_similar(got, wanted, math.inf if is_random(original) else case.rtol, case.atol, "in onnxruntime")
