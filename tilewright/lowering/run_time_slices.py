"""Slices whose bounds only the run knows, with all that bounds of indices need: where they begin is a symbol.

The runtime asks for the sizes of such a Slice before it runs (:mod:`tilewright.graph_ir.run_time_sizes`) and is told
where it begins and what is left behind it, too. In a kernel that holds the Slice, the size of what it cuts is written
as the sum of the three, so that no index is outside of it and nothing needs to be clipped.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.graph_ir.fusion import Group
from tilewright.graph_ir.ir import Node, Value
from tilewright.graph_ir.run_time_sizes import is_sized_by_operands, slice_places
from tilewright.graph_ir.symbols import value_with

BEGIN = "begin"
"""Attribute of such a Slice (ours): for each dimension the symbol of the first element's place, or ""."""


def with_places(group: Group, values: Mapping[str, Value]) -> tuple[Group, Mapping[str, Value]]:
    """The group with places in its Slices, and the values with sizes written as sums."""
    if not any(n.op == "Slice" for n in group.nodes):
        return group, values
    sums: dict[str, IntExpr] = {}
    nodes = tuple(_with_begin(n, values, sums) for n in group.nodes)
    named = {x for n in nodes for x in (*n.inputs, *n.outputs) if x} if sums else set()
    changed = {x: value_with(values[x], sums) for x in named if x in values}
    return dataclasses.replace(group, nodes=nodes), {**values, **changed} if changed else values


def _with_begin(node: Node, values: Mapping[str, Value], sums: dict[str, IntExpr]) -> Node:
    if node.domain or node.op != "Slice" or not is_sized_by_operands(node, values):
        return node
    firsts, rests = slice_places(node, values)
    source, result = values[node.inputs[0]].shape, values[node.outputs[0]].shape
    steps = node.inputs[4] if len(node.inputs) > 4 else ""
    ones = not steps or ((data := values[steps].data) is not None and all(d == 1 for d in data))
    for whole, first, part, rest in zip(source, firsts, result, rests, strict=True):
        symbol = as_var(whole)
        if ones and symbol is not None and symbol not in sums and not first.is_const:
            new = {symbol: first + part + rest}
            sums.update({k: v.substitute(new) for k, v in sums.items()} | new)
    return node.with_attrs(**{BEGIN: tuple("" if f.is_const else str(f) for f in firsts)})
