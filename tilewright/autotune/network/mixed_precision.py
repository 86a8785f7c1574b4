"""The nodes that are reduced to bfloat16 where all of them together are too far off. Others take operands of two
bfloat16 numbers (``bf16x3``), where that is faster than float32: what it is off by hardly counts beside theirs.

Each node has a gain, the difference of its kernel's times on bfloat16 and else, and an error, that of the network's
results with it alone reduced. Errors of rounding add up like independent ones, in squares, so nodes are taken by gain
for their squared error, as many as the budget allows: by the error of the network that is really built so.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.autotune.lookup.apply_best import choose_schedules
from tilewright.autotune.lookup.precision import MIXED
from tilewright.autotune.lookup.workloads import kernel_of_node, kernel_steps
from tilewright.autotune.network.end_to_end import assemble, kernel_times
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.precision_switches import with_switches
from tilewright.codegen.cache import ObjectCache
from tilewright.compile import ModelLike, compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.bisection import longest_within, taken_within
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Level
from tilewright.graph_ir.pipeline import run_passes
from tilewright.lowering.choose_implementation import PASS as CHOOSE
from tilewright.lowering.choose_implementation import Wanted, choose_implementation
from tilewright.lowering.plan import LoweredGroups, LoweredModel, fuse_and_lower
from tilewright.lowering.precision.choose_precision import Precisions
from tilewright.machine.target import Target
from tilewright.options import Broadcasting, CompileOptions
from tilewright.runtime.model import CompiledModel
from tilewright.schedule.default import before_default

Feed = Mapping[str, np.ndarray]
Results = Mapping[str, object]

_MARGIN = 0.8
"""The share of the budget that is used up on the inputs that nodes are chosen by: others may be worse."""
_NEGLIGIBLE = 0.05
"""Nodes that together gain at most this share of all gains stay in float32, unmeasured."""

_FEW = 2
"""Inputs on which nodes are looked at one by one."""
_LEAST = 1e-12
"""An error that is none."""
_ROUNDS = 3
"""So often nodes are looked for that fit into what is left of the budget."""


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """The network in a ``precision`` with default schedules. ``graph``: after its passes."""

    precision: str
    graph: Graph
    lowered: LoweredModel
    model: CompiledModel


class Builds:
    """Builds of one model that differ in precision; what they have in common is lowered and compiled once."""

    def __init__(self, model: ModelLike, o: TuneOptions, target: Target, broadcasting: Broadcasting = "lazy") -> None:
        keywords = dataclasses.replace(o, precision="fp32").build_keywords()
        self._target, self._wanted = target, Wanted.of(o.implementations, broadcasting != "only", o.operators)
        self._graph: Graph = compile(model, stop_after="import", progress=False, **keywords)
        more = {"input_shapes": None, "progress": False, "broadcasting": broadcasting}
        self._options = CompileOptions.of("tune", None, {**keywords, **more})
        self._cache = ObjectCache.open() if o.cache else None
        self._known = LoweredGroups()

    def build(self, precision: Precisions) -> Build:
        """The network in a precision, or in one for each node."""
        options = dataclasses.replace(self._options, precision=precision)
        name = precision if isinstance(precision, str) else MIXED
        return self._built(name, compile(self._graph, options, stop_after="passes"), self._known)

    def reduced(self, nodes: Collection[str], split: Collection[str] = ()) -> Build:
        """The network with these nodes on bfloat16, those of ``split`` besides on two such numbers for each, and the
        others in float32."""
        return self.build({**dict.fromkeys(split, "bf16x3"), **dict.fromkeys(nodes, "bf16")})

    def switched(self, nodes: Collection[str]) -> Callable[[Collection[str], Feed], Results]:
        """What runs the network with some of these nodes reduced, without another build."""
        o = self._options
        without = dataclasses.replace(o, disabled_pass=(*o.disabled_pass, CHOOSE), implementations=None)
        found = with_switches(compile(self._graph, without, stop_after="passes"), nodes)
        choose = choose_implementation(self._target, Level.of(o.opt_level), self._wanted)
        graph, _ = run_passes(
            found.graph, o.opt_level, o.disabled_pass, (), o.enabled_pass, (choose,), self._target.costs
        )
        model = self._built(MIXED, graph, LoweredGroups()).model
        return lambda reduced, feed: model.run({**feed, **found.settings(reduced)})

    def _built(self, precision: str, graph: Graph, known: LoweredGroups) -> Build:
        o, target = self._options, self._target
        lowered = fuse_and_lower(
            graph, target, o.disabled_pass, out_of_range=o.out_of_range, table=self._wanted.table, known=known
        )
        chosen = choose_schedules(lowered, target, None, rules=before_default(o.schedule_rules))
        return Build(precision, graph, lowered, assemble(lowered, target, chosen, self._cache))


Runner = Callable[[Feed], Results]


class Errors:
    """How far networks are off from float32, and whether that is within the budget ``most``: used up to a margin on the
    inputs that nodes are chosen by, and kept on those that are held back: every other one."""

    def __init__(self, own: Runner, feeds: Sequence[Feed], most: float) -> None:
        self.most, self.margin = most, _MARGIN * most
        expected = [(f, own(f)) for f in feeds]
        self._chosen_by, self._held_back = expected[::2], expected[1::2]

    def of(self, run: Runner) -> float:
        """On all inputs, the worst."""
        return max(self.first(run), _worst(run, self._held_back))

    def first(self, run: Runner) -> float:
        """On what nodes are chosen by."""
        return _worst(run, self._chosen_by)

    def on_few(self, run: Runner) -> float:
        """On the first few of those."""
        return _worst(run, self._chosen_by[:_FEW])

    def are_within(self, run: Runner) -> bool:
        """On what nodes are chosen by, with the margin, and on what was held back."""
        return self.first(run) <= self.margin and _worst(run, self._held_back) <= self.most


def _worst(run: Runner, expected: Sequence[tuple[Feed, Results]]) -> float:
    return max((apart(results, run(f)) for f, results in expected), default=0.0)


def apart(wanted: Results, got: Results) -> float:
    """The root mean square by which floating-point results differ, as a share of that of the wanted ones; the worst of
    all. Infinity where only one of two is finite, and where other results differ at all."""
    worst = 0.0
    for name, x in wanted.items():
        if not isinstance(x, np.ndarray) or x.dtype.kind != "f":
            if not np.array_equal(np.asarray(x), np.asarray(got[name])):
                return math.inf
            continue
        a, b = x.astype(np.float64), np.asarray(got[name], np.float64)
        finite = np.isfinite(a)
        if not np.array_equal(finite, np.isfinite(b)):
            return math.inf
        scale = float(np.mean(a[finite] ** 2)) if finite.any() else 0.0
        off = float(np.mean((a[finite] - b[finite]) ** 2)) if finite.any() else 0.0
        worst = max(worst, math.sqrt(off / scale) if scale else (0.0 if off == 0 else math.inf))
    return worst


def node_seconds(own: Build, other: Build, nodes: Sequence[str], feed: Feed) -> dict[str, tuple[float, float]]:
    """Seconds of each node's kernel in both builds, measured in turns; nodes of one kernel share them. Without those
    that a profile does not show: in bodies of loops and branches."""
    first, (second,) = kernel_times(own.model, [other.model], feed)
    shares = [_shares(b.lowered, seconds, nodes) for b, seconds in ((own, first), (other, second))]
    return {n: (shares[0][n], shares[1][n]) for n in nodes if n in shares[0] and n in shares[1]}


def _shares(lowered: LoweredModel, seconds: Mapping[str, float], nodes: Sequence[str]) -> dict[str, float]:
    kernels = {n: k for n, k in kernel_of_node(lowered).items() if n in nodes and k in seconds}
    calls = Counter(s.kernel for s in kernel_steps(lowered.plan))
    among = Counter(kernels.values())
    return {n: seconds[k] * calls[k] / among[k] for n, k in kernels.items()}


def worthwhile(gains: Mapping[str, float]) -> list[str]:
    """The nodes that gain, the most first, without those at the end that together gain next to nothing."""
    ordered = sorted((n for n, g in gains.items() if g > 0), key=lambda n: -gains[n])
    most = (1 - _NEGLIGIBLE) * sum(gains[n] for n in ordered)
    out: list[str] = []
    for n in ordered:
        if sum(gains[x] for x in out) >= most:
            break
        out.append(n)
    return out


def nodes_within(
    builds: Builds, errors: Errors, gains: Mapping[str, float], split: Collection[str] = ()
) -> tuple[list[str], dict[str, float]]:
    """The nodes to reduce, and the error of each node alone, where it was asked for. ``gains``: seconds, by node.
    ``split``: nodes that are of two bfloat16 numbers otherwise."""
    hopeful = worthwhile(gains)
    if not hopeful:
        return [], {}
    run = builds.switched(hopeful)
    alone = {n: errors.on_few(partial(run, [n])) for n in hopeful}
    ordered = sorted(hopeful, key=lambda n: -gains[n] / max(alone[n], _LEAST) ** 2)
    taken = taken_within(ordered, alone, errors.margin, lambda some: errors.first(partial(run, some)), _ROUNDS)

    def is_within(n: int) -> bool:
        return errors.are_within(builds.reduced(taken[:n], split).model.run)

    return taken[: longest_within(len(taken), is_within)], alone
