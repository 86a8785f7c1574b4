"""Which operators may run on the host when native code cannot take them, and the reason that listings show.

The host is for what has no arithmetic weight: strings, sequences, sizes that depend on data, data movement steered by
values known only at run time, determinants of more than a few rows, regions with a number of samples of their own.
Everything else is native or refused; but where not even a rank is known, or only running the operator tells the sizes
of its result, no kernel can be written, and the host stands in.
"""

from __future__ import annotations

from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.ir import Graph, Node, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS, op_def
from tilewright.graph_ir.run_time_sizes import is_sized_by_operands, new_symbols
from tilewright.lowering.group import native_refusal
from tilewright.lowering.implementations.base import Table
from tilewright.lowering.table import TABLE
from tilewright.machine.target import Target

SIZED_BY_DATA = "the size of the result depends on data"

_WIDE = 128
"""Native code of more operands (of a Concat, Split, Sum, ...) would take longer to build than all else."""


def is_taken(op: str) -> bool:
    """True for an operator that a plan can hold as it is; others are taken apart where the standard says how."""
    return op in TABLE or (op in OPS and not OPS[op].arithmetic)


class HostPolicy:
    """Decides for the nodes of one graph; remembers the reasons. ``table``: what can compute nodes, by operator.
    ``known``: refusals of native code by node, which are added to."""

    def __init__(
        self, graph: Graph, target: Target, table: Table = TABLE, known: dict[Node, str | None] | None = None
    ) -> None:
        self._graph, self._target, self._table = graph, target, table
        self._known = {} if known is None else known
        self._reasons: dict[str, str] = {}
        self._native: dict[str, bool] = {}

    def is_native(self, node: Node) -> bool:
        """True if native code takes the node. Raises UnsupportedError where the host may not stand in."""
        if node.name not in self._native:
            self._native[node.name] = self._decide(node)
        return self._native[node.name]

    def _decide(self, node: Node) -> bool:
        sizes = self._new_sizes(node)
        refusal = sizes or _width(node)
        if refusal is None and op_def(node).kind is not PatternKind.VIEW:  # a view needs no code
            if node not in self._known:
                self._known[node] = native_refusal(self._graph, node, self._target, self._table)
            refusal = self._known[node]
        if refusal is None:
            return True
        if op_def(node).arithmetic and sizes is None and not self._has_unknown_rank(node):
            raise UnsupportedError(refusal)
        self._reasons[node.name] = refusal.partition(": ")[2] or refusal
        return False

    def _has_unknown_rank(self, node: Node) -> bool:
        types = [self._graph.values[x].type for x in (*node.inputs, *node.outputs) if x]
        return any(isinstance(t, TensorType) and t.shape is None for t in types)

    def _new_sizes(self, node: Node) -> str | None:
        """Set where the result has a size that nothing before the node determines: only running it tells."""
        values = self._graph.values
        new = new_symbols(node, values)
        if not new or is_sized_by_operands(node, values):
            return None
        return f"node {node.name!r}: {SIZED_BY_DATA} ({', '.join(sorted(new))})"

    def reason(self, node: Node) -> str:
        """Why the node runs on the host."""
        untyped = "string, sequence or complex values, or an unknown rank"
        return op_def(node).host or self._reasons.get(node.name, untyped)


def _width(node: Node) -> str | None:
    """Set where the node has too many operands for a kernel, and the host may take it."""
    operands = max(len(node.inputs), len(node.outputs))
    if operands <= _WIDE or op_def(node).arithmetic:
        return None
    return f"node {node.name!r}: {operands} operands are more than the {_WIDE} of a kernel"
