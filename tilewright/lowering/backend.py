"""Which operators may run on the host when native code cannot take them, and the reason that listings show.

The host is for what has no arithmetic weight: strings, sequences, sizes that depend on data, data movement steered by
values known only at run time, determinants of more than a few rows, regions with a number of samples of their own.
Everything else is native or refused; but where not even a rank is known, or only running the operator tells the sizes
of its result, no kernel can be written, and the host stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilewright.core.errors import UnsupportedError
from tilewright.core.index_ranges import OutOfRange
from tilewright.graph_ir.data_dependent_shapes import is_sized_by_operands, new_symbols
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS, op_def
from tilewright.lowering.checks import unproved_indices
from tilewright.lowering.group import native_refusal
from tilewright.lowering.implementations.base import Table
from tilewright.lowering.table import TABLE
from tilewright.machine.costs import Costs
from tilewright.machine.target import Target

SIZED_BY_DATA = "the size of the result depends on data"

_WIDE = 128
"""Native code of more operands (of a Concat, Split, Sum, ...) would take longer to build than all else."""


def is_taken(op: str) -> bool:
    """True for an operator that a plan can hold as it is; others are taken apart where the standard says how."""
    return op in TABLE or (op in OPS and not OPS[op].arithmetic)


@dataclass(frozen=True, slots=True)
class NativeBackend:
    """What lowering for ``target`` knows of single nodes; see :class:`tilewright.graph_ir.passes.base.Backend`.

    ``table``: what can compute nodes, by operator. ``refusals``: what is known of nodes of this graph; it is added to.
    """

    target: Target
    out_of_range: OutOfRange = "error"
    table: Table = field(default_factory=lambda: TABLE)
    refusals: dict[Node, str | None] = field(default_factory=dict)

    @property
    def costs(self) -> Costs:
        """Those of the target."""
        return self.target.costs

    def host_reason(self, graph: Graph, node: Node) -> str | None:
        """Why native code does not take the node; None if it does. Raises UnsupportedError where the host may not stand
        in."""
        sizes = _new_sizes(graph, node)
        refusal = sizes or _width(node)
        if refusal is None and op_def(node).kind is not PatternKind.VIEW:  # a view needs no code
            if node not in self.refusals:
                self.refusals[node] = native_refusal(graph, node, self.target, self.table)
            refusal = self.refusals[node]
        if refusal is None:
            return None
        if op_def(node).arithmetic and sizes is None and not _has_unknown_rank(graph, node):
            raise UnsupportedError(refusal)
        return refusal.partition(": ")[2] or refusal

    def checked_indices(self, node: Node, values: Mapping[str, Value], constants: Mapping[str, Constant]) -> list[str]:
        """The values whose elements each run must look at before the node, since they are indices."""
        return [u.value for u in unproved_indices(node, values, constants, self.out_of_range)]


def _has_unknown_rank(graph: Graph, node: Node) -> bool:
    types = [graph.values[x].type for x in (*node.inputs, *node.outputs) if x]
    return any(isinstance(t, TensorType) and t.shape is None for t in types)


def _new_sizes(graph: Graph, node: Node) -> str | None:
    """Set where the result has a size that nothing before the node determines: only running it tells."""
    new = new_symbols(node, graph.values)
    if not new or is_sized_by_operands(node, graph.values):
        return None
    return f"node {node.name!r}: {SIZED_BY_DATA} ({', '.join(sorted(new))})"


def _width(node: Node) -> str | None:
    """Set where the node has too many operands for a kernel, and the host may take it."""
    operands = max(len(node.inputs), len(node.outputs))
    if operands <= _WIDE or op_def(node).arithmetic:
        return None
    return f"node {node.name!r}: {operands} operands are more than the {_WIDE} of a kernel"
