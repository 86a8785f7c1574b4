"""One dimension after another: windows of ``a`` by ``b`` steps take ``a + b`` for each result instead of ``a * b``.

A pass over each spatial dimension, the first one first, reduces what the pass before it left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.windows import Windows, windows_of
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.pool.cost import cost_of_passes
from tilewright.lowering.implementations.pool.direct import reduced
from tilewright.lowering.implementations.pool.results import Combiner, average_pool, lp_pool, max_pool
from tilewright.tensor_ir.compute import Tensor, Val


def _passes(w: Windows) -> list[list[int]]:
    """The spatial dimensions of each pass: those whose windows have one step go with the first."""
    long = [k for k, n in enumerate(w.kernel) if n > 1]
    short = [k for k, n in enumerate(w.kernel) if n == 1]
    return [sorted([*short, *long[:1]]), *([k] for k in long[1:])]


def _reduce(c: LowerContext, w: Windows, hint: str, term: Callable[[Val], Val], combiner: Combiner) -> Tensor:
    first, *rest = _passes(w)
    left = reduced(c, c.input(0), w.along(first), hint, term, combiner)
    for which in rest:
        left = reduced(c, left, w.along(which), hint, lambda v: v, combiner)
    return left


def _applies(facts: NodeFacts) -> str | None:
    if facts.has_output(1):
        return "the positions of the maxima need the whole windows"
    passes = len(_passes(windows_of(facts, facts.input_shape(0))))
    return None if passes > 1 else "windows of more than one step in one dimension at most, expected two or more"


def _cost(facts: NodeFacts) -> float:
    w = windows_of(facts, facts.input_shape(0))
    return cost_of_passes(facts, w, _passes(w))


MAX_POOL = Implementation("MaxPool", "separable", partial(max_pool, _reduce), _cost, _applies)
AVERAGE_POOL = Implementation("AveragePool", "separable", partial(average_pool, _reduce), _cost, _applies)
LP_POOL = Implementation("LpPool", "separable", partial(lp_pool, _reduce), _cost, _applies)
