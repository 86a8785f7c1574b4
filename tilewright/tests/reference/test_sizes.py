"""``sizes``: the shape that it gives is the shape of what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.ops import OPS
from tilewright.reference import evaluate
from tilewright.reference.sizes import SIZES

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
IMAGE = np.ones((1, 2, 6, 9), np.float32)


def i64(*xs: int) -> np.ndarray:
    return np.array(xs, np.int64)


CASES: list[tuple[str, dict[str, object], list[object]]] = [
    ("Reshape", {}, [X, i64(0, -1, 2)]),
    ("Reshape", {"allowzero": 1}, [X[:, :0], i64(3, 0)]),
    ("Squeeze", {}, [X[:, :1], i64(-2)]),
    ("Unsqueeze", {}, [X, i64(0, -1)]),
    ("Expand", {}, [X[:, :1], i64(5, 1, 7, 4)]),
    ("ConstantOfShape", {}, [i64(3, 0, 2)]),
    ("Tile", {}, [X, i64(2, 1, 0)]),
    ("Pad", {}, [X, i64(1, 1, 0, 2, 0, 3)]),
    ("Pad", {}, [X, i64(1, 2), None, i64(-1)]),
    ("Range", {}, [np.int64(10), np.int64(-1), np.int64(-3)]),
    ("Range", {}, [np.float32(0), np.float32(1), np.float32(0.3)]),
    ("Slice", {}, [X, i64(-1, 0), i64(-9, 99), i64(2, 1), i64(-2, 2)]),
    ("OneHot", {"axis": 1}, [i64(0, 1, 2), np.array(5), np.array([0.0, 1.0], np.float32)]),
    ("Resize", {"mode": "linear"}, [IMAGE, None, np.array([1, 1, 0.6, 1.5], np.float32)]),
    ("Resize", {"axes": (2, 3), "keep_aspect_ratio_policy": "not_larger"}, [IMAGE, None, None, i64(7, 8)]),
    ("CenterCropPad", {"axes": (0, 2)}, [X, i64(5, 1)]),
    ("AffineGrid", {}, [np.ones((2, 2, 3), np.float32), i64(2, 3, 5, 6)]),
    ("HannWindow", {}, [np.array(7, np.int64)]),
    ("BlackmanWindow", {}, [np.array(7, np.int64)]),
    ("HammingWindow", {}, [np.array(7, np.int64)]),
    *((op, {"keepdims": keep}, [X, i64(-1, 0)]) for op in sorted(SIZES) if op.startswith("Reduce") for keep in (0, 1)),
    ("ReduceSum", {}, [X, i64()]),
    ("ReduceSum", {"noop_with_empty_axes": 1}, [X, i64()]),
]


def test_every_rule_is_tried_and_reads_shape_operands() -> None:
    assert [op for op in SIZES if not OPS[op].shape_operands] == []
    assert {op for op, _, _ in CASES} == frozenset(SIZES)


@pytest.mark.parametrize(("op", "attrs", "inputs"), CASES, ids=[f"{c[0]}_{k}" for k, c in enumerate(CASES)])
def test_sizes_are_those_of_the_result(op: str, attrs: dict[str, object], inputs: list[object]) -> None:
    (shape,) = evaluate(op, "sizes", attrs, inputs, 1)
    (result,) = evaluate(op, "", attrs, inputs, 1)
    assert tuple(np.asarray(shape)) == np.asarray(result).shape


@pytest.mark.parametrize(
    ("op", "inputs", "match"),
    [
        ("Reshape", [X, i64(5, 5)], r"expected a shape for 24 elements, got \[5, 5\]"),
        ("Squeeze", [X, i64(1)], r"expected size 1 along axes \[1\], got shape \(2, 3, 4\)"),
        ("Range", [np.int64(0), np.int64(4), np.int64(0)], "expected a delta other than 0"),
    ],
)
def test_refusals(op: str, inputs: list[object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        evaluate(op, "sizes", {}, inputs, 1)
