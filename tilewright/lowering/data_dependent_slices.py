"""Slices whose bounds only the run knows, with all that bounds of indices need: where they begin is a symbol.

The runtime asks for the sizes of such a Slice before it runs (:mod:`tilewright.graph_ir.data_dependent_shapes`), and
is told where it begins and what is left behind it, too. In a kernel that holds the Slice, the size of what it cuts is
written as the sum of the three, so that no index is outside of it and nothing needs to be clipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.graph_ir.data_dependent_shapes import slice_places
from tilewright.graph_ir.fused.shape_program import BEGIN
from tilewright.graph_ir.ir import Group, Node, Value
from tilewright.graph_ir.symbols import value_with


def with_sums(group: Group, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """The values with sizes that the Slices of ``group`` cut written as sums."""
    sums: dict[str, IntExpr] = {}
    for node in group.nodes:
        if node.attr(BEGIN) is not None:
            _add_sums(node, values, sums)
    if not sums:
        return values
    named = {x for n in group.nodes for x in (*n.inputs, *n.outputs) if x in values}
    return {**values, **{x: value_with(values[x], sums) for x in named}}


def _add_sums(node: Node, values: Mapping[str, Value], sums: dict[str, IntExpr]) -> None:
    firsts, rests = slice_places(node, values)
    source, result = values[node.inputs[0]].shape, values[node.outputs[0]].shape
    steps = node.inputs[4] if len(node.inputs) > 4 else ""
    ones = not steps or ((data := values[steps].data) is not None and all(d == 1 for d in data))
    for whole, first, part, rest in zip(source, firsts, result, rests, strict=True):
        symbol = as_var(whole)
        if ones and symbol is not None and symbol not in sums and not first.is_const:
            new = {symbol: first + part + rest}
            sums.update({k: v.substitute(new) for k, v in sums.items()} | new)
