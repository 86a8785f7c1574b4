"""Which passes a file goes through, and in which terms they may write."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tilewright.frontend.schemas import signature
from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.passes.base import Level, Pass, PassLog
from tilewright.graph_ir.passes.cancel_views import CANCEL_VIEWS
from tilewright.graph_ir.passes.drop_dead import DROP_DEAD
from tilewright.graph_ir.passes.fold_constants import fold_for_file
from tilewright.graph_ir.passes.join_steps import JOIN_STEPS
from tilewright.graph_ir.passes.merge_products import MERGE_PRODUCTS
from tilewright.graph_ir.passes.resolve_if import RESOLVE_IF
from tilewright.graph_ir.passes.share_common import SHARE_COMMON
from tilewright.graph_ir.passes.sink_transposes import SINK_TRANSPOSES
from tilewright.graph_ir.passes.split_slices import SPLIT_SLICES
from tilewright.graph_ir.pipeline import (
    DROP_DEFAULTS,
    FOLD_INTO_WEIGHTS,
    FOLD_SCALES,
    JOIN_CHAINS,
    JOIN_GEMM,
    RECOGNISE,
    REPLACE_EINSUM,
    SIMPLIFY,
    SINK_REPEATS,
    PassReport,
    count_nodes,
    run_passes,
)
from tilewright.graph_ir.rules.composites import cells
from tilewright.graph_ir.rules.driver import rule_pass
from tilewright.simplification.options import SimplifyOptions

ROUNDS = 4
"""How often the passes run over a graph at most: as long as it gets smaller."""
KERNEL_RULES = frozenset(
    (
        "div_power_of_two",
        "flatten_reshape",
        "transpose_cast",
        "transpose_view_cast",
        "einsum_as_product",
        "einsum_of_pairs",
    )
)
"""Rules for kernels, which make no graph smaller: other runtimes look for the exporter's form."""
SLOWER_ELSEWHERE = frozenset(("group_norm",))
"""Rules whose operator onnxruntime computes by the standard's definition of it, in more time than its parts."""
_SINCE: Mapping[str, int] = {"GroupNormalization": 21}
"""Operators that mean something else before an opset: there, scale and bias have a number for each group."""
_LEAST_GROWTH = 1 << 10
_SHARE = 1000
"""Of a model, as which a folded constant may make it larger: nobody notices."""
RECOGNISE_CELLS = rule_pass("recognise_cells", Level.EXTENDED, cells.RULES)
ON_REQUEST = (FOLD_INTO_WEIGHTS, SINK_REPEATS, SINK_TRANSPOSES, MERGE_PRODUCTS)
"""Passes that make many models smaller, and may hide from a runtime what it would join itself: the scale of attention,
its three products, the last steps of a norm. They run if they are enabled by name."""


@dataclass(frozen=True, slots=True)
class Step:
    """A pass that changed the graph. ``fired``: the names of its rules that did."""

    pass_: Pass
    before: Graph
    after: Graph
    fired: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rewriting:
    """How graphs are rewritten for one file: passes, and the terms in which they write."""

    options: SimplifyOptions
    refuses: Callable[[Node], str | None]
    passes: tuple[Pass, ...]

    @classmethod
    def of(cls, options: SimplifyOptions, opset: int, nbytes: int) -> Rewriting:
        """``opset``: the version whose operators rewrites may make. ``nbytes``: those of the model's constants."""

        def refuses(node: Node) -> str | None:
            if not node.domain and signature(node.op, "", opset) is None:
                return f"opset {opset} has no {node.op}"
            if opset < _SINCE.get(node.op, 0):
                return f"opset {opset} has another {node.op}; it means this from opset {_SINCE[node.op]} on"
            rounded = (k for k, v in node.attrs if isinstance(v, float) and float(np.float32(v)) != v)
            return next((f"a file stores {k} in float32, which would round it" for k in rounded), None)

        growth = max(_LEAST_GROWTH, nbytes // _SHARE) if options.growth_bytes is None else options.growth_bytes
        return cls(options, refuses, _passes(growth))

    def run(self, graph: Graph) -> tuple[Graph, PassReport, tuple[Step, ...]]:
        """The graph after the passes, as often as they make it smaller; what they did."""
        report, steps = PassReport(()), _Steps()
        for _ in range(ROUNDS):
            before = count_nodes(graph)
            graph, one = self.once(graph, self.passes, steps)
            report += one
            if count_nodes(graph) == before:
                break
        return graph, report, tuple(steps.found)

    def once(
        self, graph: Graph, passes: tuple[Pass, ...], steps: _Steps | None = None, without: Collection[str] = ()
    ) -> tuple[Graph, PassReport]:
        """The graph after ``passes``, without those passes and rules."""
        o = self.options
        off = (KERNEL_RULES | SLOWER_ELSEWHERE) - {*o.enabled_pass}
        return run_passes(
            graph, o.level, disabled=(*o.disabled_pass, *off, *without),
            instruments=() if steps is None else (steps,), enabled=o.enabled_pass, passes=passes, refuses=self.refuses,
        )  # fmt: skip


def _passes(growth_bytes: int) -> tuple[Pass, ...]:
    fold = fold_for_file(growth_bytes)
    return (
        DROP_DEAD,
        fold,  # shape arithmetic becomes constants, which the rules below read
        RESOLVE_IF,
        SIMPLIFY,
        DROP_DEFAULTS,
        SHARE_COMMON,
        REPLACE_EINSUM,
        fold,  # what the rules made constant
        FOLD_SCALES,
        RECOGNISE,
        RECOGNISE_CELLS,
        JOIN_STEPS,
        JOIN_CHAINS,
        *(replace(p, optional=True) for p in ON_REQUEST),  # before products and sums are one node
        JOIN_GEMM,
        CANCEL_VIEWS,
        SPLIT_SLICES,
        SIMPLIFY,
        SHARE_COMMON,
        DROP_DEAD,
    )


@dataclass(slots=True)
class _Steps:
    """Keeps the graphs between passes; their constants are by reference."""

    found: list[Step] = field(default_factory=list)
    _before: Graph | None = None

    def before(self, step: int, pass_: Pass, graph: Graph) -> None:
        self._before = graph

    def after(self, step: int, pass_: Pass, graph: Graph, log: PassLog) -> None:
        if self._before is not None and graph is not self._before:
            self.found.append(Step(pass_, self._before, graph, tuple(dict.fromkeys(f.what for f in log.fired))))
