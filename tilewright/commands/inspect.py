"""``inspect MODEL --stage S``: a stage of the pipeline as text; ``inspect ARTIFACT``: its manifest."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from tilewright.api.replay import Replay
from tilewright.autotune.lookup.apply_best import choose_schedules
from tilewright.codegen.assembly_loops import assembly_loops
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.codegen.emit.function import emit_kernel, is_parallel, workspaces
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.port_pressure import port_pressure
from tilewright.codegen.prepare.steps import prepare
from tilewright.commands.common import add_fixed_shapes, add_model_options, compile_with, records_of
from tilewright.compile import plan_text
from tilewright.core.errors import InputError
from tilewright.deploy.pack import described, is_artifact, read_manifests
from tilewright.graph_ir.text import print_graph
from tilewright.lowering.plan import LoweredModel
from tilewright.lowering.workspaces import Scheduled, with_scheduled
from tilewright.machine.target import Target
from tilewright.schedule.default import explained_default
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func

KernelText = Callable[[str, Func, Trace, Target], str]


def _function(name: str, func: Func, trace: Trace, target: Target) -> str:
    return str(func)


def _trace(name: str, func: Func, trace: Trace, target: Target) -> str:
    own, taken = explained_default(func, target)
    by = ", ".join(f"{rule} ({block})" for block, rule in taken.items()) if trace == own else "a record"
    return f"# {name}: scheduled by {by}\n{trace.to_text()}"


def _steps(name: str, func: Func, trace: Trace, target: Target) -> str:
    return f"# {name}\n{Replay(func, trace, target)}\n"


def _scheduled(name: str, func: Func, trace: Trace, target: Target) -> str:
    return str(trace.apply(func))


def _prepared(name: str, func: Func, trace: Trace, target: Target) -> str:
    return str(prepare(trace.apply(func), target))


def _llvm(name: str, func: Func, trace: Trace, target: Target) -> str:
    return emit_kernel(prepare(trace.apply(func), target), target, name)


def _asm(name: str, func: Func, trace: Trace, target: Target) -> str:
    return assembly_text(_llvm(name, func, trace, target), target)


def _ports(name: str, func: Func, trace: Trace, target: Target) -> str:
    return f"# {name}\n{port_pressure(assembly_loops(_asm(name, func, trace, target)), target)}\n"


KERNEL_STAGES: Mapping[str, KernelText] = {
    "function": _function, "trace": _trace, "steps": _steps, "scheduled": _scheduled, "prepared": _prepared,
    "llvm": _llvm, "asm": _asm, "ports": _ports,
}  # fmt: skip
STAGES = ("import", "passes", "fuse", "plan", *KERNEL_STAGES)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file; or an artifact, to list what it says of itself")
    parser.add_argument("--stage", choices=STAGES, default="passes", help="what to print (default: passes)")
    parser.add_argument("--kernel", metavar="NAME", help="one kernel by its name or number (k3); default: all")
    add_fixed_shapes(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if is_artifact(args.model):
        print("\n\n".join("\n".join(described(said)) for said in read_manifests(args.model)))
        return 0
    if args.require_tuned is not None:
        compile_with(args, stop_after="schedule")
    if args.stage in ("import", "passes", "fuse"):
        print(print_graph(compile_with(args, stop_after=args.stage)))
        return 0
    lowered = compile_with(args, stop_after="lower")
    target = with_threads(parse_target(args.target), args.threads)
    tuned = choose_schedules(lowered, target, records_of(args))
    names = list(lowered.funcs) if args.stage == "plan" else _chosen(lowered, args.kernel)
    traces = {n: tuned.trace_of(n, target) for n in names}
    if args.stage == "plan":
        print(_plan(lowered, {n: prepare(t.apply(tuned.funcs[n]), target) for n, t in traces.items()}, target))
        return 0
    for name, trace in traces.items():
        print(KERNEL_STAGES[args.stage](name, tuned.funcs[name], trace, target))
    return 0


def _plan(lowered: LoweredModel, ready: Mapping[str, Func], target: Target) -> str:
    facts = {
        name: Scheduled(f.dims, tuple((b.dtype, b.shape) for b in workspaces(f, target)), is_parallel(f))
        for name, f in ready.items()
    }
    return plan_text(with_scheduled(lowered.plan, facts))


def _chosen(lowered: LoweredModel, wanted: str | None) -> list[str]:
    names = list(lowered.funcs)
    if wanted is None:
        return names
    found = [n for n in names if n == wanted or n.startswith(f"{wanted}_")]
    if not found:
        raise InputError(f"--kernel: expected one of {', '.join(names)}; got {wanted!r}")
    return found
