"""All steps of a window at once: one reduction over the spatial dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.geometry.windows import Windows, windows_of
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.pool.cost import cost_of_passes
from tilewright.lowering.implementations.pool.results import Combiner, average_pool, lp_pool, max_pool
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, select


def reduced(
    c: LowerContext, x: Tensor, w: Windows, hint: str, term: Callable[[Val], Val], combiner: Combiner
) -> Tensor:
    """The recorded stage that combines ``term`` of ``x`` over the windows; other dimensions stay as they are."""
    out = c.output().shape
    steps = w.steps(c)

    def body(*i: IntExpr) -> Reduction:
        place, inside = w.read(x, out, i, steps)
        v = term(x[place])
        return combiner.over(v if inside is None else select(inside, v, combiner.outside(v.dtype)), *steps)

    shape = [out[d] if d in w.spatial else extent for d, extent in enumerate(x.shape)]
    return c.stage(compute(c.name(hint), shape, body, axis_names=axis_names(x.ndim)))


def _reduce(c: LowerContext, w: Windows, hint: str, term: Callable[[Val], Val], combiner: Combiner) -> Tensor:
    return reduced(c, c.input(0), w, hint, term, combiner)


def _cost(facts: NodeFacts) -> float:
    w = windows_of(facts, facts.input_shape(0))
    return cost_of_passes(facts, w, [range(len(w.spatial))])


MAX_POOL = Implementation("MaxPool", "direct", partial(max_pool, _reduce), _cost)
AVERAGE_POOL = Implementation("AveragePool", "direct", partial(average_pool, _reduce), _cost)
LP_POOL = Implementation("LpPool", "direct", partial(lp_pool, _reduce), _cost)
