"""Models of one node of onnxruntime's domain, compiled and compared with onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

import tilewright
from tilewright.inspect.ort import open_session
from tilewright.tests.frontend.models import model_of

Arrays = dict[str, np.ndarray]


def dtype_code(x: np.ndarray) -> int:
    return int(helper.np_dtype_to_tensor_dtype(x.dtype))


def node_model(
    op: str, feed: Arrays, constants: Arrays, inputs: list[str], out_dtype: int | list[int], *,
    shapes: dict[str, list[int | str | None]] | None = None, version: int = 21, domain: str = "com.microsoft",
    **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """One node. ``feed``: what is given at run time; ``inputs``: names of both kinds in order, "" for an absent one."""
    codes = [out_dtype] if isinstance(out_dtype, int) else out_dtype
    outputs = [f"y{k}" if code else "" for k, code in enumerate(codes)]
    node = helper.make_node(op, inputs, outputs, "node", domain=domain, **attrs)
    model = model_of([node], {}, [], version, constants=constants, domains={domain: 1} if domain else None)
    for name, x in feed.items():
        shape = (shapes or {}).get(name, list(x.shape))
        model.graph.input.append(helper.make_tensor_value_info(name, dtype_code(x), shape))
    for name, code in zip(outputs, codes, strict=True):
        if name:
            model.graph.output.append(helper.make_tensor_value_info(name, code, None))
    return model


def results(model: onnx.ModelProto, feed: Arrays, optimize: bool = False) -> tuple[list[Any], list[Any]]:
    """What the compiled model gives, and onnxruntime."""
    names = [o.name for o in model.graph.output]
    ours = tilewright.compile(model).run(feed)
    session = open_session(model, 1, optimize, exact=True)
    assert session is not None
    return [ours[n] for n in names], session.run(names, feed)


def largest_difference(model: onnx.ModelProto, feed: Arrays, optimize: bool = False) -> int:
    """The largest difference of integer results, in units, and that their shapes and types agree."""
    most = 0
    for ours, theirs in zip(*results(model, feed, optimize), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == theirs.dtype
        if ours.size:
            most = max(most, int(np.abs(ours.astype(np.int64) - theirs.astype(np.int64)).max()))
    return most
