"""Which values the operands of operators may have, and what becomes of others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError
from tilewright.core.index_ranges import checked_operands, first_outside, index_ranges


@pytest.mark.parametrize(("op", "attrs", "shapes", "expected"), [
    ("Gather", {}, [(5, 7), (2,)], [(1, "-5", "4", None)]),
    ("Gather", {"axis": -1}, [(5, "n"), (2,)], [(1, "-n", "n - 1", None)]),
    ("Gather", {}, [None, (2,)], []),
    ("GatherND", {"batch_dims": 1}, [(5, 7, "n"), (5, 2)], [(1, "-7", "6", 0), (1, "-n", "n - 1", 1)]),
    ("GatherND", {}, [(5, 7), (5, "n")], []),
    ("ScatterND", {}, [(5, 7), (0, 1), (0, 7)], [(1, "-5", "4", 0)]),
    ("LSTM", {"layout": 1}, [(2, 9, 4), (1, 8, 4), (1, 8, 2), None, (2,)], [(4, "0", "9", None)]),
    ("LSTM", {}, [(2, 9, 4), (1, 8, 4), (1, 8, 2)], []),
    ("MaxUnpool", {"kernel_shape": (2, 3), "strides": (2, 2)}, [(1, 2, 3, 4), (1, 2, 3, 4)], [(1, "0", "107", None)]),
    ("TensorScatter", {}, [(1, 9, 4), (1, 2, 4)], []),
    ("TensorScatter", {}, [(1, 9, 4), (1, 2, 4), (1,)], [(2, "0", "7", None)]),
    ("SequenceInsert", {}, [(3,), (2, 2), ()], [(2, "-3", "3", None)]),
    ("SequenceErase", {}, [(3,)], []),
    ("Unsqueeze", {}, [(3, 4), (2,)], [(1, "-4", "3", None)]),
    ("OneHot", {}, [(3,), (), (2,)], []),
])  # fmt: skip
def test_ranges(op: str, attrs: dict[str, Any], shapes: list[Any], expected: list[Any]) -> None:
    dims = [None if s is None else [var(d) if isinstance(d, str) else d for d in s] for s in shapes]
    got = index_ranges(op, "", attrs, dims)
    assert [(r.operand, str(r.low), str(r.high), r.column) for r in got] == expected
    assert index_ranges(op, "com.example", attrs, dims) == ()


def test_operands_are_checked_or_clamped() -> None:
    x, where = np.zeros((3, 4)), np.array([[0, 4], [-4, -4]])
    assert first_outside("GatherND", "", {}, [x, where % 3]) is None
    found = first_outside("GatherND", "", {}, [x, where])
    assert found is not None
    assert (found[0].column, found[1]) == (0, -4)
    with pytest.raises(InputError, match=r"here: expected indices in \[-3, 2\], got -4$"):
        checked_operands("here", "error", "GatherND", "", {}, [x, where])
    data, clamped = checked_operands("here", "clamp", "GatherND", "", {}, [x, where])
    assert data is x
    assert np.array_equal(np.asarray(clamped), [[0, 3], [-3, -4]])
    assert where[0, 1] == 4, "the caller's array is not written to"


def test_what_cannot_be_clamped() -> None:
    with pytest.raises(InputError, match=r"expected indices in \[0, -1\], which is empty, got 0"):
        checked_operands("here", "clamp", "Gather", "", {}, [np.zeros((0, 2)), np.zeros(1, np.int64)])
    with pytest.raises(InputError, match="expected axes in"):
        checked_operands("here", "clamp", "CumSum", "", {}, [np.zeros(3), np.array(1)])
    checked_operands("here", "error", "Gather", "", {}, [np.zeros((0, 2)), np.zeros(0, np.int64)])


def test_sequences_and_conditions() -> None:
    items: list[object] = [np.zeros(1), np.ones(1)]
    with pytest.raises(InputError, match=r"expected positions in \[-2, 1\], got 2"):
        checked_operands("here", "error", "SequenceAt", "", {}, [items, np.array(2)])
    assert checked_operands("here", "clamp", "SequenceAt", "", {}, [items, np.array(2)])[1] == 1
    checked_operands("here", "error", "SequenceInsert", "", {}, [items, np.ones(1), np.array(2)])
    ragged: list[object] = [np.zeros(1), np.ones(2)]
    checked_operands("here", "error", "SequenceAt", "", {}, [items, ragged])  # the operator itself refuses it
    # conditions beyond the axis choose nothing, as in ONNX Runtime
    checked_operands("here", "error", "Compress", "", {"axis": 0}, [np.zeros((3, 9)), np.ones(4, bool)])
