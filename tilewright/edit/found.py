"""Where a pattern is in a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.edit.views import NodeView, Seen, ValueView
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import Either, P, Rule, matches


@dataclass(frozen=True, slots=True)
class Found:
    """A place where a pattern fits. ``found["x"]`` is the value that the pattern calls ``x``.

    ``root``: the outermost node, whose results are what a replacement stands for. ``at``: nodes by the names that the
    pattern has for them. ``nodes``: all of them, the root last.
    """

    owner: Seen
    root: NodeView
    values: Mapping[str, ValueView]
    at: Mapping[str, NodeView]
    nodes: tuple[NodeView, ...]

    def __getitem__(self, key: str) -> ValueView:
        if key not in self.values:
            known = ", ".join(self.values) or "none"
            raise InputError(f"found: expected a value of the pattern ({known}), got {key!r}"
                             f"{did_you_mean(str(key), self.values)}")  # fmt: skip
        return self.values[key]


def find_pattern(owner: Seen, pattern: P | Either, graph: Graph) -> list[Found]:
    """Every node that is the root of ``pattern``, each in the first way in which it fits."""
    if not isinstance(pattern, P | Either):
        raise InputError(f"match: expected a pattern P(...), got {type(pattern).__name__}")
    rule = Rule("match", "", pattern, lambda m: None)
    editor = GraphEditor(graph, PassContext.for_graph(graph))
    out = []
    for n in graph.nodes:
        m = next(matches(rule, editor, n), None)
        if m is None:
            continue
        inner = tuple(NodeView(owner, i.name) for i in reversed(m.inner))
        out.append(
            Found(
                owner, NodeView(owner, n.name), {k: ValueView(owner, v) for k, v in m.names.items()},
                {k: NodeView(owner, v.name) for k, v in m.nodes.items()}, (*inner, NodeView(owner, n.name)),
            )
        )  # fmt: skip
    return out
