"""``demo``: compile, tune, verify and time a network of the onnx package, with seeded random weights."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tilewright.autotune.measure.interleaved_timing import Samples, interleave
from tilewright.autotune.measure.noise_monitor import noise_monitor_of
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import ModelTuning, tune_model
from tilewright.autotune.records.database import Database, open_database
from tilewright.commands.bench import report
from tilewright.commands.common import (
    add_build_options,
    amount,
    build_keywords,
    compile_with,
    feed_for_model,
    milliseconds,
)
from tilewright.commands.live import view
from tilewright.core.errors import InputError
from tilewright.core.plan import HostStep, KernelStep
from tilewright.frontend.model_file.random_weights import with_random_weights
from tilewright.graph_ir.interpreter import interpret
from tilewright.inspect.ort import open_session
from tilewright.inspect.verify import difference
from tilewright.runtime.model import CompiledModel

_TOLERANCE = 1e-4
_BETTER = 0.99
"""A median must be this share of another to count as faster."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("network", nargs="?", default="resnet50", help="a light_* network of onnx, or 'list'")
    parser.add_argument("--time", type=amount, default=60.0, metavar="SECONDS", help="of tuning; 0: none (default: 60)")
    parser.add_argument("--log", metavar="FILE", help="keep the tuning log there, and go on from it next time")
    parser.add_argument("--seconds", type=amount, default=6.0, help="of timing (default: 6)")
    add_build_options(parser)


def run(args: argparse.Namespace) -> int:
    networks = light_networks()
    if args.network == "list":
        print("\n".join(networks))
        return 0
    if args.network not in networks:
        raise InputError(f"network: expected one of {', '.join(networks)}, got {args.network!r}")
    records = open_database(args.log, create=True) if args.log else None
    args.shapes, args.inputs, args.seed = {}, None, 0
    proto = with_random_weights(networks[args.network], seed=0)
    weights = sum(int(np.prod(i.dims)) for i in proto.graph.initializer)
    print(f"{args.network}: {len(proto.graph.node)} ONNX nodes, {weights / 1e6:.1f} million seeded random weights")

    start = time.perf_counter()
    model = compile_with(args, proto)
    print(f"compiled in {time.perf_counter() - start:.2f} s: {_stages(model)}")
    print(f"plan: {_plan(model)}")
    feed = feed_for_model(args, model)
    expected, judge = _expected(args, proto, model, feed)
    fine = _verified("untuned", model, feed, expected, judge)

    models = {"tilewright": model}
    if args.time > 0:
        tuned = _tuned(args, proto, feed, records)
        if tuned.network is not None and tuned.network.kept:
            fine = _verified("tuned", tuned.model, feed, expected, judge) and fine
            models = {"untuned": model, "tuned": tuned.model}
    contenders: dict[str, Callable[[], object]] = {k: partial(m.run, None, feed) for k, m in models.items()}
    rival = open_session(proto, model.threads)
    if rival is not None:
        contenders["onnxruntime"] = lambda: rival.run(None, feed)
    samples = interleave(contenders, args.seconds, noise=noise_monitor_of(model.threads))
    print(f"\n{report(samples, feed, model.threads)}")
    if args.time > 0:
        print(f"\n{_conclusion(samples)}")
    if args.log:
        print(f"tilewright report {args.log} -o report.html  # shows what was measured")
    return 0 if fine else 1


def _expected(
    args: argparse.Namespace, proto: onnx.ModelProto, model: CompiledModel, feed: Mapping[str, np.ndarray]
) -> tuple[Mapping[str, Any], str]:
    """The results that others compute, and who."""
    session = open_session(proto, model.threads, optimize=False)
    if session is not None:
        return dict(zip(model.output_names, session.run(None, dict(feed)), strict=True)), "onnxruntime"
    return interpret(compile_with(args, proto, stop_after="import"), feed), "the graph interpreter"


def _verified(
    name: str, model: CompiledModel, feed: Mapping[str, np.ndarray], expected: Mapping[str, Any], judge: str
) -> bool:
    results = model.run(feed)
    worst = max(difference(results[n], expected[n]) for n in results)
    fine = worst <= _TOLERANCE
    verdict = "ok" if fine else "WRONG"
    print(f"{name}: verified against {judge}: error {worst:.1e} standard deviations of the output, {verdict}")
    return fine


def _tuned(
    args: argparse.Namespace, proto: onnx.ModelProto, feed: Mapping[str, np.ndarray], records: Database | None
) -> ModelTuning:
    """Tuning with a live view, and its account without the table of kernels."""
    print(f"\ntuning for {args.time:.0f} s (Ctrl-C ends it early)")
    shown = view(sys.stdout, args.time)
    options = TuneOptions(
        feed=feed, time_budget_s=args.time, on_trial=(shown.on_trial,), on_progress=shown.on_progress,
        on_stage=shown.on_stage, **build_keywords(args),
    )  # fmt: skip
    try:
        done = tune_model(proto, records, options=options)
    finally:
        shown.close()
    print(done.account())
    return done


def _conclusion(samples: Mapping[str, Samples]) -> str:
    if "tuned" not in samples:
        return "tuning did not help: in the network no schedule that was found is faster than its default"
    before, after = samples["untuned"].median, samples["tuned"].median
    times = f"{milliseconds(before)} ms untuned, {milliseconds(after)} ms tuned"
    if after < _BETTER * before:
        return f"tuning made it {before / after:.2f} times as fast: {times}"
    if after > before / _BETTER:
        return f"tuning made it slower in this run, which it should not: {times}"
    return f"tuning did not help measurably: {times}"


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
