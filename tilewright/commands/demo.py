"""``demo``: compile, verify and time a network of the onnx package, with seeded random weights."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from tilewright.autotune.compare import interleave
from tilewright.commands.bench import report
from tilewright.commands.common import add_build_options, compile_with, feed_for_model
from tilewright.core.errors import InputError
from tilewright.core.plan import HostStep, KernelStep
from tilewright.frontend.random_weights import with_random_weights
from tilewright.graph_ir.interpreter import interpret
from tilewright.ort import open_session
from tilewright.runtime.model import CompiledModel
from tilewright.verify import difference

_TOLERANCE = 1e-4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", nargs="?", default="resnet50", help="a light_* network of onnx, or 'list'")
    parser.add_argument("--seconds", type=float, default=4.0, help="of timing")
    add_build_options(parser)


def run(args: argparse.Namespace) -> int:
    networks = light_networks()
    if args.network == "list":
        print("\n".join(networks))
        return 0
    if args.network not in networks:
        raise InputError(f"network: expected one of {', '.join(networks)}, got {args.network!r}")
    args.shapes, args.inputs, args.seed = {}, None, 0
    proto = with_random_weights(networks[args.network], seed=0)
    weights = sum(int(np.prod(i.dims)) for i in proto.graph.initializer)
    print(f"{args.network}: {len(proto.graph.node)} ONNX nodes, {weights / 1e6:.1f} million seeded random weights")

    start = time.perf_counter()
    model = compile_with(args, proto)
    print(f"compiled in {time.perf_counter() - start:.2f} s: {_stages(model)}")
    print(f"plan: {_plan(model)}")

    feed = feed_for_model(args, model)
    results = model.run(feed)
    session = open_session(proto, model.threads, optimize=False)
    if session is not None:
        expected, judge = dict(zip(model.output_names, session.run(None, feed), strict=True)), "onnxruntime"
    else:
        expected, judge = interpret(compile_with(args, proto, stop_after="import"), feed), "the graph interpreter"
    worst = max(difference(results[name], expected[name]) for name in results)
    verdict = "ok" if worst <= _TOLERANCE else "WRONG"
    print(f"verified against {judge}: error {worst:.1e} standard deviations of the output, {verdict}\n")

    contenders: dict[str, Callable[[], object]] = {"tilewright": lambda: model.run(None, feed)}
    rival = open_session(proto, model.threads)
    if rival is not None:
        contenders["onnxruntime"] = lambda: rival.run(None, feed)
    print(report(interleave(contenders, args.seconds), feed, model.threads))
    return 0 if worst <= _TOLERANCE else 1


def light_networks() -> dict[str, Path]:
    """The networks that the onnx package ships without weights, by short name."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return {p.stem.removeprefix("light_"): p for p in sorted(folder.glob("light_*.onnx"))}


def _stages(model: CompiledModel) -> str:
    return ", ".join(f"{name} {seconds:.2f}" for name, seconds in model.timings)


def _plan(model: CompiledModel) -> str:
    steps = model.plan.steps
    kernels = {s.kernel for s in steps if isinstance(s, KernelStep)}
    nodes = sum(len(s.nodes) for s in steps if isinstance(s, KernelStep))
    host = sum(isinstance(s, HostStep) for s in steps)
    return f"{nodes} operators in {len(steps) - host} native steps of {len(kernels)} kernels, {host} on the host"
