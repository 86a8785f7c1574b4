"""Which operators may run on the host when native code cannot take them, and the reason that listings show.

The host is for what has no arithmetic weight: strings, sequences, sizes that depend on data, data movement steered by
values known only at run time. Everything else is native or refused.
"""

from __future__ import annotations

from tilewright.core.errors import UnsupportedError
from tilewright.core.target import Target
from tilewright.graph_ir.ir import Graph, Node
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


class HostPolicy:
    """Decides for the nodes of one graph; remembers the reasons."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph, self._target = graph, target
        self._reasons: dict[str, str] = {}

    def is_native(self, node: Node) -> bool:
        """True if native code takes the node. Raises UnsupportedError where the host may not stand in."""
        refusal = native_refusal(self._graph, node, self._target)
        if refusal is None:
            return True
        if node.op in ARITHMETIC:
            raise UnsupportedError(refusal)
        self._reasons[node.name] = refusal.partition(": ")[2] or refusal
        return False

    def reason(self, node: Node) -> str:
        """Why the node runs on the host."""
        info = OPS.get(node.op) if not node.domain else None
        if info is not None and info.kind is PatternKind.HOST and info.host:
            return info.host
        return self._reasons.get(node.name, "string, sequence or complex values, or an unknown rank")
