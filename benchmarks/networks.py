#!/usr/bin/env python3
"""How fast are whole networks? Against onnxruntime, interleaved, each network and thread count in a process of its own.

    python benchmarks/networks.py --models DIR [NAME ...] [--threads 1,2] [--seconds 8] [--json OUT.json]
    python benchmarks/networks.py --light [NAME ...]
    python benchmarks/networks.py --models DIR --tune 60 --logs DIR     # tuned for a minute each
    python benchmarks/networks.py --models DIR --precision bf16 --openvino
    python benchmarks/plot.py OUT.json -o docs/speed.svg                # the rows of --json as a picture

Networks are kept as NAME.structure.onnx (see accuracy.py). Speed is onnxruntime's median over ours: above 1 we are
faster; with --openvino a second column says the same of OpenVINO, in the precision that it takes by default (bfloat16
where the CPU multiplies that), with --openvino fp32 in float32. With --precision bf16 or auto a last column says it of
our own float32, with the same log. The machine should be otherwise idle: on busy cores,
two thread pools measure the scheduler, not the code. What was timed, of either side, while the machine was disturbed is
timed again (autotune/measure/noise_monitor.py).
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from accuracy import _QUANTIZED, light_models, materialize

from tilewright.core.io.files import begins_with, require_replaceable, write_file

ROWS = begins_with("rows of this benchmark", b'{\n "machine": {')
_RATIOS = {
    "ort": ("speed", "speed", "onnxruntime"),
    "ov": ("to_openvino", "to ov", "OpenVINO"),
    "fp32": ("to_fp32", "to fp32", "ours in float32"),
}
"""By contender, how its median over ours is called in a row and in the table, and who it is."""


def main() -> int:
    args = _arguments()
    if args.one:
        print(json.dumps(_one(args)))
        return 0
    names = args.names or _known(args)
    if args.json:
        require_replaceable(args.json, ROWS)
    rows = []
    others = ["ort", *(["ov"] if args.openvino else []), *(["fp32"] if args.precision != "fp32" else [])]
    titles = [t for who in ("ours", *others) for t in (f"{who} ms", "p10", "p90")]
    head = f"{'network':<28} {'thr':>3} {' '.join(f'{t:>9}' for t in titles)}"
    head += "".join(f" {_RATIOS[who][1]:>7}" for who in others)
    print(head, "-" * len(head), sep="\n")
    for name in names:
        for threads in map(int, args.threads.split(",")):
            row = _measure(args, name, threads)
            rows.append(row)
            print(_line(row), flush=True)
            if args.json:
                kept = {"machine": _machine(), "precision": args.precision, "tuned": bool(args.logs), "rows": rows}
                kept["openvino"] = args.openvino
                text = json.dumps(kept, indent=1)
                write_file(args.json, ROWS, text.encode())
    for key, _, other in _RATIOS.values():
        speeds = [r[key] for r in rows if key in r]
        if speeds:
            mean = math.exp(sum(map(math.log, speeds)) / len(speeds))
            print(f"{len(speeds)} rows, geometric mean of the speeds {mean:.2f}x that of {other}")
    return 0 if all("speed" in r for r in rows) else 1


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--models", default="", help="folder of structure files")
    p.add_argument("--work", default=tempfile.gettempdir() + "/tilewright-models", help="where to materialize them")
    p.add_argument("--light", action="store_true", help="the light_* networks of the onnx package, random weights")
    p.add_argument("--case", type=int, default=0, help="which of a network's recorded inputs")
    p.add_argument("--threads", default="1,2", help="thread counts")
    p.add_argument("--seconds", type=float, default=8.0, help="of timing, a row")
    p.add_argument("--tune", type=float, default=0.0, metavar="S", help="tune each for so many seconds first")
    p.add_argument("--logs", help="folder of the tuning logs, one per network; tuning goes on where it stopped")
    p.add_argument("--precision", choices=("fp32", "bf16", "bf16x3", "auto"), default="fp32", help="ours")
    p.add_argument(
        "--openvino", nargs="?", const="default", choices=("default", "fp32"),
        help="against OpenVINO, too, which must be installed, in the precision of its choice or in float32",
    )  # fmt: skip
    p.add_argument("--json", help="write the rows there too, after each")
    p.add_argument("--one", help=argparse.SUPPRESS)
    args = p.parse_args()
    if not args.models and not args.light:
        p.error("one of --models and --light is needed")
    if args.tune and not args.logs:
        p.error("--tune needs --logs")
    return args


def _known(args: argparse.Namespace) -> list[str]:
    if args.light:
        return [p.stem for p in light_models()]
    found = sorted(p.name.removesuffix(".structure.onnx") for p in Path(args.models).glob("*.structure.onnx"))
    return [n for n in found if not any(q in n for q in _QUANTIZED)]


def _measure(args: argparse.Namespace, name: str, threads: int) -> dict:
    command = [sys.executable, __file__, "--one", name, "--threads", str(threads), "--seconds", str(args.seconds)]
    command += ["--models", args.models, "--work", args.work, "--case", str(args.case), *(["--light"] * args.light)]
    command += ["--precision", args.precision, *(["--openvino", args.openvino] if args.openvino else [])]
    if args.logs:
        command += ["--logs", args.logs, "--tune", str(args.tune)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    except subprocess.TimeoutExpired:
        return {"name": name, "threads": threads, "failed": "no result within 1800 s"}
    if run.returncode:
        tail = (run.stderr.strip() or f"exit status {run.returncode}").splitlines()[-1]
        return {"name": name, "threads": threads, "failed": tail[:300]}
    return json.loads(run.stdout.splitlines()[-1])


def _one(args: argparse.Namespace) -> dict:
    import tilewright
    from tilewright.autotune.measure.interleaved_timing import interleave
    from tilewright.autotune.measure.noise_monitor import noise_monitor_of
    from tilewright.autotune.network.options import TuneOptions
    from tilewright.autotune.network.tune_network import tune_model
    from tilewright.inspect.ort import open_session

    threads = int(args.threads)
    kept = (Path(args.models), args.one, Path(args.work), args.case)
    source, feed = _light(args.one) if args.light else materialize(*kept)
    start = time.perf_counter()
    log = Path(args.logs) / f"{args.one}.jsonl" if args.logs else None
    tuned = {}
    if log is not None and args.tune:
        options = TuneOptions(threads=threads, time_budget_s=args.tune, feed=feed, precision=args.precision)
        tuned = {"account": tune_model(source, log, options=options).account()}
        start = time.perf_counter()
    model = tilewright.compile(source, threads=threads, progress=False, database=log, precision=args.precision)
    compiled = time.perf_counter() - start
    session = open_session(source, threads)
    if session is None:
        raise SystemExit("onnxruntime is not installed")
    if feed is None:
        rng = np.random.default_rng(1)
        feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    mine = {s.name: feed[s.name] for s in model.inputs}
    theirs = {i.name: feed[i.name] for i in session.get_inputs()}
    contenders = {"ours": lambda: model.run(None, mine), "ort": lambda: session.run(None, theirs)}
    if args.openvino:
        try:
            contenders["ov"] = _openvino(source, threads, theirs, args.openvino)
        except RuntimeError as e:  # operators that it does not have
            print(f"OpenVINO: {str(e).strip().splitlines()[-1]}", file=sys.stderr)
    if args.precision != "fp32":
        plain = tilewright.compile(source, threads=threads, progress=False, database=log)
        contenders["fp32"] = lambda: plain.run(None, mine)
    taken = interleave(contenders, args.seconds, noise=noise_monitor_of(threads))
    row = {"name": args.one, "case": args.case, "threads": threads, "compile_s": compiled}
    for who, s in taken.items():
        row |= {f"{who}_ms": s.median * 1e3, f"{who}_p10": s.p10 * 1e3, f"{who}_p90": s.p90 * 1e3}
        row[f"{who}_runs"] = len(s.seconds)
    speeds = {_RATIOS[who][0]: s.median / taken["ours"].median for who, s in taken.items() if who in _RATIOS}
    return row | tuned | speeds


def _openvino(source: object, threads: int, feed: dict, precision: str):
    import openvino

    core = openvino.Core()
    content = source if isinstance(source, str | Path) else source.SerializeToString()  # type: ignore[attr-defined]
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if precision == "fp32":
        options["INFERENCE_PRECISION_HINT"] = "f32"
    request = core.compile_model(core.read_model(content), "CPU", options).create_infer_request()
    return lambda: request.infer(feed)


def _light(name: str):
    from tilewright.frontend.model_file.random_weights import with_random_weights

    return with_random_weights(next(p for p in light_models() if p.stem == name), seed=0), None


def _line(row: dict) -> str:
    start = f"{row['name']:<28} {row['threads']:>3}"
    if "failed" in row:
        return f"{start} FAILED  {row['failed']}"
    columns = [f"{who}_{what}" for who in ("ours", *_RATIOS) for what in ("ms", "p10", "p90")]
    ratios = "".join(f" {row[key]:>6.2f}x" for key, _, _ in _RATIOS.values() if key in row)
    return f"{start} {' '.join(f'{row[c]:>9.3f}' for c in columns if c in row)}{ratios}"


def _machine() -> dict:
    from tilewright.codegen.detect_cpu import detect_host

    host = detect_host()
    return {"cpu": host.cpu, "threads": host.threads, "python": platform.python_version(), "system": platform.system()}


if __name__ == "__main__":
    sys.exit(main())
