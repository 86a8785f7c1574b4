"""What nothing needs goes; what is constant is computed."""

from __future__ import annotations

import dataclasses

from tilewright.edit.operations.rewiring import dropped, unneeded
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Graph, node_reads
from tilewright.graph_ir.passes.base import Pass, PassContext, PassLog
from tilewright.graph_ir.passes.drop_dead import DROP_DEAD
from tilewright.graph_ir.passes.fold_constants import FOLD_CONSTANTS
from tilewright.graph_ir.passes.share_common import SHARE_COMMON


def cleaned(model: OnnxModel, unused_inputs: bool) -> OnnxModel:
    """The model without nodes and constants that no output needs, and perhaps without such inputs."""
    model = dropped(model, unneeded(model.graph))
    graph = model.graph
    if unused_inputs:
        read = {i for n in graph.nodes for i in node_reads(n)} | {*graph.outputs}
        graph = graph.replace(inputs=tuple(i for i in graph.inputs if i in read))
    return dataclasses.replace(model, graph=graph, overridable=model.overridable & graph.constants.keys())


def folded(model: OnnxModel) -> tuple[OnnxModel, PassLog]:
    """The model with what depends on constants only, and what is known of sizes, as constants."""
    return run_pass(model, FOLD_CONSTANTS, DROP_DEAD)


def shared(model: OnnxModel) -> tuple[OnnxModel, PassLog]:
    """The model with each computation, and each small constant, once."""
    return run_pass(model, SHARE_COMMON)


def run_pass(model: OnnxModel, *passes: Pass) -> tuple[OnnxModel, PassLog]:
    """The model after some passes, and what they did."""
    graph: Graph = model.graph
    ctx = PassContext.for_graph(graph)
    for p in passes:
        graph = p.apply(graph, ctx)
    kept = model.overridable & graph.constants.keys()
    return dataclasses.replace(model, graph=graph, overridable=kept), ctx.log
