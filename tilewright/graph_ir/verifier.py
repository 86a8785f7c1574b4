"""The graph IR's invariants, numbered. ``verify_graph`` raises VerifyError at the first that is broken.

1.  A name is defined once, in the graph and all its subgraphs together; names of inputs and constants are not empty.
2.  A node reads only names defined before it, in its graph or in one around it.
3.  Every output of a graph is defined.
4.  Every defined name has a value under that name, and there is no value for any other name.
5.  Every node's operator is in the table, with as many inputs and outputs as it takes; an absent input is "".
6.  Node names are not empty and unique in the graph and all its subgraphs together.
7.  Attributes are sorted by key, without duplicates, and of the types of the grammar.
8.  A constant's value has the type of its array.
9.  A node's outputs have the element type, rank and fixed sizes that inference gives for its inputs.
10. Fixed sizes are >= 0; known elements are as many as the shape has.
11. Branches take no inputs and give as many outputs as their node; bodies have the inputs and outputs of their node.

In a fused graph (:mod:`.fused.verifier`):

12. Every node that runs is in one group, as it stands in the graph, and a group's nodes are in the order of the graph.
13. What others read of a group's nodes is among its outputs, and the groups that make what it reads stand before it.
14. A value with a place lies inside a value of the same element type and rank that has memory of its own.
15. In a group that runs as placed, each operand lies where the operator puts it.
16. An update in place gives an output; a kernel copies an input of the graph for it, which nothing else reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from tilewright.core import dtypes
from tilewright.core.arith.expr import product
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, VerifyError
from tilewright.graph_ir.fused.verifier import verify_groups
from tilewright.graph_ir.inference import infer_node
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Type, UnknownType, Value, walk_graphs
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import is_known, op_def


def verify_graph(graph: Graph, since: Graph | None = None, foreign: bool = False) -> None:
    """Check all invariants of an inferred graph. Raises VerifyError that names the invariant and the node.

    ``since``: a verified graph; types of nodes that are as they were in it, operands and results too, hold still.
    ``foreign``: nodes may have a domain.
    """
    for check in _GRAPH_CHECKS:
        check(graph)
    if not foreign:
        _check_domains(graph)
    _check_types(graph, since)


def _fail(number: int, where: str, message: str) -> None:
    raise VerifyError(f"invariant {number}: {where}: {message}")


def _node(n: Node) -> str:
    return f"node '{n.name}' ({n.op})"


def _defined(g: Graph) -> list[str]:
    return [*g.inputs, *g.constants, *(o for n in g.nodes for o in n.outputs if o)]


def _check_names(graph: Graph) -> None:
    seen: set[str] = set()
    for g in walk_graphs(graph):
        for name in (*g.inputs, *g.constants):
            if not name:
                _fail(1, f"graph '{g.name}'", "expected a name for every input and constant, got an empty one")
        for name in _defined(g):
            if name in seen:
                _fail(1, f"graph '{g.name}'", f"expected one definition of '{name}', got another")
            seen.add(name)


def _check_order(graph: Graph) -> None:
    _order(graph, frozenset())


def _order(g: Graph, outer: frozenset[str]) -> None:
    known = set(outer) | set(g.inputs) | set(g.constants)
    for n in g.nodes:
        for i in n.inputs:
            if i and i not in known:
                _fail(2, _node(n), f"expected a definition of '{i}' before it, got none")
        for _, sub in n.subgraphs():
            _order(sub, frozenset(known))
        known.update(n.outputs)
    for o in g.outputs:
        if o not in known:
            _fail(3, f"graph '{g.name}'", f"expected a definition of output '{o}', got none")


def _check_values(graph: Graph) -> None:
    for g in walk_graphs(graph):
        names = set(_defined(g))
        for name in names:
            v = g.values.get(name)
            if v is None or v.name != name:
                _fail(4, f"graph '{g.name}'", f"expected a value of '{name}', got {v if v is None else v.name}")
        for name in g.values:
            if name not in names and name not in g.outputs:
                _fail(4, f"graph '{g.name}'", f"expected values of defined names only, got '{name}'")


def _check_nodes(graph: Graph) -> None:
    names: set[str] = set()
    for g in walk_graphs(graph):
        for n in g.nodes:
            op = op_def(n)
            if not n.domain and not is_known(n):
                _fail(5, _node(n), f"expected a known operator, got ai.onnx.{n.op}")
            if len(n.inputs) < op.min_inputs or (op.max_inputs is not None and len(n.inputs) > op.max_inputs):
                _fail(5, _node(n), f"expected {op.min_inputs} to {op.max_inputs} inputs, got {len(n.inputs)}")
            if len(n.outputs) < op.min_outputs or (op.max_outputs is not None and len(n.outputs) > op.max_outputs):
                _fail(5, _node(n), f"expected {op.min_outputs} to {op.max_outputs} outputs, got {len(n.outputs)}")
            if not n.name or n.name in names:
                _fail(6, _node(n), "expected a name of its own, got an empty or used one")
            names.add(n.name)
            keys = [k for k, _ in n.attrs]
            if keys != sorted(set(keys)):
                _fail(7, _node(n), f"expected sorted attributes, got {keys}")
            for k, v in n.attrs:
                if not _is_attribute(v):
                    _fail(7, _node(n), f"expected an attribute type as {k}, got {type(v).__name__}")


def _check_domains(graph: Graph) -> None:
    for g in walk_graphs(graph):
        for n in g.nodes:
            if n.domain:
                _fail(5, _node(n), f"expected a known operator, got {n.domain}.{n.op}")


def _is_attribute(v: object) -> bool:
    if isinstance(v, tuple):
        return all(isinstance(x, (int, float, str)) for x in v)
    return v is None or isinstance(v, (int, float, str, DType, Graph, Constant))


def _check_constants(graph: Graph) -> None:
    for g in walk_graphs(graph):
        for name, c in g.constants.items():
            t = g.values[name].type
            shape = t.shape if isinstance(t, TensorType) else None
            same = shape is not None and tuple(d.value() for d in shape) == c.shape
            if not isinstance(t, TensorType) or not same or t.dtype != dtypes.from_numpy(c.dtype):
                _fail(8, f"constant '{name}'", f"expected {c.dtype}{list(c.shape)}, got {t}")


def _check_types(graph: Graph, since: Graph | None) -> None:
    _types(graph, {}, {}, _unchanged(graph, since) if since is not None else frozenset())


def _unchanged(graph: Graph, since: Graph) -> Set[int]:
    """Nodes of ``graph``, by identity, that ``since`` has with the same operands and results; none with subgraphs."""
    before = {id(n) for n in since.nodes}

    def same(name: str) -> bool:
        return graph.values[name] is since.values.get(name) and graph.constants.get(name) is since.constants.get(name)

    return {
        id(n)
        for n in graph.nodes
        if id(n) in before and not n.subgraphs() and all(map(same, filter(None, (*n.inputs, *n.outputs))))
    }


def _types(
    g: Graph, outer: Mapping[str, Value], outer_constants: Mapping[str, Constant], known: Set[int] = frozenset()
) -> None:
    scope = {**outer, **g.values}
    constants = {**outer_constants, **g.constants}
    if g.groups is not None:
        verify_groups(g, scope)
    for n in g.nodes:
        for _, sub in n.subgraphs():
            _types(sub, scope, constants)
        if op_def(n).kind is PatternKind.CONTROL or id(n) in known:
            continue
        try:
            inferred = infer_node(n, {i: scope[i] for i in n.inputs if i}, constants)
        except ModelError as e:
            _fail(9, _node(n), str(e))
            return
        for v in inferred:
            if not isinstance(v.type, UnknownType) and not _agree(scope[v.name].type, v.type):
                _fail(9, _node(n), f"expected '{v.name}' of type {v.type}, got {scope[v.name].type}")


def _agree(declared: Type, inferred: Type) -> bool:
    if isinstance(declared, TensorType) and isinstance(inferred, TensorType):
        if declared.dtype != inferred.dtype:
            return False
        if declared.shape is None or inferred.shape is None:
            return True
        if len(declared.shape) != len(inferred.shape):
            return False
        pairs = zip(declared.shape, inferred.shape, strict=True)
        return all(a == b or not a.is_const or not b.is_const for a, b in pairs)
    return type(declared) is type(inferred)


def _check_sizes(graph: Graph) -> None:
    for g in walk_graphs(graph):
        for name, v in g.values.items():
            shape = v.type.shape if isinstance(v.type, TensorType) else None
            if any(d.is_const and d.const < 0 for d in shape or ()):
                _fail(10, f"value '{name}'", f"expected sizes >= 0, got {v.type}")
            if v.data is not None:
                count = None if shape is None else product(shape).value()
                if count != len(v.data):
                    _fail(10, f"value '{name}'", f"expected {v.type} to have {len(v.data)} elements, got {count}")


def _check_subgraphs(graph: Graph) -> None:
    for g in walk_graphs(graph):
        for n in g.nodes:
            for key, sub in n.subgraphs():
                expected = None if n.domain else _signature(n)
                got = (len(sub.inputs), len(sub.outputs))
                if expected is not None and got != expected:
                    wanted = f"{expected[0]} inputs and {expected[1]} outputs"
                    _fail(11, _node(n), f"expected {key} with {wanted}, got {got[0]} and {got[1]}")


def _signature(n: Node) -> tuple[int, int] | None:
    if n.op == "If":
        return 0, len(n.outputs)
    if n.op == "Loop":
        return len(n.inputs), len(n.outputs) + 1
    if n.op == "Scan":
        return len(n.inputs), len(n.outputs)
    return None


_GRAPH_CHECKS: tuple[Callable[[Graph], None], ...] = (
    _check_names,
    _check_order,
    _check_values,
    _check_nodes,
    _check_constants,
    _check_sizes,
    _check_subgraphs,
)
