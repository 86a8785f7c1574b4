"""Nodes whose result has sizes that inference could not give: only the contents of an operand at run time tell.

For the operators in ``reference.sizes.SIZES`` the sizes follow from the contents of small operands by a simple rule, so
the runtime asks for the sizes first and then runs native code. What has no rule there has to run before its sizes are
known.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.expr import IntExpr, as_var, const, var
from tilewright.graph_ir.ir import Node, TensorType, Value, node_reads
from tilewright.reference.sizes import SIZES


def shape_symbols(value: Value) -> set[str]:
    """Symbols of a value's sizes."""
    t = value.type
    return {s for d in t.shape or () for s in d.free_vars()} if isinstance(t, TensorType) else set()


def new_symbols(node: Node, values: Mapping[str, Value]) -> set[str]:
    """Symbols in the sizes of a node's results that neither the sizes nor the known elements of its operands have."""
    known: set[str] = set()
    for name in node_reads(node):
        v = values[name]
        known |= shape_symbols(v) | {s for d in v.data or () for s in d.free_vars()}
    return {s for o in node.outputs if o for s in shape_symbols(values[o])} - known


def is_sized_by_operands(node: Node, values: Mapping[str, Value]) -> bool:
    """True for a node with new symbols, all of which can be read off the sizes that its operands tell."""
    if node.domain or node.op not in SIZES:
        return False
    types = [values[o].type for o in node.outputs if o] + [values[i].type for i in node.inputs if i]
    if any(not isinstance(t, TensorType) or t.shape is None for t in types):
        return False
    new = new_symbols(node, values)
    return bool(new) and new <= {as_var(d) for o in node.outputs if o for d in values[o].shape}


def slice_places(node: Node, values: Mapping[str, Value]) -> tuple[tuple[IntExpr, ...], tuple[IntExpr, ...]]:
    """For a Slice with sizes known at run time: where it begins in each dimension, and what is left behind its end.

    Both are symbols of their own in those dimensions. Like every symbol they are at least 0, which the operand that
    gives the start is not; and the size of what is cut is their sum with the result's.
    """
    new = new_symbols(node, values)
    dims = [as_var(d) for d in values[node.outputs[0]].shape]
    firsts, rests = (
        tuple(var(f"{place}_of_{d}") if d in new else const(0) for d in dims) for place in ("first", "rest")
    )
    return firsts, rests
