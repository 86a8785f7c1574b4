"""One symbol for a size that two values share by definition: inputs that meet in a Concat or product have one batch.

Equation: an assumption ``a == b`` of the graph holds in every run, or the run is refused; so ``b`` may be called ``a``
everywhere. Sizes of which one may be 1 (they broadcast) are not such a pair. The types of inputs change, in their
symbols alone: what a run refuses stays the same, by the shapes of the inputs instead of by the assumption. Callers know
symbols by name, so the pass has to be enabled.
"""

from __future__ import annotations

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.core.assumptions import Ones
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.symbols import graph_with, type_sizes


def share_symbols(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with one symbol for each size of inputs that has to be one."""
    if ctx.outer_values:
        return graph  # the symbols of a body are those of the graph around it, too
    for a in graph.assumptions:
        if a.ones in (Ones.RIGHT, Ones.EITHER):
            ctx.log.refuse("share_symbols", a.node, f"{a.left} or {a.right} may be 1 and repeat")
    while (found := _next(graph)) is not None:
        node, symbol, known = found
        graph = graph_with(graph, {symbol: known})
        ctx.log.fire("share_symbols", node)
    for a in graph.assumptions:
        if a.ones is Ones.NEITHER:
            reason = f"{a.left} == {a.right} is no equation between sizes of inputs"
            ctx.log.refuse("share_symbols", a.node, reason)
    return graph


def _next(graph: Graph) -> tuple[str, str, IntExpr] | None:
    """A node, a symbol that its assumption makes another name of something, and what it is then. Both are sizes of
    inputs, so that each call still compares them."""
    sizes = (as_var(d) for i in graph.inputs for d in type_sizes(graph.values[i].type))
    order = {s: k for k, s in enumerate(dict.fromkeys(s for s in sizes if s is not None))}
    for a in graph.assumptions:
        for known, other in ((a.left, a.right), (a.right, a.left)) if a.ones is Ones.NEITHER else ():
            symbol, name = as_var(other), as_var(known)
            if symbol in order and (known.is_const or (name in order and order[name] < order[symbol])):
                return a.node, symbol, known
    return None


SHARE_SYMBOLS = Pass("share_symbols", Level.BASIC, Exactness.BIT_EXACT, share_symbols, optional=True)
