"""Graphs on their way to groups, for tests: partitioned, grouped, or all the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilewright.graph_ir.fused.fuse import FusionLimits, FusionRefusal, group_with_reasons
from tilewright.graph_ir.fused.partition import PARTITION
from tilewright.graph_ir.fused.shape_program import RUNS, SHAPE_PROGRAM
from tilewright.graph_ir.ir import Constant, Graph, Group, Node, Value
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.pipeline import fuse_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.machine.costs import GENERIC, Costs


@dataclass(frozen=True)
class Backend:
    """Native code takes what ``is_native`` says, and looks at no indices."""

    is_native: Callable[[Node], bool] = lambda node: True
    costs: Costs = GENERIC

    def host_reason(self, graph: Graph, node: Node) -> str | None:
        return None if self.is_native(node) else "no native code"

    def checked_indices(self, node: Node, values: Mapping[str, Value], constants: Mapping[str, Constant]) -> list[str]:
        return []


def partitioned(graph: Graph, backend: Backend | None = None) -> Graph:
    ctx = PassContext.for_graph(graph, backend=backend or Backend())
    return PARTITION.apply(SHAPE_PROGRAM.apply(graph, ctx), ctx)


def groups_and_refusals(
    graph: Graph, limits: FusionLimits | None = None, backend: Backend | None = None
) -> tuple[tuple[Group, ...], tuple[FusionRefusal, ...]]:
    return group_with_reasons(partitioned(graph, backend), limits)


def groups_of(graph: Graph, backend: Backend | None = None) -> tuple[Group, ...]:
    return groups_and_refusals(graph, None, backend)[0]


def never_run(graph: Graph) -> set[str]:
    """Names of the nodes that never run."""
    return {n.name for n in partitioned(graph).nodes if n.attr(RUNS) == "never"}


def fused(graph: Graph, *disabled: str) -> Graph:
    """The fused graph, verified."""
    out, _ = fuse_graph(graph, Backend(), disabled)
    verify_graph(out)
    return out
