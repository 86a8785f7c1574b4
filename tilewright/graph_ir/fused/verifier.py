"""What holds in a fused graph: invariants 12 to 16 of :mod:`tilewright.graph_ir.verifier`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.errors import VerifyError
from tilewright.graph_ir.fused.shape_program import RUNS
from tilewright.graph_ir.fused.update_in_place import IN_PLACE, updated_operand
from tilewright.graph_ir.ir import Graph, Group, Node, SubView, TensorType, Value, node_reads
from tilewright.graph_ir.kinds import RunsAs


def verify_groups(graph: Graph, scope: Mapping[str, Value]) -> None:
    """Check a graph that has groups. ``scope``: its values and those of the graphs around it. Raises VerifyError."""
    _check_membership(graph)
    _check_edges(graph)
    for name, v in graph.values.items():
        if v.place is not None:
            _check_place(graph, name, v.place, scope)
    for group in graph.groups or ():
        if group.runs_as is RunsAs.PLACED:
            _check_placed(group, scope)
    _check_in_place(graph)


def _fail(number: int, where: str, message: str) -> NoReturn:
    raise VerifyError(f"invariant {number}: {where}: {message}")


def _check_membership(graph: Graph) -> None:
    order = {n.name: k for k, n in enumerate(graph.nodes)}
    nodes = {n.name: n for n in graph.nodes}
    seen: set[str] = set()
    for g in graph.groups or ():
        for n in g.nodes:
            if nodes.get(n.name) != n or n.name in seen or n.attr(RUNS) is not None:
                _fail(12, f"group '{g.name}'", f"expected node '{n.name}' of the graph, in no other group, that runs")
            seen.add(n.name)
        places = [order[n.name] for n in g.nodes]
        if not places or places != sorted(places):
            _fail(12, f"group '{g.name}'", f"expected nodes in the order of the graph, got {[n.name for n in g.nodes]}")
    if lost := [n.name for n in graph.nodes if n.attr(RUNS) is None and n.name not in seen]:
        _fail(12, f"graph '{graph.name}'", f"expected a group of node '{lost[0]}', got none")


def _check_edges(graph: Graph) -> None:
    made_by = {o: g for g in graph.groups or () for n in g.nodes for o in n.outputs if o}
    done: set[str] = set()
    for g in graph.groups or ():
        inside = {o for n in g.nodes for o in n.outputs if o}
        if missing := [o for o in g.outputs if o not in inside]:
            _fail(13, f"group '{g.name}'", f"expected outputs that its nodes make, got '{missing[0]}'")
        for i in dict.fromkeys((*g.inputs, *(i for n in g.nodes for i in node_reads(n)))):
            maker = made_by.get(i)
            if maker is None or maker is g:
                continue
            if i not in maker.outputs:
                _fail(13, f"group '{g.name}'", f"expected '{i}' among the outputs of group '{maker.name}'")
            if i not in done:
                _fail(13, f"group '{g.name}'", f"expected group '{maker.name}', which gives '{i}', before it")
        done.update(g.outputs)
    for o in graph.outputs:
        if o in made_by and o not in made_by[o].outputs:
            _fail(13, f"graph '{graph.name}'", f"expected '{o}' among the outputs of group '{made_by[o].name}'")


def _check_place(graph: Graph, name: str, place: SubView, scope: Mapping[str, Value]) -> None:
    inner, root = scope[name].type, scope.get(place.root)
    where = f"value '{name}'"
    if root is None or root.place is not None or name in graph.outputs:
        _fail(14, where, f"expected a place in a value with memory of its own, got {place}")
    outer = root.type
    if not isinstance(inner, TensorType) or not isinstance(outer, TensorType) or inner.dtype != outer.dtype:
        _fail(14, where, f"expected the element type of '{place.root}', {outer}, got {inner}")
    if inner.shape is None or outer.shape is None or not len(inner.shape) == len(outer.shape) == len(place.offsets):
        _fail(14, where, f"expected the rank of '{place.root}', {outer}, got {inner} at {place}")
    for size, whole, offset in zip(inner.shape, outer.shape, place.offsets, strict=True):
        if offset < 0 or not is_nonneg(whole - size - offset, {}):
            _fail(14, where, f"expected a place inside '{place.root}', {outer}, got {inner} at {place}")


def _check_placed(group: Group, scope: Mapping[str, Value]) -> None:
    """Each operand lies where the operator puts it."""
    (node,) = group.nodes
    result = scope[node.outputs[0]]
    base = result.place or SubView(result.name, (0,) * len(result.shape))
    for name, offsets in _offsets(node, scope):
        wanted = SubView(base.root, tuple(a + b for a, b in zip(base.offsets, offsets, strict=True)))
        if scope[name].place != wanted:
            _fail(15, f"group '{group.name}'", f"expected '{name}' at {wanted}, got {scope[name].place}")


def _check_in_place(graph: Graph) -> None:
    """Nothing but the update sees its copy, which is gone behind it."""
    readers = graph.consumers()
    copies = {g.outputs[0]: g for g in graph.groups or () if len(g.nodes) == 1 and g.runs_as is RunsAs.KERNEL}
    for node in (n for n in graph.nodes if n.attr(IN_PLACE)):
        copied, where = updated_operand(node) or "", f"node '{node.name}' ({node.op})"
        if node.outputs[0] not in graph.outputs or readers.get(copied) != [node] or copied in graph.outputs:
            _fail(16, where, f"expected an output of the graph, and to read '{copied}' alone")
        if copied not in copies or copies[copied].nodes[0].inputs[0] not in graph.inputs:
            _fail(16, where, f"expected '{copied}' from a kernel that copies an input of the graph")


def _offsets(node: Node, scope: Mapping[str, Value]) -> list[tuple[str, tuple[int, ...]]]:
    """Where the operands of a placed node lie in its result."""
    shape = scope[node.outputs[0]].shape
    if node.op == "Pad":
        before = scope[node.inputs[1]].data or ()
        return [(node.inputs[0], tuple(d.const for d in before[: len(shape)]))]
    if node.op != "Concat":
        _fail(15, f"node '{node.name}' ({node.op})", "expected an operator that joins or borders")
    axis, at, out = node.attr("axis", 0), 0, []
    for i in node.inputs:
        out.append((i, tuple(at if isinstance(axis, int) and d == axis % len(shape) else 0 for d in range(len(shape)))))
        at += scope[i].shape[axis % len(shape)].const if isinstance(axis, int) else 0
    return out
