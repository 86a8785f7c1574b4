"""Resize with antialiasing, sizes known only at run time, against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import reference
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tests.lowering.lowered import lower

RNG = np.random.default_rng(5)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("exclude_outside", [0, 1])
@pytest.mark.parametrize(("rows", "columns"), [(7, 11), (4, 5), (13, 3)])
def test_antialias_with_symbolic_sizes(mode: str, exclude_outside: int, rows: int, columns: int) -> None:
    scales = np.array([1, 1, 0.6, 0.4], np.float32)
    attrs = {"mode": mode, "antialias": 1, "exclude_outside": exclude_outside}
    b = GraphBuilder("g")
    g = b.build(b.op("Resize", b.input("x", "float32", (1, 2, "h", "w")), None, scales, **attrs))
    low = lower(g)
    x = RNG.standard_normal((1, 2, rows, columns)).astype(np.float32)
    args = [x, *(p.evaluate(g.constants) for p in low.constants)]
    (want,) = reference.evaluate("Resize", "", attrs, [x, None, scales], 1)
    sizes = {"h": rows, "w": columns, "u0": want.shape[2], "u1": want.shape[3]}
    (got,) = interpret(low.func, args, {d: sizes[d] for d in low.func.dims})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
