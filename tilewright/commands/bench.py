"""``bench MODEL``: latency, interleaved with onnxruntime if that is installed."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from tilewright.autotune.measure.interleaved_timing import Samples, interleave
from tilewright.autotune.measure.noise_monitor import noise_monitor_of
from tilewright.codegen.detect_cpu import detect_host
from tilewright.commands.common import (
    add_input_options,
    add_model_options,
    amount,
    compile_with,
    count,
    feed_for_model,
    milliseconds,
)
from tilewright.core.console import table
from tilewright.deploy.first_result import (
    c_program,
    memory_of_processes,
    microseconds_of_runs,
    onnxruntime_program,
    python_program,
    seconds_to_first_result,
)
from tilewright.deploy.pack import is_artifact
from tilewright.deploy.toolchain import Workshop, find_toolchain
from tilewright.inspect.ort import OnnxRuntimeError, is_installed, open_session

_PROCESSES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file; or an artifact, to time from the start of a process")
    parser.add_argument("--against", metavar="MODEL.onnx", help="of an artifact: what onnxruntime loads beside it")
    parser.add_argument("--seconds", type=amount, default=4.0, help="for all contenders together")
    parser.add_argument("--runs", type=count, help="inferences of each contender, instead of --seconds")
    parser.add_argument("--alone", action="store_true", help="without onnxruntime")
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if is_artifact(args.model):
        return _first_results(args)
    model = compile_with(args)
    feed = feed_for_model(args, model)
    contenders: dict[str, Callable[[], object]] = {"tilewright": lambda: model.run(None, feed)}
    if not args.alone:
        contenders |= _rival(args.model, model.threads, feed)
    samples = interleave(contenders, args.seconds, args.runs, noise=noise_monitor_of(model.threads))
    print(report(samples, feed, model.threads))
    return 0


def _first_results(args: argparse.Namespace) -> int:
    """From the start of a process to its first result, the contenders in turns; further runs; and the memory of ten
    processes."""
    artifact = Path(args.model)
    sizes = [n for value in args.shapes.values() for n in ([value] if isinstance(value, int) else value)]
    threads = args.threads or 0
    with Workshop(find_toolchain(detect_host())) as shop:
        contenders = {"C": c_program(shop, artifact), "Python": python_program(artifact)}
        if args.against and is_installed():
            contenders["onnxruntime"] = onnxruntime_program(Path(args.against))
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(args.runs or _PROCESSES):
            for name, program in contenders.items():
                found[name].append(seconds_to_first_result(program, threads, sizes))
        rows = [
            (name, milliseconds(float(np.median(s))), milliseconds(min(s)), str(len(s))) for name, s in found.items()
        ]
        print(table(("process start to first result", " median ms", " least", " runs"), rows))
        run, kernels = microseconds_of_runs(contenders["C"], threads, sizes, args.runs or _PROCESSES)
        print(f"\na run in C when everything is warm: {run:,.2f} us, its kernels {kernels:,.2f} us")
        memory = memory_of_processes(contenders["C"], threads, sizes, _PROCESSES)
    shared = f"{memory['Pss'] / 1e6:.0f} MB together, {memory['Rss'] / _PROCESSES / 1e6:.0f} MB each if it were alone"
    print(f"\n{_PROCESSES} processes in C at once: {shared}; the file has {artifact.stat().st_size / 1e6:.0f} MB")
    return 0


def _rival(model: str, threads: int, feed: Mapping[str, np.ndarray]) -> dict[str, Callable[[], object]]:
    if not is_installed():
        print("onnxruntime is not installed: timing tilewright alone\n")
        return {}
    try:
        session = open_session(model, threads)
    except OnnxRuntimeError as e:
        print(f"timing tilewright alone: {e}\n")
        return {}
    return {} if session is None else {"onnxruntime": lambda: session.run(None, dict(feed))}


def report(samples: Mapping[str, Samples], feed: Mapping[str, np.ndarray], threads: int) -> str:
    """A row a contender; the last column is its speed relative to onnxruntime."""
    reference = samples.get("onnxruntime")
    rows = []
    for name, s in samples.items():
        speed = f"{reference.median / s.median:.2f}x" if reference is not None else ""
        rows.append((name, *map(milliseconds, (s.median, s.p10, s.p90)), str(len(s.seconds)), speed))
    shapes = ", ".join(f"{k}{list(v.shape)}" for k, v in list(feed.items())[:4])
    head = ("", " median ms", " p10", " p90", " runs", " speed")
    return f"{table(head, rows)}\n\n{threads} thread(s); inputs {shapes}{', ...' if len(feed) > 4 else ''}"
