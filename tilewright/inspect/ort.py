"""ONNX Runtime as the other side of a comparison, where it is installed. Nothing here is needed to compile or run."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx

from tilewright.core.errors import TilewrightError

_BIG = 1_500_000_000  # a serialized message must stay under 2 GB

_NO_SATURATION = "session.x64quantprecision"


class OnnxRuntimeError(TilewrightError):
    """ONNX Runtime does not load or run a model. Says nothing about this package."""


def is_installed() -> bool:
    """True if onnxruntime can be imported."""
    return importlib.util.find_spec("onnxruntime") is not None


def open_session(
    model: str | Path | onnx.ModelProto, threads: int, optimize: bool = True, extra_outputs: Sequence[str] = (),
    quiet: bool = False, exact: bool = False,
) -> Any | None:  # fmt: skip
    """A session on the CPU, or None without onnxruntime. ``extra_outputs``: inner values that it returns as well.
    ``quiet``: errors are raised only, not printed as well. ``exact``: sums of products of bytes do not saturate, which
    they do by default, for speed, on CPUs without VNNI.

    Raises OnnxRuntimeError for a model that onnxruntime does not load.
    """
    if not is_installed():
        return None
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4 if quiet else 3
    if exact:
        options.add_session_config_entry(_NO_SATURATION, "1")
    if not optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not isinstance(model, onnx.ModelProto) and not extra_outputs:
        return _session(str(model), options)
    message = model if isinstance(model, onnx.ModelProto) else onnx.load(str(model))
    if extra_outputs:
        message = _with_outputs(message, extra_outputs)
    if message.ByteSize() < _BIG:
        return _session(message.SerializeToString(), options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save_model(message, str(path), save_as_external_data=True, location="weights")
        return _session(str(path), options)


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turns what onnxruntime raises into OnnxRuntimeError."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = ("EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded",
             "NoModel", "NoSuchFile", "NotImplemented", "RuntimeException")  # fmt: skip
    kinds = tuple(getattr(state, n) for n in names if hasattr(state, n))
    try:
        yield
    except (*kinds, RuntimeError) as e:
        raise OnnxRuntimeError(f"onnxruntime: {' '.join(str(e).split())[:300]}") from e


def _session(model: str | bytes, options: Any) -> Any:
    import onnxruntime

    with translated_errors():
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    out = onnx.ModelProto()
    out.CopyFrom(model)
    known = {o.name for o in out.graph.output}
    defined = {o for n in out.graph.node for o in n.output if o}
    out.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names if n in defined and n not in known)
    return out
