"""The pipeline: an ONNX model in, a compiled model out. Read :func:`compile` from top to bottom.

Stages, each with a text form that ``stop_after`` and ``dump`` show: ``import`` (ONNX to graph IR), ``passes`` (graph to
graph), ``lower`` (groups of nodes to functions and a call plan), ``schedule`` (a trace for each function), ``codegen``
(LLVM IR). After that come machine code, linking, and the runtime's :class:`CompiledModel`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, overload

from tilewright.autotune.lookup.apply_best import NearMisses, choose_schedules, require_tuned_share
from tilewright.autotune.lookup.implementations import find_options, recorded_implementations
from tilewright.autotune.lookup.workloads import networks_of, workloads_of
from tilewright.autotune.measure.peaks import measure_peaks
from tilewright.autotune.records.database import DatabaseLike, Policy, database_of_build
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import parse_target, why_foreign, with_threads
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.collector import paused_collector
from tilewright.core.errors import InputError, ResourceError
from tilewright.core.index_ranges import OUT_OF_RANGE, OutOfRange
from tilewright.core.io.pages import release_code, trim_heap
from tilewright.core.memo import forgotten_after
from tilewright.core.options import require_choice, require_flag, require_names, require_number
from tilewright.core.plan import CheckStep, ControlStep, HostStep, KernelStep, Plan
from tilewright.frontend import from_onnx
from tilewright.graph_ir.inference import with_broadcasts
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Level
from tilewright.graph_ir.pipeline import PASSES, Instrument, PassReport, fuse_graph, run_passes
from tilewright.graph_ir.text import print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.inspect.explain import explain_build
from tilewright.inspect.implementations import explain_implementations
from tilewright.kernels.build import Kernel, build_kernels
from tilewright.kernels.link import finished_plan, link_plan
from tilewright.lowering.backend import NativeBackend, is_taken
from tilewright.lowering.choose_implementation import PASS as CHOOSE
from tilewright.lowering.choose_implementation import Wanted, choose_implementation, with_implementations
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.plan import LoweredGroups, LoweredModel, lower_graph_to_plan
from tilewright.machine.target import Target
from tilewright.progress import Progress
from tilewright.runtime.coverage import estimated_coverage
from tilewright.runtime.foreign import Foreign
from tilewright.runtime.model import BuildInfo, CompiledModel
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.text import print_func

if TYPE_CHECKING:
    import onnx

Broadcasting: TypeAlias = Literal["lazy", "ahead", "refuse", "only"]
Stage = Literal["import", "passes", "fuse", "lower", "schedule", "codegen"]

_LARGE_MODEL = 32 << 20
"""Bytes of constants from which on the compiler's own memory is given back after the build."""


@overload
def compile(  # noqa: A001 - the name that users of compilers know
    model: str | Path | bytes | onnx.ModelProto | Graph, *, target: str | Target | None = ..., opt_level: str = ...,
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = ..., threads: int | None = ...,
    disabled_pass: str | Sequence[str] = ..., enabled_pass: str | Sequence[str] = ..., stop_after: None = ...,
    instruments: Sequence[Instrument] = ..., cache: bool = ..., progress: bool | None = ...,
    database: DatabaseLike | None = ..., policy: Policy = ..., near_misses: NearMisses = ...,
    require_tuned: float | None = ..., broadcasting: Broadcasting = ..., out_of_range: OutOfRange = ...,
    implementations: Mapping[str, str | Implementation] | None = ...,
) -> CompiledModel: ...  # fmt: skip
@overload
def compile(  # noqa: A001
    model: str | Path | bytes | onnx.ModelProto | Graph, *, target: str | Target | None = ..., opt_level: str = ...,
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = ..., threads: int | None = ...,
    disabled_pass: str | Sequence[str] = ..., enabled_pass: str | Sequence[str] = ..., stop_after: Stage,
    instruments: Sequence[Instrument] = ..., cache: bool = ..., progress: bool | None = ...,
    database: DatabaseLike | None = ..., policy: Policy = ..., near_misses: NearMisses = ...,
    require_tuned: float | None = ..., broadcasting: Broadcasting = ..., out_of_range: OutOfRange = ...,
    implementations: Mapping[str, str | Implementation] | None = ...,
) -> Any: ...  # fmt: skip
def compile(  # noqa: A001
    model: str | Path | bytes | onnx.ModelProto | Graph,
    *,
    target: str | Target | None = None,
    opt_level: str = "all",
    input_shapes: Mapping[str, Sequence[int | str] | int] | None = None,
    threads: int | None = None,
    disabled_pass: str | Sequence[str] = (),
    enabled_pass: str | Sequence[str] = (),
    stop_after: Stage | None = None,
    instruments: Sequence[Instrument] = (),
    cache: bool = True,
    progress: bool | None = None,
    database: DatabaseLike | None = None,
    policy: Policy = "any",
    near_misses: NearMisses = "measure",
    require_tuned: float | None = None,
    broadcasting: Broadcasting = "lazy",
    out_of_range: OutOfRange = "error",
    implementations: Mapping[str, str | Implementation] | None = None,
) -> Any:
    """Compile an ONNX model (a path, its bytes, a ModelProto, or the Graph of one that was imported) for a CPU.

    ``target``: None for this machine, or a string like ``"llvm -mcpu=znver4"``; a model for a CPU that has what this
    one lacks can be looked at, and raises TargetError when run. ``opt_level``: ``none``, ``basic``, ``extended`` or
    ``all``. ``input_shapes``: shapes by input name and sizes by symbolic dimension. ``threads``: None for what the
    machine allows. ``disabled_pass``/``enabled_pass``: names of passes or rules. ``cache``: use the object cache on
    disk. ``progress``: None shows it on a terminal when the build takes longer than a second.

    ``database``: a tuning database, or paths of logs, which must exist (default: that of the ``with database:`` block
    around the call).
    ``policy``: ``exact`` uses only records of this machine, ``compatible`` those of similar CPUs too, ``any`` those of
    other sizes too. ``near_misses``: ``measure`` times them against the default schedule and uses the faster,
    ``replay`` uses them, ``ignore`` does not. ``require_tuned``: the least share of run time in kernels with a record
    of their own. ``out_of_range``: what an index outside of what it points into leads to: ``error``, a ModelError here
    if it is constant, else an InputError of the run, which names node, index and range; or ``clamp``, the nearest
    element. ``implementations``: what computes nodes, by their names after the graph passes, which ``explain`` lists:
    the name of one of the implementations of the operator, or an Implementation of your own.

    ``broadcasting``: sizes that only a call tells are taken to be equal where an operator broadcasts them; for calls in
    which one of them is 1 there is a second version of the model. ``lazy`` builds it at the first such call, ``ahead``
    now; ``refuse`` builds none and refuses such calls; ``only`` builds that version alone.

    ``stop_after`` returns what the build has by then: ``import``, ``passes`` and ``fuse`` a Graph, ``lower`` a
    LoweredModel, ``schedule`` scheduled functions by kernel name, ``codegen`` a kernel each with its machine code.

    Raises UnsupportedError (with everything that is missing), ModelError, InputError, TargetError, CoverageError, and
    ResourceError where the model asks for more than a machine has.
    """
    _require_options(stop_after, policy, near_misses, broadcasting, out_of_range, cache, progress, require_tuned)
    disabled_pass = require_names("disabled_pass", disabled_pass)
    enabled_pass = require_names("enabled_pass", enabled_pass)
    wanted = Wanted.of(implementations, strict=broadcasting != "only")
    if wanted.names and CHOOSE in disabled_pass:
        raise InputError(f"implementations: the pass {CHOOSE} is among those of disabled_pass")
    clock = _Clock()
    chosen = with_threads(parse_target(target), threads)
    records = None if stop_after in ("import", "passes", "fuse", "lower") else database_of_build(database)
    with Progress(progress) as bar, paused_collector(), forgotten_after(), _told_limits():
        bar.say("import")
        graph = model if isinstance(model, Graph) else from_onnx(model, input_shapes, is_taken)
        if broadcasting == "only":
            graph = with_broadcasts(graph)
        verify_graph(graph)
        clock.lap("import")
        if stop_after == "import":
            return graph

        bar.say("graph passes")
        passes = (*PASSES, choose_implementation(chosen, Level.of(opt_level), wanted))
        optimized, report = run_passes(graph, opt_level, disabled_pass, instruments, enabled_pass, passes, chosen.costs)
        wanted.require_nodes(optimized)
        verify_graph(optimized)
        clock.lap("passes")
        if stop_after == "passes":
            return optimized

        bar.say("fusion")
        groups = LoweredGroups()
        backend = NativeBackend(chosen, out_of_range, wanted.table, groups.refusals)
        fused, fusion = fuse_graph(optimized, backend, disabled_pass, instruments)
        verify_graph(fused)
        clock.lap("fuse")
        if stop_after == "fuse":
            return fused

        bar.say("lowering")
        lowered = lower_graph_to_plan(
            fused, chosen, lambda group: bar.say(f"lowering {group.name}"), out_of_range=out_of_range,
            table=wanted.table, known=groups,
        )  # fmt: skip
        clock.lap("lower and pack")
        if stop_after == "lower":
            return lowered
        network, workloads, replaced = None, None, dict[str, str]()
        if records is not None:
            bar.say("tuning records")
            workloads = workloads_of(lowered)
            network = networks_of(lowered, workloads)
            options = find_options(optimized, lowered, chosen, disabled_pass, wanted.table, wanted.names, workloads)
            better = recorded_implementations(options, chosen, records, network)
            replaced = {o.node: o.own for o in options if o.node in better}
            if better:
                optimized = with_implementations(optimized, better)
                fused, fusion = fuse_graph(optimized, backend, disabled_pass, instruments)
                lowered = lower_graph_to_plan(
                    fused, chosen, out_of_range=out_of_range, table=wanted.table, known=groups
                )
                workloads = workloads_of(lowered)
        lowered = replace(lowered, variants={})  # a model does not keep what it was made from
        tuned = choose_schedules(lowered, chosen, records, policy, near_misses, network, workloads)
        if require_tuned is not None:
            require_tuned_share(lowered.plan, tuned.tuning, require_tuned)
        if records is not None:
            clock.lap("look up")
        if stop_after == "schedule":
            return {n: (tuned.traces.get(n) or default_trace(f, chosen)).apply(f) for n, f in tuned.funcs.items()}

        objects = ObjectCache.open() if cache else None
        kernels = build_kernels(tuned.funcs, chosen, objects, tuned.traces, lambda i, n: bar.say("kernels", i, n))
        clock.lap("kernels")
        if stop_after == "codegen":
            return kernels

        bar.say("linking")
        plan = finished_plan(lowered.plan, kernels)
        foreign = why_foreign(chosen)
        code, library = (Foreign(foreign), None) if foreign else link_plan(plan, kernels, chosen, objects)
        clock.lap("link")

    info = BuildInfo(
        lambda: (
            explain_build(chosen, report, fusion, plan, kernels, clock.laps)
            + f"\n\n{explain_implementations(optimized, chosen, wanted, replaced)}"
            + ("" if records is None else f"\n\ntuning records:\n{estimated_coverage(plan, tuned.tuning)}")
        ),
        _stages(graph, optimized, fused, report + fusion, lowered, kernels, chosen),
        tuple(clock.laps),
        _folded_inputs(graph),
        graph.outputs,
        lambda n: measure_peaks(chosen, n),
        tuned.tuning,
    )
    pool = PoolHandle(chosen.threads, thread_pool_code(objects))
    if sum(a.nbytes for a in plan.constants.values()) >= _LARGE_MODEL:
        trim_heap()
        release_code("libllvmlite")
    general = partial(
        compile, graph, target=chosen, opt_level=opt_level, disabled_pass=disabled_pass,
        enabled_pass=enabled_pass, cache=cache, progress=progress, database=records, policy=policy,
        near_misses=near_misses, broadcasting="only", out_of_range=out_of_range, implementations=implementations,
    )  # fmt: skip
    compiled = CompiledModel(plan, code, pool, info, library, None if broadcasting == "refuse" else general)
    if broadcasting == "ahead":
        compiled.build_general()
    return compiled


def _require_options(
    stop_after: object, policy: object, near_misses: object, broadcasting: object, out_of_range: object,
    cache: object, progress: object, require_tuned: object,
) -> None:  # fmt: skip
    require_choice("stop_after", stop_after, (None, *get_args(Stage)))
    require_choice("policy", policy, get_args(Policy))
    require_choice("near_misses", near_misses, get_args(NearMisses))
    require_choice("broadcasting", broadcasting, get_args(Broadcasting))
    require_choice("out_of_range", out_of_range, OUT_OF_RANGE)
    require_flag("cache", cache)
    if progress is not None:
        require_flag("progress", progress)
    if require_tuned is not None:
        require_number("require_tuned", require_tuned, most=1.0)


@contextmanager
def _told_limits() -> Iterator[None]:
    """Python's own complaints about memory and depth as errors of this package."""
    try:
        yield
    except MemoryError as e:
        raise ResourceError(f"compile: out of memory: {e or 'a number in the model asks for too much'}") from e
    except RecursionError as e:
        raise ResourceError("compile: an expression of the model is nested deeper than Python's stack") from e


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps.append((name, now - self._last))
        self._last = now


def _folded_inputs(graph: Graph) -> tuple[str, ...]:
    return tuple(n for n in graph.constants if n not in graph.inputs)


def _stages(
    graph: Graph, optimized: Graph, fused: Graph, report: PassReport, lowered: LoweredModel,
    kernels: Mapping[str, Kernel], target: Target,
) -> Mapping[str, Callable[[], str]]:  # fmt: skip
    """The text of every stage, made when asked for."""
    out: dict[str, Callable[[], str]] = {
        "1_import.txt": lambda: print_graph(graph),
        "2_passes.txt": lambda: print_graph(optimized),
        "2_passes_report.txt": report.explain,
        "3_fused.txt": lambda: print_graph(fused),
        "4_plan.txt": lambda: plan_text(lowered.plan),
    }
    for name, kernel in kernels.items():
        out |= _kernel_stages(name, kernel, target)
    return out


def _kernel_stages(name: str, kernel: Kernel, target: Target) -> dict[str, Callable[[], str]]:
    return {
        f"5_{name}_function.txt": lambda: print_func(kernel.func),
        f"6_{name}_trace.txt": kernel.trace.to_text,
        f"7_{name}_scheduled.txt": lambda: print_func(kernel.scheduled()),
        f"8_{name}_prepared.txt": lambda: print_func(kernel.prepared(target)),
        f"9_{name}.ll": lambda: kernel.llvm_text(target),
        f"9_{name}.s": lambda: kernel.assembly_text(target),
    }


def plan_text(plan: Plan, indent: str = "") -> str:
    """The call plan, a step a line; host operators are marked as such."""
    lines = [f"{indent}plan {plan.name}({', '.join(plan.inputs)}) -> {', '.join(plan.outputs)}"]
    for step in plan.steps:
        if isinstance(step, KernelStep):
            threads = "all threads" if step.parallel else "1 thread"
            inside = {k: f" + {o}" for k, o in step.offsets}
            args = ", ".join(f"{a}{inside.get(k, '')}" for k, a in enumerate(step.args))
            call = f"kernel {step.kernel}({args})"
            lines.append(f"{indent}  {call}  # {threads}: {', '.join(step.nodes)}")
        elif isinstance(step, CheckStep):
            lines.append(f"{indent}  check {step.slot} in [{step.low}, {step.high}]  # {step.where}")
        elif isinstance(step, HostStep):
            lines.append(
                f"{indent}  host {step.op}({', '.join(step.inputs)}) -> {', '.join(step.outputs)}  "
                f"# {step.node}: {step.reason}"
            )
        elif isinstance(step, ControlStep):
            lines.append(f"{indent}  {step.op}({', '.join(step.inputs)}) -> {', '.join(step.outputs)}  # {step.node}")
            lines.extend(plan_text(body, indent + "    ") for body in step.bodies)
    return "\n".join(lines)
