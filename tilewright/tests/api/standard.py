"""Models as text, compiled once, against the standard's reference at several sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

import tilewright

LEVELS = ("none", "all")
Feed = Mapping[str, np.ndarray]


def read_model(text: str, opset: int = 21) -> onnx.ModelProto:
    """The model of which ``text`` is the graph."""
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]>\n{text}')


def assert_as_standard(text: str, feeds: Sequence[Feed], opset: int = 21, tolerance: float = 1e-5) -> None:
    """Every output at every feed is what the reference gives, in shape, type and (nearly) value."""
    proto = read_model(text, opset)
    reference = ReferenceEvaluator(proto)
    assert_outputs(proto, feeds, [reference.run(None, dict(f)) for f in feeds], tolerance)


def assert_outputs(
    proto: onnx.ModelProto, feeds: Sequence[Feed], expected: Sequence[Sequence[np.ndarray]], tolerance: float = 1e-5
) -> None:
    """The same for outputs that are given."""
    for level in LEVELS:
        model = tilewright.compile(proto, opt_level=level, progress=False)
        for feed, wanted in zip(feeds, expected, strict=True):
            results = model.run(feed)
            for o, want in zip(proto.graph.output, wanted, strict=True):
                got = results[o.name]
                where = f"{o.name} at {level}, sizes {[a.shape for a in feed.values()]}"
                assert (got.shape, got.dtype) == (want.shape, want.dtype), where
                np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance, err_msg=where)
