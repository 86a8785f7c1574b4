"""Convolutions, pools and resizes work on N, spatial..., C; Transposes are left at the borders of such regions only.

Every such operator gets ``data_layout`` NHWC between two Transposes, and the moves of
:mod:`tilewright.graph_ir.passes.layout_moves` carry the layout on through everything that follows.
"""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.kinds import DataLayout
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.passes.layout_moves import Mover, channels_last_perm, is_tensor_of_rank
from tilewright.graph_ir.passes.sink_transposes import install, sink_one


def channels_last(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with its convolution regions in channels-last layout."""
    if not any(op_def(n).layout is DataLayout.PREFERRED for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    mover = Mover(ed, eager=True)
    for k in list(ed.nodes):
        node = ed.nodes.get(k)
        if node is None:
            continue
        if op_def(node).layout is not None:
            _convert(mover, node, k)
        else:
            sink_one(mover, node, k, "channels_last")
    return ed.finish()


def _convert(mover: Mover, node: Node, k: int) -> None:
    ed = mover.ed
    x = node.inputs[0]
    reason = None
    if node.attr("data_layout", "NCHW") != "NCHW":
        return
    if not is_tensor_of_rank(ed, x, 3):
        reason = "the input's rank is unknown or below 3"
    elif op_def(node).layout is DataLayout.SUPPORTED and not _is_channels_last(mover, x):
        reason = "the input is not channels-last, and this operator alone does not pay for a Transpose"
    elif any(o and ed.use_count(o) for o in node.outputs[1:]):
        reason = "a second output counts positions in the original layout"
    if reason is not None:
        ed.ctx.log.refuse("channels_last", node.name, reason)
        return
    ed.set_anchor(k)
    perm = channels_last_perm(len(ed.value(x).shape))
    attrs = dict(node.attrs) | {"data_layout": "NHWC"}
    new = ed.add(node.op, (mover.moved(x, perm), *node.inputs[1:]), attrs, hint=node.outputs[0], stands_for=node)[0]
    ed.ctx.log.fire("channels_last", node.name)
    install(mover, node, [(new, perm)])


def _is_channels_last(mover: Mover, name: str) -> bool:
    alt = mover.alternative(name)
    return alt is not None and alt[1] == channels_last_perm(len(alt[1]))


CHANNELS_LAST = Pass("channels_last", Level.ALL, Exactness.REASSOCIATING, channels_last)
