"""Inputs and outputs of a model that nobody asks for."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.graph_ir.ir import Graph, node_reads


def with_outputs(graph: Graph, kept: Sequence[str] | None, dropped: Sequence[str]) -> Graph:
    """The graph with the outputs ``kept``, by default all, without those ``dropped``. Raises InputError."""
    for option, names in (("outputs", kept or ()), ("drop_outputs", dropped)):
        for name in names:
            if name not in graph.outputs:
                near = did_you_mean(name, graph.outputs)
                raise InputError(f"{option}: no output {name!r}; there are {', '.join(graph.outputs)}{near}")
    outputs = tuple(o for o in graph.outputs if (kept is None or o in kept) and o not in dropped)
    if not outputs:
        raise InputError("outputs: expected at least one that stays")
    return graph if outputs == graph.outputs else graph.replace(outputs=outputs)


def unread_inputs(graph: Graph) -> tuple[str, ...]:
    """Inputs that neither a node nor an output reads."""
    read = {name for n in graph.nodes for name in node_reads(n)} | {*graph.outputs}
    return tuple(i for i in graph.inputs if i not in read)


def without_inputs(graph: Graph, names: Sequence[str]) -> Graph:
    """The graph without some inputs, which nothing reads."""
    values = {n: v for n, v in graph.values.items() if n not in names}
    return graph.replace(inputs=tuple(i for i in graph.inputs if i not in names), values=values)
