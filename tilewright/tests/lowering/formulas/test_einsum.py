"""Einsum against numpy, as products and as plain sums; BitCast as a view."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.tests.lowering.lowered import require_twin

SIZES = dict(zip("bhijkmn", (2, 3, 4, 5, 7, 6, 5), strict=True))
EQUATIONS = [
    "ij,jk->ik", "bij,bjk->bik", "bhik,bhjk->bhij", "ij,kj->ki", "bhij,bhjk->bihk", "bijk,jkmn->bimn", "i,j->ij",
    "i,i", "ij->ji", "ij->", "ij->i", "ii->i", "ij,jk,km->im", "ijk,jk->", "...ij,...jk->...ik", "bj,j->b",
]  # fmt: skip


@pytest.mark.parametrize("equation", EQUATIONS)
def test_equation(equation: str) -> None:
    rng = np.random.default_rng(0)
    terms = equation.partition("->")[0].replace("...", "b").split(",")
    arrays = [rng.standard_normal([SIZES[x] for x in t]).astype(np.float32) for t in terms]
    b = GraphBuilder("g")
    names = [b.input(f"x{k}", "float32", a.shape) for k, a in enumerate(arrays)]
    g = b.build(b.op("Einsum", *names, equation=equation))
    low = require_twin(g, dict(zip(names, arrays, strict=True)), tolerance=1e-4)
    np.testing.assert_equal(len(low.outputs), 1)
