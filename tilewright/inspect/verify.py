"""Is the machine code right, and if not, where does it go wrong? A comparison of values all through the network.

Three references, each for another suspect:

- ``lowered``: the interpreter on the fused graph, which knows neither places nor implementations. A difference is the
  fault of placement, an implementation, lowering, a schedule or codegen.
- ``imported``: the interpreter on the graph as imported. A difference that ``lowered`` does not have is a pass's fault.
- ``onnxruntime``: with its optimisation off, if it is installed. A difference that only it has is the importer's.

What is looked at is the plan that runs in production: the same groups, places, arena, records. It runs kernel by
kernel, and the values that a kernel gives are read where they lie, before the next one runs; so are values that others
were placed in, borders included, once somebody has read them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

from tilewright.autotune.lookup.apply_best import choose_schedules
from tilewright.autotune.records.database import Database
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.options import require_names, require_number
from tilewright.core.plan import CheckStep, ControlStep, HostStep, KernelStep, Step
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Group, TensorType, Value
from tilewright.graph_ir.kinds import RunsAs
from tilewright.inspect.ort import OnnxRuntimeError, open_session, translated_errors
from tilewright.kernels.build import build_kernels
from tilewright.kernels.link import finished_plan, link_plan
from tilewright.lowering.plan import LoweredModel
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
            return (
                "placement, an implementation, lowering, a schedule or code generation "
                "(wrong against the interpreter on the fused graph)"
            )
        if not bad.errors.get("imported", 0.0) <= self.tolerance:
            return "a graph pass (right against the graph after passes, wrong against the imported one)"
        return "the importer or an operator's definition (wrong against onnxruntime only)"


def verify_layers(
    model: str | Path | onnx.ModelProto, imported: Graph, lowered: LoweredModel, target: Target,
    feed: Mapping[str, np.ndarray], references: Sequence[str] = REFERENCES, tolerance: float = 1e-4,
    cache: ObjectCache | None = None, records: Database | None = None,
) -> Verification:  # fmt: skip
    """Compare what the kernels of ``lowered`` give with the references. ``records``: where their schedules are looked
    up. Raises what a build raises."""
    references = require_names("references", references, REFERENCES, f"names among {', '.join(REFERENCES)}")
    tolerance = require_number("tolerance", tolerance)
    out_of_range, fused = lowered.plan.out_of_range, lowered.graph
    got, makers = _run_natively(lowered, target, feed, cache, records)
    names = tuple(got)
    wanted: dict[str, Mapping[str, object]] = {}
    if "lowered" in references:
        wanted["lowered"] = interpret(fused, feed, names, out_of_range)
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
        layers.append(Layer(name, makers[name], str(fused.values[name].type), errors))
    return Verification(tuple(layers), tolerance, notes)


def _run_natively(
    lowered: LoweredModel, target: Target, feed: Mapping[str, np.ndarray], cache: ObjectCache | None,
    records: Database | None,
) -> tuple[dict[str, object], dict[str, str]]:  # fmt: skip
    """What each kernel and host step gave, by name in the order of the run, and the operators that made it."""
    graph, tuned = lowered.graph, choose_schedules(lowered, target, records)
    kernels = build_kernels(tuned.funcs, target, cache, tuned.given(target))
    plan = dataclasses.replace(finished_plan(lowered.plan, kernels), stepwise=True)
    code, library = link_plan(plan, kernels, target, cache)
    info = BuildInfo(lambda: "", {}, output_names=graph.outputs)
    groups = {(g.runs_as, g.nodes[-1].name): g for g in graph.groups or ()}
    placed = {g.outputs[0]: g for g in graph.groups or () if g.runs_as is RunsAs.PLACED}
    got: dict[str, object] = {}
    makers: dict[str, str] = {}

    def look(group: Group, names: Sequence[str], read: Callable[[str], object]) -> None:
        for name in names:
            if isinstance(graph.values[name].type, TensorType):
                got[name] = _contents(graph.values[name], graph, read)
                makers[name] = "+".join(n.op for n in group.nodes)

    def seen(step: Step, read: Callable[[str], object]) -> None:
        if isinstance(step, CheckStep):
            return
        group = groups.get((_RUNS_AS[type(step)], step.nodes[-1] if isinstance(step, KernelStep) else step.node))
        if group is not None:
            for name in group.inputs:
                if name in placed and name not in got:
                    look(placed[name], (name,), read)
            look(group, group.outputs, read)

    model = CompiledModel(plan, code, PoolHandle(target.threads, thread_pool_code()), info, library)
    model.watch(feed, seen)
    return got, makers


_RUNS_AS = {KernelStep: RunsAs.KERNEL, HostStep: RunsAs.HOST, ControlStep: RunsAs.CONTROL}


def _contents(value: Value, graph: Graph, read: Callable[[str], object]) -> object:
    """A copy of what lies in the value's place now."""
    if value.place is None:
        got = read(value.name)
        return got.copy() if isinstance(got, np.ndarray) else got
    root = np.asarray(read(value.place.root))
    around = [w - n for w, n in zip(graph.values[value.place.root].shape, value.shape, strict=True)]
    sizes = [n - d.const for n, d in zip(root.shape, around, strict=True)]
    return root[tuple(slice(o, o + n) for o, n in zip(value.place.offsets, sizes, strict=True))].copy()


def _run_onnxruntime(
    model: str | Path | onnx.ModelProto, threads: int, feed: Mapping[str, np.ndarray], names: Sequence[str]
) -> dict[str, object]:
    session = open_session(model, threads, optimize=False, extra_outputs=names, exact=True)
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
