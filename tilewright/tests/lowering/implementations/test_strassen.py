"""Strassen's algorithm as stages, against the product."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.builder import Dim, GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import lower, require_twin


def product(shape: tuple[Dim, ...], columns: int, implementation: str = "strassen", dtype: str = "float32") -> Graph:
    b = GraphBuilder("g")
    w = np.random.default_rng(3).standard_normal((int(str(shape[-1])), columns)).astype(dtype)
    return b.build(b.op("MatMul", b.input("x", dtype, shape), w, implementation=implementation))


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
    ("shape", "dtype", "message"),
    [
        ((4, 5), "float32", "depth 5 and 16 columns, expected multiples of 2 and 16"),
        (("n", 6), "float32", "sizes that are symbolic or zero"), ((2, 0, 6), "float32", "symbolic or zero"),
        ((6,), "float32", "not a product of rows with a constant matrix"),
        ((4, 6), "float64", "type float64, expected float32"),
    ],
    ids=["depth", "symbolic", "empty", "vector", "dtype"],
)  # fmt: skip
def test_refusals(shape: tuple[Dim, ...], dtype: str, message: str) -> None:
    with pytest.raises(UnsupportedError, match=f"implementation 'strassen': .*{message}"):
        lower(product(shape, 16, "strassen", dtype))


def test_columns_that_are_no_whole_vectors_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="24 columns, expected multiples of 2 and 16"):
        lower(product((4, 6), 24))


def test_an_unknown_implementation_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match="unknown implementation 'winograd2', expected one of packed_by_rows, packed_gemm, "
    ):
        lower(product((4, 6), 16, "winograd2"))
