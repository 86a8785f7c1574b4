"""Convolutions that Winograd's algorithms compute with fewer products get them, where the rounding allows it.

Equation: ``Conv(x, w) ~ A^T [(G w G^T) * (B^T x B)] A`` on tiles of the output, exact in real arithmetic. The matrices
have entries other than 0 and 1, so that float32 results lose up to two digits more than those of the definition. How
many is estimated for the weights at hand; an algorithm that loses more than ``LIMIT`` is refused.

Symbolic sizes count as those of one image of ``_IMAGE`` rows and columns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.winograd import WINOGRAD, Winograd, estimated_error
from tilewright.graph_ir.ir import Graph, Node, Shape
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.rules.base import int_attr, ints_attr, tensor_shape

DIRECT = "direct"
LIMIT = 1e-4
"""The largest error estimate that is accepted: of a channel's root mean square."""

_MIN_CHANNELS = 8
_MIN_MULTIPLIES = 2_500_000
"""Below this many products of the definition, the nests around the products cost what they save."""

_IMAGE = 224

_WEIGHT_LOAD = 20
_TRANSFORM = 12
"""Times in multiply-adds: a weight that comes from memory; both transforms, per element of a patch and channel (half of
it where the stride is two: about half of the elements are only copied)."""


def choose_algorithms(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with the algorithm on each convolution that should be fastest and is exact enough."""
    errors: dict[tuple[str, str], float] = {}
    chosen: dict[str, str] = {}
    used: dict[str, float] = {}
    for node in graph.nodes:
        conv = _eligible(graph, node, ctx)
        for name in conv.by_time() if conv is not None else ():
            if _is_disabled(name, ctx.disabled):
                continue
            error = _error(graph, ctx, node, name, errors)
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


def algorithms_of(graph: Graph, disabled: Collection[str] = ()) -> dict[str, tuple[str, ...]]:
    """The algorithms that each node which has a choice may use, by name; ``disabled`` as in :func:`run_passes`."""
    ctx = PassContext.for_graph(graph)
    errors: dict[tuple[str, str], float] = {}
    out: dict[str, tuple[str, ...]] = {}
    for node in graph.nodes:
        conv = _eligible(graph, node, ctx)
        if conv is None or not conv.is_worth_trying():
            continue
        names = [
            n for n in conv.algorithms()
            if not _is_disabled(n, disabled) and _error(graph, ctx, node, n, errors) <= LIMIT
        ]  # fmt: skip
        if names:
            out[node.name] = (DIRECT, *names)
    return out


def with_algorithms(graph: Graph, algorithms: Mapping[str, str]) -> Graph:
    """The graph with the given algorithms, by node name."""
    nodes = [n.with_attrs(algorithm=algorithms[n.name]) if n.name in algorithms else n for n in graph.nodes]
    return graph.replace(nodes=tuple(nodes))


def _is_disabled(name: str, disabled: Collection[str]) -> bool:
    return not {name, "winograd", "choose_algorithms"}.isdisjoint(disabled)


def _error(
    graph: Graph, ctx: PassContext, node: Node, name: str, known: dict[tuple[str, str], float]
) -> float:
    """The estimate for the node's weight."""
    key = (name, node.inputs[1])
    if key not in known:
        weight = ctx.array(graph, node.inputs[1])
        with np.errstate(over="ignore", invalid="ignore"):  # an error that is not finite is refused by the caller
            known[key] = math.inf if weight is None else estimated_error(weight, WINOGRAD[name])
    return known[key]


@dataclass(frozen=True, slots=True, eq=False)
class _Conv:
    """A convolution with a choice: its weight and stride, and the result's batch, height and width."""

    weight: np.ndarray
    stride: int
    batch: int
    height: int
    width: int

    def is_worth_trying(self) -> bool:
        """True unless it is small."""
        oc, ic = self.weight.shape[:2]
        products = 9 * ic * oc * self.batch * self.height * self.width
        return bool(min(ic, oc) >= _MIN_CHANNELS and products >= _MIN_MULTIPLIES)

    def algorithms(self) -> dict[str, Winograd]:
        """Those of its stride."""
        return {name: a for name, a in WINOGRAD.items() if a.stride == self.stride}

    def by_time(self) -> list[str]:
        """Algorithms that should be faster than the direct one, fastest first."""
        if not self.is_worth_trying():
            return []
        oc, ic = self.weight.shape[:2]
        pixels = self.batch * self.height * self.width
        direct = 9 * ic * oc * (pixels + _WEIGHT_LOAD)
        times = {name: self._time(a) for name, a in self.algorithms().items()}
        return sorted((name for name, t in times.items() if t < direct), key=lambda name: times[name])

    def _time(self, a: Winograd) -> float:
        oc, ic = self.weight.shape[:2]
        tiles = self.batch * -(-self.height // a.tile) * -(-self.width // a.tile)
        products = ic * oc * (tiles + _WEIGHT_LOAD)
        return float(a.patch**2 * (products + _TRANSFORM // a.stride * tiles * (ic + oc)))


def _eligible(graph: Graph, node: Node, ctx: PassContext) -> _Conv | None:
    """What there is to choose from; None where only the direct way is possible."""
    if node.op != "Conv" or node.domain not in ("", "ai.onnx") or node.attr("data_layout") != "NHWC":
        return None
    ones = (int_attr(node, "group", 1), *(ints_attr(node, "dilations") or ()))
    strides = set(ints_attr(node, "strides") or (1,))
    w, y = ctx.array(graph, node.inputs[1]), graph.values[node.outputs[0]]
    shape = tensor_shape(y)
    if w is None or w.shape[2:] != (3, 3) or set(ones) != {1} or len(strides) != 1 or shape is None or len(shape) != 4:
        return None
    sizes = _assumed(shape)
    return _Conv(w, min(strides), *sizes) if sizes is not None and y.dtype == dtypes.float32 else None


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
    "choose_algorithms", Level.ALL, Exactness.REASSOCIATING, choose_algorithms, rules=("winograd", *WINOGRAD)
)
