"""Convolutions that Winograd's algorithms compute with fewer products get them, where the rounding allows it.

Equation: ``Conv(x, w) ~ A^T [(G w G^T) * (B^T x B)] A`` on tiles of the output, exact in real arithmetic. The matrices
have entries other than 0 and 1, so that float32 results lose up to two digits more than those of the definition. How
many is estimated for the weights at hand; an algorithm that loses more than ``LIMIT`` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.winograd import WINOGRAD, Winograd, estimated_error
from tilewright.graph_ir.ir import Graph, Node
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.rules.base import fixed_shape, int_attr, ints_attr, tensor_shape

DIRECT = "direct"
LIMIT = 1e-4
"""The largest error estimate that is accepted: of a channel's root mean square."""

_MIN_CHANNELS = 8
_MIN_MULTIPLIES = 2_500_000
"""Below this many products of the definition, the nests around the products cost what they save."""

_WEIGHT_LOAD = 20
_TRANSFORM = 12
"""Times in multiply-adds: a weight that comes from memory; both transforms, per element of a patch and channel."""


def algorithm_pass(chosen: Mapping[str, str] | None = None) -> Pass:
    """The pass; ``chosen`` are decisions from elsewhere by node name, which stand in for the estimate of time.

    A choice that is impossible, forbidden or too inexact is refused like any other.
    """

    def run(graph: Graph, ctx: PassContext) -> Graph:
        return _choose(graph, ctx, chosen or {})

    return Pass("choose_algorithms", Level.ALL, Exactness.REASSOCIATING, run, rules=("winograd", *WINOGRAD))


def _choose(graph: Graph, ctx: PassContext, chosen: Mapping[str, str]) -> Graph:
    if "winograd" in ctx.disabled:
        return graph
    errors: dict[tuple[str, str], float] = {}
    used: dict[str, float] = {}
    nodes = []
    for node in graph.nodes:
        name, error = _algorithm(graph, ctx, node, chosen.get(node.name), errors)
        if name != DIRECT:
            ctx.log.fire(name, node.name)
            used[node.name] = error
            node = node.with_attrs(algorithm=name)
        nodes.append(node)
    if not used:
        return graph
    worst = max(used, key=lambda n: used[n])
    ctx.log.note(
        f"error estimate of the {len(used)} convolutions: at most {used[worst]:.1e} of a channel's root mean square "
        f"({worst}), limit {LIMIT:.0e}"
    )
    return graph.replace(nodes=tuple(nodes))


def _algorithm(
    graph: Graph, ctx: PassContext, node: Node, wish: str | None, errors: dict[tuple[str, str], float]
) -> tuple[str, float]:
    """The algorithm for a node, and its estimated error."""
    conv = _eligible(graph, ctx, node)
    if conv is None or wish == DIRECT:
        return DIRECT, 0.0
    for name in conv.by_time() if wish is None else [wish]:
        if name in ctx.disabled:
            continue
        key = (name, node.inputs[1])
        if key not in errors:
            with np.errstate(over="ignore", invalid="ignore"):  # an error that is not finite is refused below
                errors[key] = estimated_error(conv.weight, WINOGRAD[name])
        if errors[key] <= LIMIT:
            return name, errors[key]
        ctx.log.refuse(name, node.name, f"error estimate {errors[key]:.1e}, limit {LIMIT:.0e}")
    return DIRECT, 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Conv:
    """A convolution with a choice: its weight, and the result's batch, height and width."""

    weight: np.ndarray
    batch: int
    height: int
    width: int

    def by_time(self) -> list[str]:
        """Algorithms that should be faster than the direct one, fastest first."""
        oc, ic = self.weight.shape[:2]
        pixels = self.batch * self.height * self.width
        if min(ic, oc) < _MIN_CHANNELS or 9 * ic * oc * pixels < _MIN_MULTIPLIES:
            return []
        direct = 9 * ic * oc * (pixels + _WEIGHT_LOAD)
        times = {name: self._time(a) for name, a in WINOGRAD.items()}
        return sorted((name for name, t in times.items() if t < direct), key=lambda name: times[name])

    def _time(self, a: Winograd) -> float:
        oc, ic = self.weight.shape[:2]
        tiles = self.batch * -(-self.height // a.tile) * -(-self.width // a.tile)
        products = ic * oc * (tiles + _WEIGHT_LOAD)
        return float(a.patch**2 * (products + _TRANSFORM * tiles * (ic + oc)))


def _eligible(graph: Graph, ctx: PassContext, node: Node) -> _Conv | None:
    """What there is to choose from; None where only the direct way is possible."""
    if node.op != "Conv" or node.domain not in ("", "ai.onnx") or node.attr("data_layout") != "NHWC":
        return None
    ones = (int_attr(node, "group", 1), *(ints_attr(node, "strides") or ()), *(ints_attr(node, "dilations") or ()))
    w, y = ctx.array(graph, node.inputs[1]), graph.values[node.outputs[0]]
    x_shape, y_shape = fixed_shape(tensor_shape(graph.values[node.inputs[0]])), fixed_shape(tensor_shape(y))
    if w is None or w.shape[2:] != (3, 3) or set(ones) != {1} or x_shape is None or y_shape is None:
        return None
    return _Conv(w, *y_shape[:3]) if y.dtype == dtypes.float32 else None


CHOOSE_ALGORITHMS = algorithm_pass()
