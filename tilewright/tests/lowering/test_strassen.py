"""Strassen's algorithm as stages, against the product."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import lower, require_twin


def product(shape: tuple[Dim, ...], columns: int, algorithm: str = "strassen", dtype: str = "float32") -> Graph:
    b = GraphBuilder("g")
    w = np.random.default_rng(3).standard_normal((int(str(shape[-1])), columns)).astype(dtype)
    return b.build(b.op("MatMul", b.input("x", dtype, shape), w, algorithm=algorithm))


@pytest.mark.parametrize("shape", [(4, 6), (5, 8), (1, 2), (2, 3, 4), (3, 1, 5, 6)])
@pytest.mark.parametrize("columns", [16, 48, 80])
def test_twin(shape: tuple[int, ...], columns: int) -> None:
    graph = product(shape, columns)
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    require_twin(graph, {"x": x})


def test_sums_of_the_weight_are_made_at_build_time() -> None:
    low = lower(product((8, 32), 64))
    packed = next(c for c in low.constants if c.key.startswith("strassen"))
    shape = next(p.shape for p in low.func.params if p.name == packed.buffer)
    assert [d.value() for d in shape] == [2, 7, 16, 16]


def test_rows_of_different_batch_elements_are_not_paired() -> None:
    graph = product((2, 3, 4), 16)
    low = lower(graph)
    x = np.random.default_rng(4).standard_normal((2, 3, 4)).astype(np.float32)
    x[0] = np.inf
    with np.errstate(invalid="ignore"):
        (got,) = interpret(low.func, [x, *(p.evaluate(graph.constants) for p in low.constants)], {})
    assert not np.isfinite(got[0]).any()
    assert np.isfinite(got[1]).all()


@pytest.mark.parametrize(
    ("shape", "algorithm", "dtype"),
    [
        ((4, 5), "strassen", "float32"), (("n", 6), "strassen", "float32"), ((6,), "strassen", "float32"),
        ((2, 0, 6), "strassen", "float32"), ((4, 6), "strassen", "float64"), ((4, 6), "winograd2", "float32"),
    ],
    ids=["depth", "symbolic", "vector", "empty", "dtype", "other"],
)  # fmt: skip
def test_refusals(shape: tuple[Dim, ...], algorithm: str, dtype: str) -> None:
    with pytest.raises(UnsupportedError, match=f"algorithm '{algorithm}' for this product"):
        lower(product(shape, 16, algorithm, dtype))


def test_columns_that_are_no_whole_vectors_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="algorithm for 24 columns, expected a multiple of 16"):
        lower(product((4, 6), 24))
