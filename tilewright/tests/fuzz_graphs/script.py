"""A failing graph as a Python script that anybody can run."""

from __future__ import annotations

import base64

import numpy as np
from onnx import printer

from tilewright.core import dtypes
from tilewright.tests.fuzz_graphs.check import Verdict
from tilewright.tests.fuzz_graphs.sample import Sample

_HEAD = """\
import base64

import ml_dtypes  # noqa: F401 - element types that numpy lacks
import numpy as np
import onnx
import onnx.printer
import tilewright
from tilewright.core import dtypes


def array(dtype, shape, text):
    return np.frombuffer(base64.b64decode(text), dtypes.from_name(dtype).numpy).reshape(shape).copy()

"""


def script_of(sample: Sample, verdict: Verdict) -> str:
    """A script that compiles the model in the way that failed and prints its results and the reference's."""
    model = sample.model()
    data = base64_of(model.SerializeToString())
    lines = [f"# {verdict.kind}: {verdict.message}", _HEAD]
    lines.append('"""')
    lines.append(printer.to_text(model).replace("\\", "\\\\").replace('"""', "'''"))
    lines.append('"""')
    lines.append(f'model = onnx.load_from_string(base64.b64decode("{data}"))')
    build = verdict.build
    options = f"opt_level={build.level!r}, threads={build.threads}" if build else "opt_level='all', threads=1"
    if build and build.pins:
        lines.append("from tilewright.tests.fuzz_graphs.implementations import random_implementations")
        lines.append(
            f"pins = random_implementations(model, {build.threads}, {len(verdict.operators)}, {bool(sample.wild)})"
        )
        options += ", implementations=pins"
    if build and build.written:
        lines.append("from tilewright.tests.fuzz_graphs.written import written_model")
        lines.append(f"written = written_model(model, {build.level!r}, {build.opset})")
        lines.append("print(onnx.printer.to_text(written))")
    for v in sample.variants:
        feed = ", ".join(f"{n!r}: {_literal(x)}" for n, x in sample.feed(v).items())
        lines.append(f"feed = {{{feed}}}")
        lines.append("from tilewright.frontend import from_onnx")
        lines.append("from tilewright.graph_ir.interpreter import interpret")
        lines.append("print('wanted', interpret(from_onnx(model), feed))")
        if build and build.written:
            lines.append("print('got', interpret(from_onnx(written), feed))")
            continue
        lines.append(f"print('got', tilewright.compile(model, {options}, cache=False, progress=False).run(feed))")
    return "\n".join(lines) + "\n"


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _literal(x: object) -> str:
    if isinstance(x, list):
        return f"[{', '.join(map(_literal, x))}]"
    if not isinstance(x, np.ndarray):
        return repr(x)
    if x.dtype == object:
        return f"np.array({x.tolist()!r}, object)"
    name = dtypes.from_numpy(x.dtype).name
    if x.size <= 24 and x.dtype.kind in "iub":
        return f"np.array({x.tolist()!r}, np.{name if name != 'bool' else 'bool_'})" if x.size else (
            f"np.zeros({x.shape}, np.{name if name != 'bool' else 'bool_'})")  # fmt: skip
    return f'array("{name}", {x.shape}, "{base64_of(np.ascontiguousarray(x).tobytes())}")'
