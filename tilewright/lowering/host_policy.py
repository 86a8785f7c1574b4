"""Which operators may run on the host when native code cannot take them, and the reason that listings show.

The host is for what has no arithmetic weight: strings, sequences, sizes that depend on data, data movement steered by
values known only at run time. Everything else is native or refused.
"""

from __future__ import annotations

from tilewright.core.errors import UnsupportedError
from tilewright.core.target import Target
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, node_reads
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS
from tilewright.lowering.group import native_refusal

ARITHMETIC = frozenset(
    (
        "Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "CausalConvWithState", "MatMul", "Gemm",
        "MatMulInteger", "QLinearMatMul", "Einsum", "FusedAttention", "LSTM", "GRU", "RNN", "DFT", "STFT",
        "MelWeightMatrix", "Det", "AveragePool", "MaxPool", "LpPool", "MaxRoiPool", "RoiAlign", "GridSample", "LRN",
        "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "Softmax",
        "LogSoftmax", "ReduceSum", "ReduceMean", "SwiGLU",
    )  # fmt: skip
)


def _shape_symbols(value: Value) -> set[str]:
    t = value.type
    return {s for d in t.shape or () for s in d.free_vars()} if isinstance(t, TensorType) else set()


def _symbols(value: Value) -> set[str]:
    """Symbols of a value's sizes and known elements."""
    return _shape_symbols(value) | {s for d in value.data or () for s in d.free_vars()}


class HostPolicy:
    """Decides for the nodes of one graph; remembers the reasons."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph, self._target = graph, target
        self._reasons: dict[str, str] = {}

    def is_native(self, node: Node) -> bool:
        """True if native code takes the node. Raises UnsupportedError where the host may not stand in."""
        refusal = self._new_sizes(node) or native_refusal(self._graph, node, self._target)
        if refusal is None:
            return True
        if node.op in ARITHMETIC:
            raise UnsupportedError(refusal)
        self._reasons[node.name] = refusal.partition(": ")[2] or refusal
        return False

    def _new_sizes(self, node: Node) -> str | None:
        """Set where the node's result has a size that nothing before it determines: only running it tells."""
        known: set[str] = set()
        for name in node_reads(node):
            known |= _symbols(self._graph.values[name])
        new = {s for o in node.outputs if o for s in _shape_symbols(self._graph.values[o])} - known
        if not new:
            return None
        return f"node {node.name!r}: the size of the result depends on data ({', '.join(sorted(new))})"

    def reason(self, node: Node) -> str:
        """Why the node runs on the host."""
        info = OPS.get(node.op) if not node.domain else None
        if info is not None and info.kind is PatternKind.HOST and info.host:
            return info.host
        return self._reasons.get(node.name, "string, sequence or complex values, or an unknown rank")
