"""The pipeline: an ONNX model in, a compiled model out. Read :func:`compile` from top to bottom.

Stages, each with a text form that ``dump`` and the command ``inspect`` show: ``import`` (ONNX to graph IR), ``passes``
(graph to graph), ``fuse`` (groups of nodes), ``lower`` (groups to functions and a call plan), ``schedule`` (each
function scheduled, by its trace), ``codegen`` (a kernel each, with its machine code). Then linking, and the runtime's
:class:`CompiledModel`.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_args, overload

from tilewright.autotune.lookup.apply_best import choose_schedules, require_tuned_share
from tilewright.autotune.lookup.implementations import find_tunable, recorded_implementations
from tilewright.autotune.lookup.precision import account as precision_account
from tilewright.autotune.lookup.precision import precision_of, recorded_choice
from tilewright.autotune.lookup.workloads import networks_of, workloads_of
from tilewright.autotune.measure.peaks import measure_peaks
from tilewright.autotune.records.database import database_of_build, places_of
from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import parse_target, why_foreign, with_threads
from tilewright.codegen.native.float_control import require_flushing
from tilewright.codegen.native.thread_pool import thread_pool_code
from tilewright.core.collector import paused_collector
from tilewright.core.errors import InputError, ResourceError
from tilewright.core.io.files import require_replaceable
from tilewright.core.io.pages import release_code, trim_heap
from tilewright.core.memo import forgotten_after
from tilewright.core.options import require_choice
from tilewright.core.plan import CheckStep, ControlStep, HostStep, KernelStep, Plan
from tilewright.deploy.export import Build
from tilewright.deploy.manifest import Origin
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import OnnxModel, import_model
from tilewright.graph_ir.inference import infer_graph, with_broadcasts
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.onnx_types import types_of_others
from tilewright.graph_ir.passes.base import Level
from tilewright.graph_ir.pipeline import PASSES, PassReport, fuse_graph, run_passes
from tilewright.graph_ir.rules.users import user_pass
from tilewright.graph_ir.text import print_graph
from tilewright.graph_ir.user_operators import with_operators, without_operators
from tilewright.graph_ir.verifier import verify_graph
from tilewright.inspect.account import BuildAccount
from tilewright.inspect.implementations import choices_of, chosen_implementations
from tilewright.inspect.schedule_rules import explain_schedule_rules
from tilewright.kernels.build import Kernel, build_kernels
from tilewright.kernels.link import finished_plan, link_plan, plan_objects
from tilewright.lowering.backend import NativeBackend, is_taken
from tilewright.lowering.choose_implementation import PASS as CHOOSE
from tilewright.lowering.choose_implementation import Wanted, choose_implementation, with_implementations
from tilewright.lowering.implementations.operator import definitions
from tilewright.lowering.plan import LoweredGroups, lower_graph_to_plan
from tilewright.lowering.precision.choose_precision import Reduction, choose_precision
from tilewright.lowering.precision.dequantize_for_readers import PASS as DEQUANTIZE_FOR_READERS
from tilewright.lowering.precision.widen_operands import widen_operands
from tilewright.machine.target import Target
from tilewright.machine.vectors import look_up_operations, share_of_bytes, share_of_products
from tilewright.options import CompileKeywords, CompileOptions
from tilewright.progress import Progress
from tilewright.runtime.coverage import estimated_coverage
from tilewright.runtime.foreign import Foreign
from tilewright.runtime.model import BuildInfo, CompiledModel
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.schedule.default import before_default
from tilewright.writer.file import ONNX_FILE, save_onnx

if TYPE_CHECKING:
    import numpy as np
    import onnx

ModelLike: TypeAlias = "str | Path | bytes | onnx.ModelProto | Graph | OnnxModel"
Stage = Literal["import", "passes", "fuse", "lower", "schedule", "codegen"]

LOGGER = logging.getLogger("tilewright")

_LARGE_MODEL = 32 << 20
"""Bytes of constants from which on the compiler's own memory is given back after the build."""


@overload
def compile(  # noqa: A001 - the name that users of compilers know
    model: ModelLike, options: CompileOptions | None = ..., *, stop_after: None = ..., **more: Unpack[CompileKeywords]
) -> CompiledModel: ...
@overload
def compile(  # noqa: A001
    model: ModelLike, options: CompileOptions | None = ..., *, stop_after: Stage, **more: Unpack[CompileKeywords]
) -> Any: ...
def compile(  # noqa: A001
    model: ModelLike,
    options: CompileOptions | None = None,
    *,
    stop_after: Stage | None = None,
    **more: Unpack[CompileKeywords],
) -> Any:
    """Compile an ONNX model for a CPU. Gives a CompiledModel.

    ``model``: the path of an ``.onnx`` file, its bytes, a ModelProto, or the Graph of a model that was imported.

    ``options`` and keywords: :class:`tilewright.CompileOptions` says what they mean. A keyword (``threads=4``,
    ``database="resnet50.jsonl"``, ``input_shapes={"batch": 1}``) counts before what ``options`` says.

    ``stop_after``: end the build there and give what it has by then: ``import``, ``passes`` and ``fuse`` a Graph,
    ``lower`` a LoweredModel, ``schedule`` scheduled functions by kernel name, ``codegen`` a kernel each with its
    machine code. Records count from ``lower`` on.

    Raises UnsupportedError (with everything that is missing), ModelError, InputError, TargetError, CoverageError, and
    ResourceError where the model asks for more than a machine has.

    >>> model = tilewright.compile("model.onnx", threads=1)
    >>> model.run({"x": np.ones((4, 32), np.float32)})["y"].shape
    (4, 10)
    >>> graph = tilewright.compile("model.onnx", stop_after="fuse")
    >>> [node.op for node in graph.nodes]
    ['MatMul', 'Add', 'Relu', 'MatMul']
    """
    require_choice("stop_after", stop_after, (None, *get_args(Stage)))
    o = CompileOptions.of("compile", options, more)
    wanted = Wanted.of(o.implementations, o.broadcasting != "only", o.operators)
    reduction = Reduction.of(o.precision, strict=o.broadcasting != "only")
    if wanted.names and CHOOSE in o.disabled_pass:
        raise InputError(f"implementations: the pass {CHOOSE} is among those of disabled_pass")
    clock = _Clock()
    target = with_threads(parse_target(o.target), o.thread_count())
    if o.denormals == "flush":
        require_flushing(target)
    records = None if stop_after in ("import", "passes", "fuse") else database_of_build(o.database)
    with Progress(o.progress) as bar, paused_collector(), forgotten_after(), _told_limits():
        bar.say("import")
        file = None if o.save_optimized is None or isinstance(model, Graph) else _with_file(model, o)
        graph = file.graph if file is not None else _graph_of(model, o)
        if o.broadcasting == "only":
            graph = with_broadcasts(graph)
        if o.broadcasting == "only" or isinstance(model, Graph | OnnxModel):  # the importer verifies what it reads
            verify_graph(graph)
        clock.lap("import")
        if stop_after == "import":
            return graph

        bar.say("graph passes")
        level = Level.of(o.opt_level)
        reduce = () if reduction is None else (choose_precision(target, level, wanted, reduction),)
        own = (user_pass(o.rules),) if o.rules else ()
        choose = choose_implementation(target, level, wanted)
        passes = (*own, *PASSES, widen_operands(target), *reduce, DEQUANTIZE_FOR_READERS, choose)
        optimized, report = run_passes(
            graph, o.opt_level, o.disabled_pass, o.instruments, o.enabled_pass, passes,
            replace(
                target.costs, byte_products=share_of_products(target), byte_words=share_of_bytes(target),
                look_up=look_up_operations(target),
            ),
        )  # fmt: skip
        wanted.require_nodes(optimized)
        if reduction is not None:
            reduction.require_nodes(optimized)
        verify_graph(optimized)
        if o.save_optimized is not None:
            said = without_operators(optimized)
            save_onnx(said if file is None else file.with_graph(said), o.save_optimized)
        clock.lap("passes")
        if stop_after == "passes":
            return optimized

        bar.say("fusion")
        groups = LoweredGroups()
        backend = NativeBackend(target, o.out_of_range, wanted.table, groups.refusals)
        fused, fusion = fuse_graph(optimized, backend, o.disabled_pass, o.instruments)
        verify_graph(fused, since=optimized)
        clock.lap("fuse")
        if stop_after == "fuse":
            return fused

        bar.say("lowering")
        lower = partial(
            lower_graph_to_plan, target=target, out_of_range=o.out_of_range, table=wanted.table, known=groups,
            on_group=lambda group: bar.say(f"lowering {group.name}"),
        )  # fmt: skip
        lowered = lower(fused)
        clock.lap("lower and pack")
        workloads, replaced, choice = None, dict[str, str](), None
        if records is not None:
            # a record may choose another implementation of a node: then fuse and lower again, only what is new
            bar.say("tuning records")
            workloads = workloads_of(lowered)
            if o.precision == "auto":
                choice = recorded_choice(records, lowered, target, workloads)
                if (found := precision_of(choice, lowered, workloads)) != "fp32":
                    again = replace(o, precision=found, input_shapes=None)
                    return compile(graph if file is None else file, again, stop_after=stop_after)
            lowered = replace(lowered, known_as=networks_of(lowered, workloads))
            tunable = find_tunable(optimized, lowered, target, o.disabled_pass, wanted.table, wanted.names, workloads)
            better = recorded_implementations(tunable, target, records, lowered.known_as)
            replaced = {x.node: x.own for x in tunable if x.node in better}
            if better:
                optimized = with_implementations(optimized, better)
                fused, fusion = fuse_graph(optimized, backend, o.disabled_pass, o.instruments)
                lowered = replace(lower(fused), known_as=lowered.known_as)
                workloads = workloads_of(lowered)
        if stop_after == "lower":
            return lowered
        lowered = replace(lowered, variants={})  # a model does not keep what it was made from
        rules = before_default(o.schedule_rules)
        tuned = choose_schedules(lowered, target, records, o.policy, o.near_misses, workloads, rules)
        if o.require_tuned is not None:
            require_tuned_share(lowered.plan, tuned.tuning, o.require_tuned)
        if records is not None:
            clock.lap("look up")
        if stop_after == "schedule":
            return {n: tuned.trace_of(n, target).apply(f) for n, f in tuned.funcs.items()}

        objects = ObjectCache.open() if o.cache else None
        given = tuned.given(target)
        kernels = build_kernels(tuned.funcs, target, objects, given, lambda i, n: bar.say("kernels", i, n))
        clock.lap("kernels")
        if stop_after == "codegen":
            return kernels

        bar.say("linking")
        plan = finished_plan(replace(lowered.plan, flushes=o.denormals == "flush"), kernels)
        foreign = why_foreign(target)
        code, library = (Foreign(foreign), None) if foreign else link_plan(plan, kernels, target, objects)
        clock.lap("link")

    origin = Origin(
        lambda: print_graph(graph.replace(constants={})),
        lambda: chosen_implementations(optimized, target, wanted), tuned.tuning,
    )  # fmt: skip
    account = BuildAccount(
        target, report, fusion, plan, kernels, tuple(clock.laps),
        lambda: choices_of(optimized, target, wanted, replaced),
        lambda: [
            *([explain_schedule_rules(tuned, target, o.schedule_rules)] if o.schedule_rules else []),
            *([] if choice is None else [precision_account(choice)]),
            *([] if records is None else [f"tuning records:\n{estimated_coverage(plan, tuned.tuning)}"]),
        ],
    )  # fmt: skip
    info = BuildInfo(
        account.text,
        _stages(graph, optimized, fused, report + fusion, plan, kernels, target),
        tuple(clock.laps),
        _folded_inputs(graph),
        types_of_others(graph),
        graph.outputs,
        lambda n: measure_peaks(target, n),
        tuned.tuning,
        Build(plan, lambda: plan_objects(plan, kernels, target, objects), target, origin, objects),
        account.to_json,
        None if foreign else partial(_stepwise, plan, kernels, target, objects),
        partial(_recipe, _kept(model), replace(o, database=places_of(o.database if records is None else records))),
    )
    pool = PoolHandle(target.threads, thread_pool_code(objects), target.threads, o.workers())
    if sum(a.nbytes for a in plan.constants.values()) >= _LARGE_MODEL:
        trim_heap()
        release_code("libllvmlite")
    again = replace(
        o, target=target, threads=target.threads, input_shapes=None, instruments=(), database=records,
        require_tuned=None,
        broadcasting="only", save_optimized=None,
    )  # fmt: skip
    general = None if o.broadcasting == "refuse" else partial(compile, graph, again)
    compiled = CompiledModel(plan, code, pool, info, library, general, o.streams)
    LOGGER.info(
        "compile: %s built in %.2f s, %d kernels, %d of them from the object cache",
        plan.name, sum(s for _, s in clock.laps), len(kernels), sum(k.cached for k in kernels.values()),
    )  # fmt: skip
    if o.broadcasting == "ahead":
        compiled.build_general()
    return compiled


def _kept(model: ModelLike) -> Path | bytes | onnx.ModelProto | None:
    """What a copy of the compiled model is built from; None for what is too large to be kept for that, and for graphs,
    which no longer know what they were read from."""
    if isinstance(model, str | Path):
        return Path(model).absolute()
    if isinstance(model, Graph | OnnxModel):
        return None
    size = len(model) if isinstance(model, bytes) else model.ByteSize()
    return model if size < _LARGE_MODEL else None


def _recipe(source: Path | bytes | onnx.ModelProto | None, options: CompileOptions) -> tuple[object, ...]:
    """What pickles and copies of a model consist of. Raises PicklingError."""
    if source is None:
        raise pickle.PicklingError(
            f"a compiled model is copied if it was compiled from a path, or from less than {_LARGE_MODEL >> 20} MiB in "
            "bytes or a message; this one was compiled from more, or from a graph"
        )
    data = source if isinstance(source, Path | bytes) else source.SerializeToString()
    return compile, (data, replace(options, instruments=(), progress=False, save_optimized=None))


def _stepwise(
    plan: Plan, kernels: Mapping[str, Kernel], target: Target, objects: ObjectCache | None,
    constants: Mapping[str, np.ndarray],
) -> CompiledModel:  # fmt: skip
    """The same model, such that each value can be looked at when it is made. ``constants``: where they lie by now."""
    steps = replace(plan, stepwise=True, constants=constants)
    code, library = link_plan(steps, kernels, target, objects)
    info = BuildInfo(lambda: "", {}, output_names=plan.outputs)
    return CompiledModel(steps, code, PoolHandle(target.threads, thread_pool_code(objects)), info, library)


@contextmanager
def _told_limits() -> Iterator[None]:
    """Python's own complaints about memory and depth as errors of this package."""
    try:
        yield
    except MemoryError as e:
        raise ResourceError(f"compile: out of memory: {e or 'a number in the model asks for too much'}") from e
    except RecursionError as e:
        raise ResourceError("compile: an expression of the model is nested deeper than Python's stack") from e


def _with_file(model: str | Path | bytes | onnx.ModelProto | OnnxModel, o: CompileOptions) -> OnnxModel:
    """The model with what its file says beside the graph. Raises InputError where it could not be written later."""
    require_replaceable(str(o.save_optimized), ONNX_FILE)
    if isinstance(model, OnnxModel):
        return model.with_graph(_known(model.graph, o))
    return import_model(model, o.input_shapes, is_taken, definitions(o.operators))


def _graph_of(model: ModelLike, o: CompileOptions) -> Graph:
    if isinstance(model, Graph | OnnxModel):
        return _known(model if isinstance(model, Graph) else model.graph, o)
    return from_onnx(model, o.input_shapes, is_taken, definitions(o.operators))


def _known(graph: Graph, o: CompileOptions) -> Graph:
    """The graph with the operators of the user known."""
    known = with_operators(graph, definitions(o.operators))
    return graph if known is graph else infer_graph(known)


class _Clock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: list[tuple[str, float]] = []
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.laps.append((name, now - self._last))
        LOGGER.debug("compile: %s took %.3f s", *self.laps[-1])
        self._last = now


def _folded_inputs(graph: Graph) -> tuple[str, ...]:
    return tuple(n for n in graph.constants if n not in graph.inputs)


def _stages(
    graph: Graph, optimized: Graph, fused: Graph, report: PassReport, plan: Plan, kernels: Mapping[str, Kernel],
    target: Target,
) -> Mapping[str, Callable[[], str]]:  # fmt: skip
    """The text of every stage, made when asked for."""
    out: dict[str, Callable[[], str]] = {
        "1_import.txt": lambda: print_graph(graph),
        "2_passes.txt": lambda: print_graph(optimized),
        "2_passes_report.txt": report.explain,
        "3_fused.txt": lambda: print_graph(fused),
        "4_plan.txt": lambda: plan_text(plan),
    }
    for name, kernel in kernels.items():
        out |= _kernel_stages(name, kernel, target)
    return out


def _kernel_stages(name: str, kernel: Kernel, target: Target) -> dict[str, Callable[[], str]]:
    return {
        f"5_{name}_function.txt": lambda: str(kernel.func),
        f"6_{name}_trace.txt": kernel.trace.to_text,
        f"7_{name}_scheduled.txt": lambda: str(kernel.scheduled()),
        f"8_{name}_prepared.txt": lambda: str(kernel.prepared(target)),
        f"9_{name}.ll": lambda: kernel.llvm_text(target),
        f"9_{name}.s": lambda: kernel.assembly_text(target),
    }


def plan_text(plan: Plan, indent: str = "") -> str:
    """The call plan, a step a line; host operators are marked as such."""
    lines = [f"{indent}plan {plan.name}({', '.join(plan.inputs)}) -> {', '.join(plan.outputs)}"]
    lines += [f"{indent}  in place: {output} may be the memory of {name}" for output, name in plan.in_place]
    for step in plan.steps:
        if isinstance(step, KernelStep):
            threads = "all threads" if step.parallel else "1 thread"
            inside = {k: f" + {o}" for k, o in step.offsets}
            args = ", ".join(f"{a}{inside.get(k, '')}" for k, a in enumerate(step.args))
            call = f"kernel {step.kernel}({args})"
            if step.same is not None:
                call += f" unless {step.args[step.same[0]]} is {step.args[step.same[1]]}"
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
