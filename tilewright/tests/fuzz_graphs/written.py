"""Random graphs through the writer: read, simplified, written, and run again, here and in onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from tilewright.core.errors import UnsupportedError
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.pipeline import run_passes
from tilewright.inspect.ort import OnnxRuntimeError
from tilewright.tests.conformance.written import why_invalid
from tilewright.tests.fuzz_graphs.node import run_onnxruntime
from tilewright.tests.fuzz_graphs.tolerance import allowed, mismatch
from tilewright.writer import to_onnx

Results = dict[str, object]


def written_model(model: onnx.ModelProto, level: str, opset: int) -> onnx.ModelProto | None:
    """The model written after the passes of ``level``, which ONNX's checker passes if it passes the model; None
    for an ``opset`` (0: any) that cannot say it."""
    kept = read_model(model)
    graph, _ = run_passes(kept.graph, level)
    try:
        written = to_onnx(kept.with_graph(graph), opset or None)
    except UnsupportedError:
        if opset:
            return None
        raise
    if (why := why_invalid(written)) is not None and why_invalid(model) is None:
        raise why
    return written


def in_onnxruntime(
    model: onnx.ModelProto, written: onnx.ModelProto, feed: Mapping[str, object], samples: Sequence[Results],
    outputs: Sequence[str],
) -> Results | OnnxRuntimeError | None:  # fmt: skip
    """What onnxruntime gives for the written model; None where it does not give what is wanted for the other one."""
    theirs = run_onnxruntime(model, feed)
    if not isinstance(theirs, dict) or any(mismatch(theirs[o], samples[0][o], allowed(samples, o)) for o in outputs):
        return None
    return run_onnxruntime(written, feed)


_LACKS = (
    "NOT_IMPLEMENTED",  # an operator for these types
    "conv_integer.cc",  # zero points of channels, which the standard has
    "ConvTranspose",  # its inference makes shapes of two dims where output_shape is smaller than the operand
    "of Optype (Add) bound to different types",  # its MeanVarianceNormalization 18 is one of float32
    "of Optype (Pow) bound to different types",  # that of 9, too
    "Invalid attribute perm",  # the same, seen by the Transpose behind it
)


def lacks(error: OnnxRuntimeError) -> bool:
    """True for what onnxruntime refuses and the standard has."""
    return any(t in str(error) for t in _LACKS)
