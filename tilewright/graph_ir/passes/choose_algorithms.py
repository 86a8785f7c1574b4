"""Convolutions that Winograd's algorithms compute with fewer products get them, where the rounding allows it.

Equation: ``Conv(x, w) ~ A^T [(G w G^T) * (B^T x B)] A`` on tiles of the output, exact in real arithmetic. The matrices
have entries other than 0 and 1, so that float32 results lose up to two digits more than those of the definition. How
many is estimated for the weights at hand; an algorithm that loses more than ``LIMIT`` is refused.

Products of matrices have an algorithm with fewer products too, Strassen's. Its weights take 1.75 times the memory, so
that it is never chosen here: it is an option for a tuner, which sees what it brings.

Symbolic sizes count as those of one image of ``_IMAGE`` rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tilewright.core import dtypes, strassen, winograd
from tilewright.core.winograd import WINOGRAD, Winograd
from tilewright.graph_ir.ir import Constant, Graph, Node, Shape
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.rules.base import int_attr, ints_attr, tensor_shape
from tilewright.machine.costs import GENERIC, Costs

DIRECT = "direct"
LIMIT = 1e-4
"""The largest error estimate that is accepted: of a channel's root mean square."""

_MIN_CHANNELS = 8
_IMAGE = 224

_FEWEST_ROWS, _WHOLE = 96, 64
"""Rows, and a divisor of the columns: two panels of the widest vectors."""


def choose_algorithms(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with the algorithm on each convolution that should be fastest and is exact enough."""
    errors: dict[tuple[str, str], float] = {}
    chosen: dict[str, str] = {}
    used: dict[str, float] = {}
    for node in graph.nodes:
        work = _eligible(graph, node, ctx)
        if work is None:
            continue
        for name in work.by_time():
            if _is_disabled(name, ctx.disabled):
                continue
            error = _error(work, node, name, errors)
            if error <= LIMIT:
                ctx.log.fire(name, node.name)
                chosen[node.name], used[node.name] = name, error
                break
            ctx.log.refuse(name, node.name, f"error estimate {error:.1e}, limit {LIMIT:.0e}")
    if not used:
        return graph
    worst = max(used, key=lambda n: used[n])
    ctx.log.note(
        f"error estimate of the {len(used)} convolutions: at most {used[worst]:.1e} of a channel's root mean square "
        f"({worst}), limit {LIMIT:.0e}"
    )
    return with_algorithms(graph, chosen)


def algorithm_of(node: Node) -> str:
    """The algorithm that a node has."""
    return str(node.attr("algorithm", DIRECT))


def algorithms_of(
    graph: Graph, disabled: Collection[str] = (), costs: Costs = GENERIC
) -> dict[str, tuple[str, ...]]:
    """The algorithms that each node which has a choice may use, by name; ``disabled`` and ``costs`` as in
    :func:`run_passes`."""
    ctx = PassContext(NameSupply(graph), costs=costs)
    errors: dict[tuple[str, str], float] = {}
    out: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        work = _eligible(graph, node, ctx)
        if work is None or not work.is_worth_trying():
            continue
        names = [
            n for n in work.algorithms() if not _is_disabled(n, disabled) and _error(work, node, n, errors) <= LIMIT
        ]
        if names:
            out[node.name] = (DIRECT, *names)
    return out


def with_algorithms(graph: Graph, algorithms: Mapping[str, str]) -> Graph:
    """The graph with the given algorithms, by node name."""
    nodes = [n.with_attrs(algorithm=algorithms[n.name]) if n.name in algorithms else n for n in graph.nodes]
    return graph.replace(nodes=tuple(nodes))


def _is_disabled(name: str, disabled: Collection[str]) -> bool:
    family = "winograd" if name in WINOGRAD else name
    return not {name, family, "choose_algorithms"}.isdisjoint(disabled)


class _Work(Protocol):
    """A node with a choice."""

    def is_worth_trying(self) -> bool:
        """True unless it is small."""

    def algorithms(self) -> Collection[str]:
        """Those that can compute it, the direct one aside."""

    def by_time(self) -> list[str]:
        """Those that should be used instead of the direct one, best first."""

    def error(self, name: str) -> float:
        """The estimated error of one, in units of a channel's root mean square."""


def _error(work: _Work, node: Node, name: str, known: dict[tuple[str, str], float]) -> float:
    """The estimate for the node's weight."""
    key = (name, node.inputs[1])
    if key not in known:
        with np.errstate(over="ignore", invalid="ignore"):  # an error that is not finite is refused by the caller
            known[key] = work.error(name)
    return known[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Conv:
    """A convolution with a choice: its weight and stride, and the result's batch, height and width."""

    costs: Costs
    weight: Constant
    stride: int
    batch: int
    height: int
    width: int

    def is_worth_trying(self) -> bool:
        """True unless it is small."""
        oc, ic = self.weight.shape[:2]
        products = 9 * ic * oc * self.batch * self.height * self.width
        return bool(min(ic, oc) >= _MIN_CHANNELS and products >= self.costs.transforms)

    def algorithms(self) -> dict[str, Winograd]:
        """Those of its stride."""
        return {name: a for name, a in WINOGRAD.items() if a.stride == self.stride}

    def error(self, name: str) -> float:
        return winograd.estimated_error(self.weight.array, WINOGRAD[name])

    def by_time(self) -> list[str]:
        """Algorithms that should be faster than the direct one, fastest first."""
        if not self.is_worth_trying():
            return []
        oc, ic = self.weight.shape[:2]
        pixels = self.batch * self.height * self.width
        direct = 9 * ic * oc * (pixels + self.costs.weight_load)
        times = {name: self._time(a) for name, a in self.algorithms().items()}
        return sorted((name for name, t in times.items() if t < direct), key=lambda name: times[name])

    def _time(self, a: Winograd) -> float:
        oc, ic = self.weight.shape[:2]
        tiles = self.batch * -(-self.height // a.tile) * -(-self.width // a.tile)
        products = ic * oc * (tiles + self.costs.weight_load)
        return float(a.patch**2 * (products + self.costs.transformed_element // a.stride * tiles * (ic + oc)))


@dataclass(frozen=True, slots=True, eq=False)
class _Product:
    """A product of ``rows`` rows with a constant matrix."""

    costs: Costs
    weight: Constant
    rows: int

    def is_worth_trying(self) -> bool:
        """True if an eighth of the products takes longer than the sums, and is not lost to reading larger weights."""
        depth, columns = self.weight.shape
        return self.rows >= _FEWEST_ROWS and depth * columns >= 8 * self.costs.quartered_element * (depth + columns)

    def algorithms(self) -> tuple[str, ...]:
        return ("strassen",)

    def by_time(self) -> list[str]:
        return []

    def error(self, name: str) -> float:
        return strassen.estimated_error(self.weight.array)


def _eligible(graph: Graph, node: Node, ctx: PassContext) -> _Work | None:
    """What there is to choose from; None where only the direct way is possible."""
    options = {"MatMul": _product, "Conv": _conv}.get(node.op) if node.domain in ("", "ai.onnx") else None
    if options is None or graph.values[node.outputs[0]].dtype != dtypes.float32:
        return None
    return options(graph, node, ctx)


def _product(graph: Graph, node: Node, ctx: PassContext) -> _Product | None:
    w, shape = ctx.constant(graph, node.inputs[1]), tensor_shape(graph.values[node.inputs[0]])
    if w is None or len(w.shape) != 2 or w.shape[0] % 2 or w.shape[1] % _WHOLE or shape is None or len(shape) < 2:
        return None
    rows = [d.value() for d in shape[:-1]]
    return None if None in rows else _Product(ctx.costs, w, math.prod(n for n in rows if n is not None))


def _conv(graph: Graph, node: Node, ctx: PassContext) -> _Conv | None:
    if node.attr("data_layout") != "NHWC":
        return None
    ones = (int_attr(node, "group", 1), *(ints_attr(node, "dilations") or ()))
    strides = set(ints_attr(node, "strides") or (1,))
    w, y = ctx.constant(graph, node.inputs[1]), graph.values[node.outputs[0]]
    shape = tensor_shape(y)
    if w is None or w.shape[2:] != (3, 3) or set(ones) != {1} or len(strides) != 1 or shape is None or len(shape) != 4:
        return None
    sizes = _assumed(shape)
    return _Conv(ctx.costs, w, min(strides), *sizes) if sizes is not None else None


def _assumed(shape: Shape) -> tuple[int, int, int] | None:
    """Batch, height and width of a result, whose symbols stand for the batch or for sizes of the model's image; None
    where that has no value."""
    batch, *spatial = shape[:3]
    env = {v: _IMAGE for d in spatial for v in d.free_vars()} | dict.fromkeys(batch.free_vars(), 1)
    try:
        height, width = (max(0, d.evaluate(env)) for d in spatial)
        return batch.evaluate(env), height, width
    except ZeroDivisionError:
        return None


CHOOSE_ALGORITHMS = Pass(
    "choose_algorithms",
    Level.ALL,
    Exactness.REASSOCIATING,
    choose_algorithms,
    rules=("winograd", *WINOGRAD, "strassen"),
)
