"""Who reads what: values in place of others, nodes in between, nodes away, nodes and subgraphs replaced."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tilewright.core.errors import InputError
from tilewright.edit.operations.lookup import defined, node_text, readers_text, reading, require_value, with_nodes
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Graph, Node, node_reads
from tilewright.graph_ir.names import NameSupply


def redirect(model: OnnxModel, old: str, new: str, readers: Collection[str] | None = None) -> OnnxModel:
    """Who reads ``old`` reads ``new``: all nodes and the outputs of the model, or the nodes named by ``readers``.

    An output keeps its name: what is called ``old`` then is what ``new`` was, or a copy of it where ``new`` is an
    input, a constant or an output itself. Raises InputError for names that are none.
    """
    graph = model.graph
    require_value(graph, old, "redirect")
    require_value(graph, new, "redirect")
    if old == new:
        return model
    if readers is None and old in graph.outputs:
        return _take_name(model, old, new)
    feeding = ancestors(graph, new)
    names = {n.name for n in graph.nodes} - feeding if readers is None else set(readers)
    return with_nodes(model, [reading(n, {old: new}) if n.name in names else n for n in graph.nodes])


def _take_name(model: OnnxModel, output: str, new: str) -> OnnxModel:
    """What ``new`` is gets the name of the output; who read either reads it, but for the nodes that make ``new`` of
    the old one."""
    graph = model.graph
    if output in graph.inputs:
        raise InputError(f"redirect: expected a value that is not an input and an output, got '{output}'")
    names = NameSupply(graph)
    before = names.fresh(f"{output}_before")
    feeding = ancestors(graph, new)
    own = not {new} & {*graph.inputs, *graph.constants, *graph.outputs}
    renames = {output: before} | ({new: output} if own else {})
    others = {new: output} if own else {output: new}
    nodes = []
    for n in graph.nodes:
        n = reading(n, {output: before} if n.name in feeding else others)
        nodes.append(with_outputs(n, tuple(renames.get(o, o) for o in n.outputs)))
    if not own:
        nodes.append(Node("Identity", (new,), (output,), (), names.fresh(f"{output}_copy")))
    values = {renames.get(k, k): v for k, v in graph.values.items() if k not in (output, new) or k not in renames}
    for a, b in renames.items():
        if a in graph.values:
            values[b] = dataclasses.replace(graph.values[a], name=b)
    constants = {renames.get(k, k): c for k, c in graph.constants.items()}
    return with_nodes(model, nodes, values=values, constants=constants)


def with_outputs(node: Node, outputs: tuple[str, ...]) -> Node:
    """The node defining other names; the same object if they are the same."""
    return node if outputs == node.outputs else dataclasses.replace(node, outputs=outputs)


def ancestors(graph: Graph, value: str) -> set[str]:
    """Names of the nodes that ``value`` is computed by."""
    producer = {o: n for n in graph.nodes for o in n.outputs if o}
    found: set[str] = set()
    todo = [value]
    while todo:
        node = producer.get(todo.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            todo.extend(node_reads(node))
    return found


def readers_of(graph: Graph, value: str) -> list[Node]:
    """Nodes that read ``value``, subgraph reads included, each once."""
    return [n for n in graph.nodes if value in node_reads(n)]


# -- away ----------------------------------------------------------------------------------------------------------
def without(model: OnnxModel, nodes: Sequence[Node], through: int | None, reconnect: bool) -> OnnxModel:
    """The model without some nodes. Who read a result of one reads its input number ``through`` instead.

    Without ``through`` the input is the only one that is no constant. Constants that only these nodes read go too.
    Raises InputError where that does not say which, where several results of a node are read, and, without
    ``reconnect``, where one is.
    """
    graph = model.graph
    readers: dict[str, list[Node]] = {}
    for n in graph.nodes:
        for i in dict.fromkeys(node_reads(n)):
            readers.setdefault(i, []).append(n)
    gone: set[str] = set()
    instead: dict[str, str] = {}
    for node in nodes:
        who = f"remove {node_text(node)}"
        left = {o: [r for r in readers.get(o, ()) if r.name not in gone] for o in node.outputs if o}
        used = [o for o, r in left.items() if r or o in graph.outputs or o in instead.values()]
        if used and not reconnect:
            shown = readers_text(r for some in left.values() for r in some) or "the outputs of the model"
            raise InputError(f"{who}: expected results that nothing reads, got '{used[0]}', read by {shown}")
        if len(used) > 1:
            raise InputError(
                f"{who}: expected one result that is read, got {', '.join(used)}: replace the node instead"
            )
        if used:
            instead[used[0]] = _operand(graph, node, through, who)
        gone.add(node.name)
    model = _reconnected(model, instead)
    kept = [n for n in model.graph.nodes if n.name not in gone]
    read = {i for n in kept for i in node_reads(n)} | {*model.graph.outputs}
    unread = {i for n in model.graph.nodes if n.name in gone for i in node_reads(n) if i not in read}
    return with_nodes(model, kept, constants={k: c for k, c in model.graph.constants.items() if k not in unread})


def _reconnected(model: OnnxModel, instead: Mapping[str, str]) -> OnnxModel:
    """Who reads a value reads what stands instead of it, or instead of that; outputs keep their names."""

    def last(name: str) -> str:
        while name in instead:
            name = instead[name]
        return name

    outputs = [o for o in model.graph.outputs if o in instead]
    inner = {o: last(o) for o in instead if o not in outputs}
    model = with_nodes(model, [reading(n, inner) for n in model.graph.nodes])
    called: dict[str, str] = {}
    for o in outputs:
        new = called.get(last(o), last(o))
        model = redirect(model, o, new)
        if new not in defined(model.graph):
            called[last(o)] = o
    return model


def _operand(graph: Graph, node: Node, through: int | None, who: str) -> str:
    if through is not None:
        if not 0 <= through < len(node.inputs) or not node.inputs[through]:
            raise InputError(f"{who}: expected the number of an input ({', '.join(node.inputs)}), got {through}")
        return node.inputs[through]
    found = list(dict.fromkeys(i for i in node.inputs if i and i not in graph.constants))
    if len(found) == 1:
        return found[0]
    if not found:
        found = [i for i in node.inputs if i]
        if len(found) == 1:
            return found[0]
    raise InputError(f"{who}: expected one input to take its place, got {', '.join(found) or 'none'}; give through=")


def replaced(model: OnnxModel, outputs: Mapping[str, str]) -> OnnxModel:
    """Values in place of others (old to new), and without what was needed for the old ones only."""
    before = _Ends.of(model.graph)
    for old, new in outputs.items():
        model = redirect(model, old, new)
    return before.without_new(model, outputs)


@dataclass(frozen=True, slots=True)
class _Ends:
    """What nobody needed before an edit, and which therefore stays: results of nodes that nothing reads, constants."""

    results: frozenset[str]
    constants: frozenset[str]

    @staticmethod
    def of(graph: Graph) -> _Ends:
        read = {i for n in graph.nodes for i in node_reads(n)} | {*graph.outputs}
        unread = (n.outputs for n in graph.nodes if not any(o in read for o in n.outputs))
        return _Ends(frozenset(o for outs in unread for o in outs), frozenset(graph.constants) - read)

    def without_new(self, model: OnnxModel, replaced: Collection[str]) -> OnnxModel:
        """The model without nodes and constants that nobody needs now, but for those; ``replaced`` values go too."""
        dead = unneeded(model.graph, self.results - {*replaced})
        return dropped(model, Unneeded(dead.nodes, dead.constants - self.constants))


@dataclass(frozen=True, slots=True)
class Unneeded:
    """Names of nodes and constants that no output needs."""

    nodes: frozenset[str]
    constants: frozenset[str]


def unneeded(graph: Graph, wanted: Collection[str] = ()) -> Unneeded:
    """What neither an output of the graph nor a ``wanted`` value needs, in whatever order its nodes stand."""
    producer = {o: n for n in graph.nodes for o in n.outputs if o}
    needed, nodes = set[str](), set[str]()
    todo = [*graph.outputs, *wanted]
    while todo:
        name = todo.pop()
        needed.add(name)
        node = producer.get(name)
        if node is not None and node.name not in nodes:
            nodes.add(node.name)
            todo.extend(node_reads(node))
    return Unneeded(frozenset(n.name for n in graph.nodes) - nodes, frozenset(graph.constants) - needed)


def dropped(model: OnnxModel, dead: Unneeded) -> OnnxModel:
    """The model without some nodes and constants."""
    graph = model.graph
    nodes = tuple(n for n in graph.nodes if n.name not in dead.nodes)
    constants = {k: c for k, c in graph.constants.items() if k not in dead.constants}
    return model.with_graph(graph.replace(nodes=nodes, constants=constants))
