"""The graph pipeline: which passes run, in which order, and why each stands where it does.

``run_passes`` is a pure function of the graph and its arguments. Instruments watch; they never change the graph.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tilewright.core.errors import InputError, VerifyError
from tilewright.core.io.files import TEXT, marked, write_file
from tilewright.core.options import require_names, shown
from tilewright.graph_ir.fused.fuse import FUSE
from tilewright.graph_ir.fused.own_outputs import OWN_OUTPUTS
from tilewright.graph_ir.fused.partition import PARTITION
from tilewright.graph_ir.fused.place_borders import PLACE_BORDERS
from tilewright.graph_ir.fused.place_concats import PLACE_CONCATS
from tilewright.graph_ir.fused.shape_program import SHAPE_PROGRAM
from tilewright.graph_ir.fused.update_in_place import UPDATE_IN_PLACE
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Graph, Node, walk_graphs
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.passes.base import Backend, Level, Pass, PassContext, PassLog, iter_lines
from tilewright.graph_ir.passes.cancel_views import CANCEL_VIEWS
from tilewright.graph_ir.passes.channels_last import CHANNELS_LAST
from tilewright.graph_ir.passes.drop_dead import DROP_DEAD
from tilewright.graph_ir.passes.equal_ranks import EQUAL_RANKS
from tilewright.graph_ir.passes.fold_constants import FOLD_CONSTANTS, FOLD_SHAPES
from tilewright.graph_ir.passes.join_steps import JOIN_STEPS
from tilewright.graph_ir.passes.merge_products import MERGE_PACKED_PRODUCTS, MERGE_PRODUCTS
from tilewright.graph_ir.passes.resolve_if import RESOLVE_IF
from tilewright.graph_ir.passes.share_common import SHARE_COMMON
from tilewright.graph_ir.passes.share_symbols import SHARE_SYMBOLS
from tilewright.graph_ir.passes.sink_transposes import SINK_TRANSPOSES
from tilewright.graph_ir.passes.split_slices import SPLIT_SLICES
from tilewright.graph_ir.rules import (
    activations,
    algebra,
    attention,
    integer_products,
    logic,
    noops,
    norms,
    products,
    quantization,
    scales,
    views,
    weights,
)
from tilewright.graph_ir.rules.composites import byte_functions, cells, channel_norms
from tilewright.graph_ir.rules.contractions import einsum
from tilewright.graph_ir.rules.driver import rule_pass
from tilewright.graph_ir.rules.files import defaults, gemm
from tilewright.graph_ir.rules.moves import convolutions, repeats, row_views, slices
from tilewright.graph_ir.text import print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.machine.costs import GENERIC, Costs

INTEGER_PRODUCTS = rule_pass("integer_products", Level.EXTENDED, (*integer_products.PRODUCTS, *quantization.MOVES))
UNSIGNED_BYTES = rule_pass("unsigned_quantization", Level.EXTENDED, quantization.UNSIGNED)
LOOK_UP_BYTES = rule_pass("look_up_bytes", Level.EXTENDED, byte_functions.RULES)
FOLD_QUANTIZATION = rule_pass("fold_quantization", Level.EXTENDED, (*quantization.UNSIGNED, *quantization.SCALES))
SIMPLIFY = rule_pass("simplify", Level.BASIC, (*noops.RULES, *views.RULES, *slices.RULES, *algebra.RULES, *logic.RULES))
REPLACE_EINSUM = rule_pass("replace_einsum", Level.EXTENDED, einsum.RULES)
SINK_REPEATS = rule_pass("sink_repeats", Level.EXTENDED, repeats.RULES)
FOLD_SCALES = rule_pass("fold_scales", Level.EXTENDED, (*scales.RULES, *convolutions.RULES))
SPLIT_BATCHNORM = rule_pass("split_batchnorm", Level.EXTENDED, scales.BATCHNORM_AS_AFFINE)
RECOGNISE = rule_pass("recognise", Level.EXTENDED, (*activations.RULES, *channel_norms.RULES, *norms.RULES))
RECOGNISE_CELLS = rule_pass("recognise_cells", Level.EXTENDED, cells.cell_rules(most_rows=1))
STRENGTH = (*algebra.STRENGTH, *algebra.AFFINE, *activations.CLIPS, *scales.WEIGHTS_AT_RUN_TIME)
REDUCE_STRENGTH = rule_pass("reduce_strength", Level.EXTENDED, STRENGTH)
SPLIT_GEMM = rule_pass("split_gemm", Level.EXTENDED, (*products.RULES, *algebra.RULES))
DROP_DEFAULTS = rule_pass("drop_defaults", Level.BASIC, defaults.RULES)
JOIN_CHAINS = rule_pass("join_chains", Level.EXTENDED, (*algebra.AFFINE, *activations.CLIPS))
JOIN_GEMM = rule_pass("join_gemm", Level.EXTENDED, gemm.RULES)
FOLD_INTO_WEIGHTS = rule_pass("fold_into_weights", Level.EXTENDED, (*weights.RULES, *algebra.RULES))
ORDER_PRODUCTS = rule_pass("order_products", Level.EXTENDED, products.CHAINS)
SINK_RESHAPES = rule_pass("sink_reshapes", Level.EXTENDED, (*row_views.RULES, *views.RULES, *noops.RULES))
FUSE_ATTENTION = rule_pass("fuse_attention", Level.EXTENDED, attention.RULES)

PASSES: tuple[Pass, ...] = (
    DROP_DEAD,  # first, so that nothing below spends time on what no output needs
    SHARE_SYMBOLS,  # if asked for: sizes that are one are known to be, from here on
    FOLD_SHAPES,  # shape arithmetic becomes constants, which the rules below read
    RESOLVE_IF,  # conditions are constants now
    SIMPLIFY,  # no-ops and views away: patterns below see neighbours
    EQUAL_RANKS,  # before folding, which tells what follows from ranks
    SHARE_COMMON,  # exporters repeat subexpressions; a pattern that asks for one value sees one
    REPLACE_EINSUM,  # all that is about products looks for MatMul
    SINK_REPEATS,  # before any fusion: what is repeated is computed once, and masks reach attention as they are
    UNSIGNED_BYTES,  # before the next one, which moves operators between what is quantized and what reads it
    INTEGER_PRODUCTS,  # while quantized weights are integers
    FOLD_CONSTANTS,  # what the rules made constant
    LOOK_UP_BYTES,  # operators are as the model has them, and zero points constants
    FOLD_QUANTIZATION,  # the scales of products are constants now
    FOLD_SCALES,  # BatchNorm into the convolution before it, while it is still one node
    SPLIT_BATCHNORM,  # the rest is a product and a sum, which fuse with anything
    FOLD_SCALES,  # a product or sum that now stands behind a convolution
    RECOGNISE,  # before strength reduction rewrites the powers that the patterns look for
    RECOGNISE_CELLS,  # as early as norms: gates are sums of Gemms and slices of them
    JOIN_STEPS,  # the steps that are now one node each
    REDUCE_STRENGTH,
    SPLIT_GEMM,  # after BatchNorm was folded into it; a constant operand is turned here
    FOLD_INTO_WEIGHTS,  # constants around products: needs MatMul, and the Mul and Add of a BatchNorm behind it
    ORDER_PRODUCTS,  # behind the last one, which makes neighbours of products
    SINK_RESHAPES,  # Reshape, MatMul, Reshape: needs MatMul, which Gemm has just become
    FUSE_ATTENTION,  # needs the scale and mask still apart from the products
    MERGE_PRODUCTS,  # if asked for: behind attention, whose products are apart
    MERGE_PACKED_PRODUCTS,  # behind attention too
    SINK_TRANSPOSES,  # pairs meet and cancel
    CHANNELS_LAST,  # last of the structural ones: it moves axes that patterns above count on
    SIMPLIFY,  # Transposes that met; views they left
    FOLD_CONSTANTS,  # constants that the layout has turned
    SHARE_COMMON,
    DROP_DEAD,
)
"""Tensors to tensors: for any backend. After them a build runs ``choose_implementation`` of ``lowering``, which needs
the target."""

FUSED_PASSES: tuple[Pass, ...] = (
    SHAPE_PROGRAM,  # what runs once, and which sizes are asked for when: partition asks whether anything is left to run
    PARTITION,  # native or host, which fusion must know
    FUSE,  # the groups
    OWN_OUTPUTS,  # before placement: what an output owns lies in nothing else
    UPDATE_IN_PLACE,  # after own_outputs, whose copies read inputs; before placement, as above
    PLACE_CONCATS,  # before borders: what is joined may be bordered as a whole, but no part of it
    PLACE_BORDERS,
)
"""Nodes to groups, values to places: for the backend that lowers the graph. All run at every level."""

FILE_PASSES: tuple[Pass, ...] = (DROP_DEFAULTS, JOIN_CHAINS, JOIN_GEMM, CANCEL_VIEWS, SPLIT_SLICES)
"""For graphs that become files: nodes are joined that kernels would rather have apart. No build runs them."""


class Instrument(Protocol):
    """Watches a run."""

    def before(self, step: int, pass_: Pass, graph: Graph) -> None: ...

    def after(self, step: int, pass_: Pass, graph: Graph, log: PassLog) -> None: ...


@dataclass(frozen=True, slots=True)
class PassRecord:
    """What one pass did."""

    name: str
    nodes_before: int
    nodes_after: int
    log: PassLog


@dataclass(frozen=True, slots=True)
class PassReport:
    """What a run did, pass by pass."""

    records: tuple[PassRecord, ...]

    def explain(self) -> str:
        """Every pass with what fired, and what was refused and why (a refusal that comes again is shown once)."""
        lines = []
        seen: set[str] = set()
        for r in self.records:
            lines.append(f"{r.name}: {r.nodes_before} -> {r.nodes_after} nodes")
            for line in iter_lines(r.log):
                if line not in seen:
                    lines.append(f"  {line}")
                if line.startswith("refused"):
                    seen.add(line)
        return "\n".join(lines)

    def __add__(self, other: PassReport) -> PassReport:
        return PassReport((*self.records, *other.records))

    def fired(self, what: str) -> int:
        """How often the rule or pass ``what`` fired."""
        return sum(f.what == what for r in self.records for f in r.log.fired)

    def refusals(self, what: str) -> tuple[str, ...]:
        """The reasons for which the rule or pass ``what`` was refused."""
        return tuple(f.reason for r in self.records for f in r.log.refused if f.what == what)


def run_passes(
    graph: Graph,
    opt_level: str | Level = Level.ALL,
    disabled: str | Sequence[str] = (),
    instruments: Sequence[Instrument] = (),
    enabled: str | Sequence[str] = (),
    passes: Sequence[Pass] = PASSES,
    costs: Costs = GENERIC,
    backend: Backend | None = None,
    first: int = 0,
    refuses: Callable[[Node], str | None] | None = None,
) -> tuple[Graph, PassReport]:
    """The graph after every pass of ``opt_level``, and the report.

    ``disabled`` and ``enabled`` name passes or rules; approximate rules and optional passes run only when enabled.
    ``costs``, ``backend``, ``refuses``: see :class:`PassContext`. ``first``: the step that instruments are told for the
    first pass.

    Raises InputError for a name that is neither, and for a disabled pass that no build does without.
    """
    level = Level.of(opt_level)
    known = {n for p in (*passes, *PASSES, *FUSED_PASSES, *FILE_PASSES) for n in (p.name, *p.rules)}
    disabled = require_names("disabled_pass", disabled, known, "the name of a pass or rule")
    enabled = require_names("enabled_pass", enabled, known, "the name of a pass or rule")
    if needed := [p.name for p in FUSED_PASSES if p.required and p.name in disabled]:
        raise InputError(f"disabled_pass: expected a pass that a build can do without, got {needed[0]!r}")
    watching = instruments if isinstance(instruments, list | tuple) else (None,)
    if not all(hasattr(i, "before") and hasattr(i, "after") for i in watching):
        raise InputError(f"instruments: expected a list of objects with before and after, got {shown(instruments)}")
    records = []
    names = NameSupply(graph)
    for step, p in enumerate(passes, first):
        if p.level > level or p.name in disabled or (p.optional and p.name not in enabled):
            continue
        ctx = PassContext(
            names, PassLog(), frozenset(disabled), frozenset(enabled), costs=costs, backend=backend, refuses=refuses
        )
        for i in instruments:
            i.before(step, p, graph)
        new = p.apply(graph, ctx)
        records.append(PassRecord(p.name, count_nodes(graph), count_nodes(new), ctx.log))
        graph = new
        for i in instruments:
            i.after(step, p, graph, ctx.log)
    return graph, PassReport(tuple(records))


def fuse_graph(
    graph: Graph, backend: Backend, disabled: str | Sequence[str] = (), instruments: Sequence[Instrument] = ()
) -> tuple[Graph, PassReport]:
    """The fused graph of one that has been through :func:`run_passes`, and the report. Raises what partition raises.

    ``disabled``: names of any passes and rules, which were checked before; those of other passes mean nothing here.
    """
    own = {n for p in FUSED_PASSES for n in (p.name, *p.rules)}
    disabled = tuple(d for d in require_names("disabled_pass", disabled) if d in own)
    return run_passes(graph, Level.NONE, disabled, instruments, (), FUSED_PASSES, backend.costs, backend, len(PASSES))


def count_nodes(graph: Graph) -> int:
    """Nodes of the graph and its subgraphs."""
    return sum(len(g.nodes) for g in walk_graphs(graph))


@dataclass(slots=True)
class Timing:
    """Seconds a pass, in order of the run."""

    clock: Callable[[], float] = time.perf_counter
    seconds: list[tuple[str, float]] = field(default_factory=list)
    _started: float = 0.0

    def before(self, step: int, pass_: Pass, graph: Graph) -> None:
        self._started = self.clock()

    def after(self, step: int, pass_: Pass, graph: Graph, log: PassLog) -> None:
        self.seconds.append((pass_.name, self.clock() - self._started))


@dataclass(frozen=True, slots=True)
class Dump:
    """The graph as text after each pass that changed it, in ``directory``: ``03_simplify.txt``."""

    directory: Path

    def before(self, step: int, pass_: Pass, graph: Graph) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)

    def after(self, step: int, pass_: Pass, graph: Graph, log: PassLog) -> None:
        name = re.sub(r"[^\w.-]", "_", pass_.name)
        write_file(self.directory / f"{step:02d}_{name}.txt", TEXT, marked(print_graph(graph)))


@dataclass(frozen=True, slots=True)
class Verify:
    """The verifier after each pass; with ``types``, inference must agree on rank and element type too."""

    types: bool = False

    def before(self, step: int, pass_: Pass, graph: Graph) -> None:
        return None

    def after(self, step: int, pass_: Pass, graph: Graph, log: PassLog) -> None:
        try:
            verify_graph(graph)
            if self.types:
                require_same_types(graph, infer_graph(graph))
        except VerifyError as e:
            raise VerifyError(f"after pass {pass_.name}: {e}") from e


def require_same_types(graph: Graph, inferred: Graph) -> None:
    """Raises VerifyError if a value's recorded type contradicts the inferred one."""
    for name, v in inferred.values.items():
        have = graph.values.get(name)
        if have is None:
            raise VerifyError(f"value '{name}' has no type")
        a, b = str(have.type).split("[")[0], str(v.type).split("[")[0]
        if a != b:
            raise VerifyError(f"value '{name}': recorded {have.type}, inferred {v.type}")
