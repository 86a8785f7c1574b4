"""Runs of a model for its inner values, in onnxruntime or in this compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx

from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InputError
from tilewright.inspect.ort import is_installed, open_session, translated_errors
from tilewright.quantization.calibration.data import Feed
from tilewright.quantization.options import Runtime

Run: TypeAlias = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
Watch: TypeAlias = Callable[[Iterable[Feed]], Iterator[dict[str, np.ndarray]]]


def runtime_of(asked: Runtime | None) -> Runtime:
    """The runtime that is asked for, by default onnxruntime if it is installed. Raises InputError if it is not."""
    if asked == "onnxruntime" and not is_installed():
        raise InputError("runtime: expected tilewright, got onnxruntime, which is not installed")
    return asked or ("onnxruntime" if is_installed() else "tilewright")


def open_runner(
    model: onnx.ModelProto, runtime: Runtime, threads: int | None = None, outputs: Sequence[str] | None = None
) -> Run:
    """What runs ``model`` and gives ``outputs``, which may be inner values; by default all of its results.

    Raises OnnxRuntimeError or ModelError for a model that does not load.
    """
    names = [o.name for o in model.graph.output] if outputs is None else list(dict.fromkeys(outputs))
    watched = model if outputs is None else _with_outputs(model, names)
    if runtime == "tilewright":
        compiled = compile(watched, threads=threads, progress=False)
        return lambda feed: dict(zip(names, compiled.run(names, dict(feed)), strict=True))
    session: Any = open_session(watched, threads or 0, exact=True)

    def run(feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with translated_errors():
            return dict(zip(names, session.run(names, dict(feed)), strict=True))

    return run


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with other results; inputs among them are read from the feed by the runtime."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    types = {v.name: v for v in (*model.graph.output, *model.graph.value_info)}
    found = [types.get(n, onnx.ValueInfoProto(name=n)) for n in names]
    del out.graph.output[:]
    out.graph.output.extend(found)
    return out


def open_watch(model: onnx.ModelProto, names: Sequence[str], runtime: Runtime, threads: int | None) -> Watch:
    """What gives the values ``names`` for each of some samples, one after the other; inputs are those of the sample."""
    made = {o for n in model.graph.node for o in n.output}
    inner = [n for n in names if n in made]
    run = open_runner(model, runtime, threads, inner) if inner else None

    def watch(samples: Iterable[Feed]) -> Iterator[dict[str, np.ndarray]]:
        for feed in samples:
            values = {n: feed[n] for n in names if n not in made}
            yield values | (run(feed) if run is not None else {})

    return watch
