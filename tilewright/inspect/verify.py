"""Is the machine code right, and if not, where does it go wrong? A comparison of values all through the network.

Three references, each for another suspect:

- ``lowered``: the interpreter on the graph after passes. A difference is the fault of lowering, schedules or codegen.
- ``imported``: the interpreter on the graph as imported. A difference that ``lowered`` does not have is a pass's fault.
- ``onnxruntime``: with its optimisation off, if it is installed. A difference that only it has is the importer's.

Values are compared where kernels meet: at the boundaries of fusion groups, so that what is verified is what runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.index_ranges import OutOfRange
from tilewright.core.options import require_names, require_number
from tilewright.graph_ir.fusion import group_graph
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.inspect.ort import OnnxRuntimeError, open_session, translated_errors
from tilewright.kernels.build import build_kernels
from tilewright.kernels.link import link_plan
from tilewright.lowering.plan import lower_graph_to_plan, require_bound
from tilewright.lowering.workspaces import with_scheduled
from tilewright.machine.target import Target
from tilewright.runtime.model import BuildInfo, CompiledModel
from tilewright.runtime.resources.thread_pool import PoolHandle

REFERENCES = ("lowered", "imported", "onnxruntime")


@dataclass(frozen=True, slots=True)
class Layer:
    """One value: where it is made, and its error against each reference that knows it.

    An error is the largest difference in units of the reference's standard deviation; infinite where element type,
    shape or the places of NaN and infinity differ; for other than floats the largest difference.
    """

    value: str
    made_by: str
    type: str
    errors: Mapping[str, float]

    @property
    def worst(self) -> float:
        return max(self.errors.values(), default=0.0)


@dataclass(frozen=True, slots=True)
class Verification:
    """All layers in the order of the plan. ``notes``: a reference that could not be used, and why."""

    layers: tuple[Layer, ...]
    tolerance: float
    notes: tuple[str, ...] = ()

    @property
    def first_bad(self) -> Layer | None:
        return next((x for x in self.layers if not x.worst <= self.tolerance), None)

    @property
    def worst(self) -> Layer | None:
        return max(self.layers, key=lambda x: x.worst, default=None)

    @property
    def suspect(self) -> str:
        """Which part of the compiler the first bad layer accuses."""
        bad = self.first_bad
        if bad is None:
            return "nothing"
        if not bad.errors.get("lowered", 0.0) <= self.tolerance:
            return "lowering, schedule or code generation (wrong against the interpreter on the graph after passes)"
        if not bad.errors.get("imported", 0.0) <= self.tolerance:
            return "a graph pass (right against the graph after passes, wrong against the imported one)"
        return "the importer or an operator's definition (wrong against onnxruntime only)"


def verify_layers(
    model: str | Path | onnx.ModelProto, imported: Graph, optimized: Graph, target: Target,
    feed: Mapping[str, np.ndarray], references: Sequence[str] = REFERENCES, tolerance: float = 1e-4,
    cache: ObjectCache | None = None, out_of_range: OutOfRange = "error",
) -> Verification:  # fmt: skip
    """Compare the boundary values of ``optimized``, run natively, with the references. Raises what a build raises."""
    references = require_names("references", references, REFERENCES, f"names among {', '.join(REFERENCES)}")
    tolerance = require_number("tolerance", tolerance)
    makers = _boundaries(optimized)
    names = tuple(dict.fromkeys((*makers, *optimized.outputs)))
    got = _run_natively(optimized.replace(outputs=names), target, feed, cache, out_of_range)
    wanted: dict[str, Mapping[str, object]] = {}
    if "lowered" in references:
        wanted["lowered"] = interpret(optimized, feed, names, out_of_range)
    if "imported" in references:
        known = {o for n in imported.nodes for o in n.outputs}
        wanted["imported"] = interpret(imported, feed, [n for n in names if n in known], out_of_range)
    notes: tuple[str, ...] = ()
    if "onnxruntime" in references:
        try:
            wanted["onnxruntime"] = _run_onnxruntime(model, target.threads, feed, names)
        except OnnxRuntimeError as e:
            notes = (f"not compared with onnxruntime, which refuses the model: {e}",)
    layers = []
    for name in names:
        errors = {r: difference(got[name], values[name]) for r, values in wanted.items() if name in values}
        layers.append(Layer(name, makers.get(name, "output"), str(optimized.values[name].type), errors))
    return Verification(tuple(layers), tolerance, notes)


def _boundaries(graph: Graph) -> dict[str, str]:
    """Tensor values that leave a group in which data moves -> the operators of the group."""
    out = {}
    for group in group_graph(graph):
        if group.kind is not PatternKind.VIEW:
            for name in group.outputs:
                if name in graph.values and isinstance(graph.values[name].type, TensorType):
                    out[name] = "+".join(n.op for n in group.nodes)
    return out


def _run_natively(
    graph: Graph, target: Target, feed: Mapping[str, np.ndarray], cache: ObjectCache | None,
    out_of_range: OutOfRange,
) -> dict[str, np.ndarray]:  # fmt: skip
    lowered = lower_graph_to_plan(graph, target, out_of_range=out_of_range)
    kernels = build_kernels(lowered.funcs, target, cache)
    facts = {k.name: k.facts() for k in kernels.values()}
    plan = with_scheduled(lowered.plan, facts)
    require_bound(plan)
    code, library = link_plan(plan, kernels, target, cache)
    info = BuildInfo(lambda: "", {}, output_names=graph.outputs)
    return CompiledModel(plan, code, PoolHandle(target.threads, thread_pool_code()), info, library).run(feed)


def _run_onnxruntime(
    model: str | Path | onnx.ModelProto, threads: int, feed: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, object]:
    session = open_session(model, threads, optimize=False, extra_outputs=names)
    if session is None:
        return {}
    known = [o.name for o in session.get_outputs()]
    with translated_errors():
        return dict(zip(known, session.run(known, dict(feed)), strict=True))


def difference(got: object, want: object) -> float:
    """The error of ``got``, as :class:`Layer` defines it."""
    if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray | np.generic):
        return 0.0 if type(got) is type(want) and repr(got) == repr(want) else float("inf")
    want = np.asarray(want)
    if got.dtype != want.dtype or got.shape != want.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    if got.dtype.kind in "OSUT":
        return 0.0 if bool(np.all(got == want)) else float("inf")
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    if not np.array_equal(np.isnan(a), np.isnan(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    if not finite.any():
        return 0.0
    worst = float(np.abs(a[finite] - b[finite]).max())
    return worst if got.dtype.kind in "iub" else worst / _scale(b[finite])


def _scale(values: np.ndarray) -> float:
    """The spread of the values; for (nearly) constant ones their size."""
    size = float(np.abs(values).max())
    spread = float(values.std())
    return spread if spread > 1e-6 * size else size or 1.0
