"""``bench MODEL``: latency, interleaved with onnxruntime if that is installed."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
    fed_sizes,
    feed_for_model,
    milliseconds,
)
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_inputs, of_model, of_samples
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

LOGGER = logging.getLogger("tilewright")
_PROCESSES = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file; or an artifact, to time from the start of a process")
    parser.add_argument("--against", metavar="MODEL.onnx", help="of an artifact: what onnxruntime loads beside it")
    parser.add_argument("--seconds", type=amount, default=4.0, help="for all contenders together")
    parser.add_argument("--runs", type=count, help="inferences of each contender, instead of --seconds")
    parser.add_argument("--alone", action="store_true", help="without onnxruntime")
    add_json_option(parser)
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    if is_artifact(args.model):
        return _first_results(args)
    model = compile_with(args)
    feed = feed_for_model(args, model)
    contenders: dict[str, Callable[[], object]] = {"tilewright": lambda: model.run(None, feed)}
    notes: list[str] = []
    if not args.alone:
        contenders |= _rival(args.model, model.threads, feed, notes)
    samples = interleave(contenders, args.seconds, args.runs, noise=noise_monitor_of(model.threads))
    if args.json:
        head = {**of_model(args.model, model), "inputs": of_inputs(feed)}
        print_json("bench", {**head, **of_samples(samples), "notes": notes})
    else:
        print(report(samples, feed, model.threads))
    return 0


def _first_results(args: argparse.Namespace) -> int:
    """From the start of a process to its first result, the contenders in turns; further runs; and the memory of ten
    processes."""
    artifact = Path(args.model)
    sizes = [n for value in fed_sizes(args.shapes).values() for n in ([value] if isinstance(value, int) else value)]
    threads = args.threads or 0
    with Workshop(find_toolchain(detect_host())) as shop:
        contenders = {"C": c_program(shop, artifact), "Python": python_program(artifact)}
        if args.against and is_installed():
            contenders["onnxruntime"] = onnxruntime_program(Path(args.against))
        found: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(args.runs or _PROCESSES):
            for name, program in contenders.items():
                found[name].append(seconds_to_first_result(program, threads, sizes))
        run, kernels = microseconds_of_runs(contenders["C"], threads, sizes, args.runs or _PROCESSES)
        memory = memory_of_processes(contenders["C"], threads, sizes, _PROCESSES)
    results = {
        "model": args.model,
        "first_results": {
            name: {"median_seconds": float(np.median(s)), "least_seconds": min(s), "runs": len(s)}
            for name, s in found.items()
        },
        "run_seconds": run / 1e6,
        "kernel_seconds": kernels / 1e6,
        "processes": _PROCESSES,
        "memory_bytes": {"together": memory["Pss"], "each": memory["Rss"] / _PROCESSES},
        "file_bytes": artifact.stat().st_size,
    }
    if args.json:
        print_json("bench", results)
    else:
        print(_process_report(results))
    return 0


def _process_report(r: Mapping[str, Any]) -> str:
    rows = [
        (name, milliseconds(x["median_seconds"]), milliseconds(x["least_seconds"]), str(x["runs"]))
        for name, x in r["first_results"].items()
    ]
    memory = r["memory_bytes"]
    shared = f"{memory['together'] / 1e6:.0f} MB together, {memory['each'] / 1e6:.0f} MB each if it were alone"
    return "\n\n".join(
        [
            table(("process start to first result", " median ms", " least", " runs"), rows),
            f"a run in C when everything is warm: {1e6 * r['run_seconds']:,.2f} us, its kernels "
            f"{1e6 * r['kernel_seconds']:,.2f} us",
            f"{r['processes']} processes in C at once: {shared}; the file has {r['file_bytes'] / 1e6:.0f} MB",
        ]
    )


def _rival(
    model: str, threads: int, feed: Mapping[str, np.ndarray], notes: list[str]
) -> dict[str, Callable[[], object]]:
    """onnxruntime's run; nothing, and a note, where it cannot."""
    if not is_installed():
        notes.append("onnxruntime is not installed: timing tilewright alone")
    else:
        try:
            session = open_session(model, threads)
        except OnnxRuntimeError as e:
            notes.append(f"timing tilewright alone: {e}")
        else:
            return {} if session is None else {"onnxruntime": lambda: session.run(None, dict(feed))}
    LOGGER.warning("%s", notes[-1])
    return {}


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
