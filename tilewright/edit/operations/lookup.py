"""What names mean in a graph, and new ones: each refusal names what is there instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value, node_reads
from tilewright.graph_ir.passes.base import rename_captures, with_inputs


def defined(graph: Graph) -> dict[str, None]:
    """Names of the values of a graph, in order: inputs, constants, results."""
    return dict.fromkeys((*graph.inputs, *graph.constants, *(o for n in graph.nodes for o in n.outputs if o)))


def require_value(graph: Graph, name: object, who: str) -> str:
    """``name``, that of a value of the graph. Raises InputError."""
    names = defined(graph)
    if not isinstance(name, str) or name not in names:
        near = did_you_mean(name, names) if isinstance(name, str) else ""
        raise InputError(f"{who}: expected the name of a value of graph '{graph.name}', got {name!r}{near}")
    return name


def require_node(graph: Graph, name: object, who: str) -> Node:
    """The node called ``name``. Raises InputError."""
    found = next((n for n in graph.nodes if n.name == name), None)
    if found is None:
        near = did_you_mean(name, [n.name for n in graph.nodes]) if isinstance(name, str) else ""
        raise InputError(f"{who}: expected the name of a node of graph '{graph.name}', got {name!r}{near}")
    return found


def require_one_of(name: object, known: Iterable[str], what: str, who: str) -> str:
    """``name``, one of ``known`` (``an input``, ``a constant``). Raises InputError."""
    names = tuple(known)
    if not isinstance(name, str) or name not in names:
        near = did_you_mean(name, names) if isinstance(name, str) else ""
        listed = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        raise InputError(f"{who}: expected {what} ({listed or 'there is none'}), got {name!r}{near}")
    return name


def require_new(graph: Graph, name: str, who: str) -> str:
    """``name``, which no value of the graph has. Raises InputError."""
    if not isinstance(name, str) or not name:
        raise InputError(f"{who}: expected a name, got {name!r}")
    if name in defined(graph):
        raise InputError(f"{who}: expected a new name, got '{name}', which a value of graph '{graph.name}' has")
    return name


def node_text(node: Node) -> str:
    """A node for messages."""
    return f"'{node.name}' ({node.op})"


def readers_text(nodes: Iterable[Node]) -> str:
    """Some nodes for messages."""
    texts = list(dict.fromkeys(map(node_text, nodes)))
    return ", ".join(texts[:5]) + (", ..." if len(texts) > 5 else "")


def reading(node: Node, renames: Mapping[str, str]) -> Node:
    """The node, and its subgraphs, reading other values; the same object if it reads none of them."""
    if not any(i in renames for i in node_reads(node)):
        return node
    bodies = {k: rename_captures(g, renames) for k, g in node.subgraphs()}
    node = node.with_attrs(**bodies) if bodies else node
    return with_inputs(node, tuple(renames.get(i, i) for i in node.inputs))


def with_nodes(model: OnnxModel, nodes: Iterable[Node], **changes: object) -> OnnxModel:
    """The model with other nodes, and other fields of its graph."""
    return model.with_graph(model.graph.replace(nodes=tuple(nodes), **changes))


def with_constants(model: OnnxModel, constants: Mapping[str, Constant]) -> OnnxModel:
    """The model with constants added, or replaced."""
    return model.with_graph(model.graph.replace(constants={**model.graph.constants, **constants}))


def with_values(model: OnnxModel, values: Iterable[Value]) -> OnnxModel:
    """The model with values recorded."""
    return model.with_graph(model.graph.replace(values={**model.graph.values, **{v.name: v for v in values}}))


def tensor_of(model: OnnxModel, name: str, who: str) -> TensorType:
    """The type of a tensor. Raises InputError for another kind of value."""
    t = model.graph.values[name].type
    if not isinstance(t, TensorType):
        raise InputError(f"{who}: expected a tensor, got '{name}', which is {t}")
    return t
