#!/usr/bin/env python3
"""How many nodes are left, and is the result right and as fast? Against onnxsim and onnxslim, a process for each run.

    python benchmarks/simplify.py --models DIR [NAME ...] [--peers PYTHON] [--json OUT.json]
    python benchmarks/simplify.py --light
    python benchmarks/simplify.py --models DIR --speed [--seconds 8] [--threads 1]

Networks are kept as NAME.structure.onnx (see accuracy.py); each is made in --work and deleted afterwards. A node counts
if a runtime has something to do for it: those of subgraphs too, Constant nodes not, since they only hold a weight as an
initializer does. Results are compared in onnxruntime, at two sizes where the model has symbolic ones (that is the check
of ``tilewright.simplify`` itself). --peers is an interpreter that has onnxsim and onnxslim (default: this one).

--speed times original and result in onnxruntime, with its optimisation as it is by default, interleaved, on the inputs
of case 0: the median of the original over that of ours. Above 1 ours is faster. The machine should be idle.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from accuracy import light_models, materialize

from tilewright.core.io.files import begins_with, require_replaceable, write_file

ROWS = begins_with("rows of this benchmark", b"[\n {")
PEERS = ("onnxsim", "onnxslim")
_PEER = """
import collections, importlib, json, sys, time, onnx
tool, path = sys.argv[1:3]
call = getattr(importlib.import_module(tool), {"onnxsim": "simplify", "onnxslim": "slim"}[tool])
start = time.perf_counter()
model = call(path)
model = model[0] if isinstance(model, tuple) else model
seconds = time.perf_counter() - start
def count(graph):
    for n in graph.node:
        yield n.op_type
        for a in n.attribute:
            for g in [a.g, *a.graphs]:
                yield from count(g)
print(json.dumps({"seconds": seconds, "operators": dict(collections.Counter(count(model.graph)))}))
"""


def main() -> int:
    args = _arguments()
    if args.one:
        print(json.dumps(_timed(args) if args.speed else _counted(args.one)))
        return 0
    if args.json:
        require_replaceable(args.json, ROWS)
    rows = []
    print(_SPEED_HEAD if args.speed else _COUNT_HEAD, flush=True)
    for name in args.names or _known(args):
        path, feed = _made(args, name)
        row = {"name": name, **(_speed(args, path, feed) if args.speed else _counts(args, path))}
        for made in (path, feed):
            if made is not None and not args.keep:
                made.unlink()
        rows.append(row)
        print(_speed_line(row) if args.speed else _count_line(row), flush=True)
        if args.json:
            write_file(args.json, ROWS, json.dumps(rows, indent=1).encode())
    print(_speed_summary(rows) if args.speed else _count_summary(rows))
    return 1 if any("failed" in r or r.get("more") for r in rows) else 0


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--models", help="folder of structure files")
    p.add_argument("--light", action="store_true", help="the light_* networks of the onnx package, random weights")
    p.add_argument("--work", default=tempfile.gettempdir() + "/tilewright-simplify", help="where to make the networks")
    p.add_argument("--keep", action="store_true", help="do not delete them")
    p.add_argument("--peers", default=sys.executable, metavar="PYTHON", help="with onnxsim and onnxslim")
    p.add_argument("--speed", action="store_true")
    p.add_argument("--seconds", type=float, default=8.0, help="of timing, a network")
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--json", help="write the rows there too, after each")
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--feed", help=argparse.SUPPRESS)
    args = p.parse_args()
    if not args.models and not args.light and not args.one:
        p.error("one of --models and --light is needed")
    return args


def _known(args: argparse.Namespace) -> list[str]:
    if args.light:
        return [p.stem for p in light_models()]
    return sorted(p.name.removesuffix(".structure.onnx") for p in Path(args.models).glob("*.structure.onnx"))


def _made(args: argparse.Namespace, name: str) -> tuple[Path, Path | None]:
    """The network's file, and its inputs if there are recorded ones."""
    work = Path(args.work)
    if not args.light:
        path, _ = materialize(Path(args.models), name, work, 0)
        return path, work / f"{name}.case0.npz"
    from tilewright.frontend.model_file.random_weights import with_random_weights

    work.mkdir(parents=True, exist_ok=True)
    path = work / f"{name}.onnx"
    model = with_random_weights(next(p for p in light_models() if p.stem == name), seed=0)
    path.write_bytes(model.SerializeToString())
    return path, None


def _run(command: list[str]) -> dict:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    except subprocess.TimeoutExpired:
        return {"failed": "no result within 1800 s"}
    if run.returncode or not run.stdout.strip():
        return {"failed": (run.stderr.strip() or f"exit status {run.returncode}").splitlines()[-1][:300]}
    return json.loads(run.stdout.splitlines()[-1])


# -- counts --------------------------------------------------------------------------------------------------------
_COUNT_HEAD = (
    f"{'network':<28} {'original':>8} {'ours':>6} {'onnxsim':>8} {'onnxslim':>8} | seconds: {'ours':>6} "
    f"{'check':>6} {'onnxsim':>8} {'onnxslim':>8} | result"
)


def _counts(args: argparse.Namespace, path: Path) -> dict:
    ours = _run([sys.executable, __file__, "--one", str(path)])
    if "failed" in ours:
        return ours
    for tool in PEERS:
        peer = _run([args.peers, "-c", _PEER, tool, str(path)])
        peer["nodes"] = _nodes(peer["operators"]) if "operators" in peer else None
        ours[tool] = peer
    ours["more"] = [t for t in PEERS if ours[t]["nodes"] is not None and ours["after"] > ours[t]["nodes"]]
    return ours


def _counted(path: str) -> dict:
    from tilewright.simplification.options import SimplifyOptions
    from tilewright.simplification.simplify import simplify_model

    alone = simplify_model(path, SimplifyOptions(check=False))
    done = simplify_model(path, SimplifyOptions())
    checked = done.checked
    assert checked is not None
    return {
        "before": _nodes(done.before), "after": _nodes(done.after), "operators": dict(done.after),
        "seconds": alone.seconds, "check_seconds": done.seconds - alone.seconds, "runtime": checked.runtime,
        "cases": list(checked.cases), "worst": checked.worst, "notes": list(checked.notes),
    }  # fmt: skip


def _nodes(operators: dict[str, int]) -> int:
    return sum(n for op, n in operators.items() if op != "Constant")


def _count_line(r: dict) -> str:
    if "failed" in r:
        return f"{r['name']:<28} FAILED  {r['failed']}"
    counts = [str(r[t]["nodes"] if r[t]["nodes"] is not None else "failed") for t in PEERS]
    seconds = [f"{r[t]['seconds']:.1f}" if "seconds" in r[t] else "" for t in PEERS]
    where = "; ".join(c for c in r["cases"] if c)
    result = f"right, {r['worst']:.0e}" if r["runtime"] else "not checked"
    result += (f" ({where})" if where else "") + (" MORE" if r["more"] else "")
    return (
        f"{r['name']:<28} {r['before']:>8} {r['after']:>6} {counts[0]:>8} {counts[1]:>8} | {'':>8} "
        f"{r['seconds']:>6.1f} {r['check_seconds']:>6.1f} {seconds[0]:>8} {seconds[1]:>8} | {result}"
    )


def _count_summary(rows: list[dict]) -> str:
    good = [r for r in rows if "failed" not in r]
    lines = [
        f"{len(rows)} networks, {len(rows) - len(good)} failed, {sum(bool(r['more']) for r in good)} with more nodes"
    ]
    for tool in PEERS:
        both = [r for r in good if r[tool]["nodes"]]
        if both:
            fewer = sum(r["after"] < r[tool]["nodes"] for r in both)
            share = math.exp(statistics.fmean(math.log(r["after"] / r[tool]["nodes"]) for r in both))
            lines.append(
                f"{tool}: of {len(both)} ours is smaller in {fewer}; geometric mean of nodes {share:.3f} of its; "
                f"{sum(r['seconds'] for r in both):.1f} s for all, its {sum(r[tool]['seconds'] for r in both):.1f}"
            )
    return "\n".join(lines)


# -- speed ---------------------------------------------------------------------------------------------------------
_SPEED_HEAD = f"{'network':<28} {'original ms':>11} {'ours ms':>9} {'speed':>6} | nodes in onnxruntime"


def _speed(args: argparse.Namespace, path: Path, feed: Path | None) -> dict:
    command = [sys.executable, __file__, "--one", str(path), "--speed", "--seconds", str(args.seconds)]
    return _run([*command, "--threads", str(args.threads), *(["--feed", str(feed)] if feed else [])])


def _timed(args: argparse.Namespace) -> dict:
    from tilewright.simplification.options import SimplifyOptions
    from tilewright.simplification.simplify import simplify_model

    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "simple.onnx"
        simplify_model(args.one, SimplifyOptions(check=False)).save(result)
        sessions, nodes = zip(*(_session(p, args.threads, Path(folder)) for p in (args.one, result)), strict=True)
        feed = _feed(sessions[0], args.feed)
        samples: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + args.seconds
        turn = 0
        while time.perf_counter() < end or len(samples[1]) < 5:
            for k in (0, 1) if turn % 2 else (1, 0):
                start = time.perf_counter()
                sessions[k].run(None, feed)
                samples[k].append(time.perf_counter() - start)
            turn += 1
    original, ours = (statistics.median(s[2:]) for s in samples)
    return {"original": original, "ours": ours, "speed": original / ours, "nodes": nodes}


def _session(path: str | Path, threads: int, folder: Path):
    """A session as a user opens it, and how many nodes onnxruntime leaves."""
    import onnx
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    onnxruntime.InferenceSession(str(path), options)
    nodes = sum(
        n.op_type != "Constant" for n in onnx.load(folder / "optimized.onnx", load_external_data=False).graph.node
    )
    (folder / "optimized.onnx").unlink()
    plain = onnxruntime.SessionOptions()
    plain.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), plain), nodes


def _feed(session, recorded: str | None) -> dict[str, np.ndarray]:
    if recorded:
        with np.load(recorded) as arrays:
            known = {i.name for i in session.get_inputs()}
            return {n: arrays[n] for n in arrays.files if n in known}
    rng = np.random.default_rng(1)
    return {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}


def _speed_line(r: dict) -> str:
    if "failed" in r:
        return f"{r['name']:<28} FAILED  {r['failed']}"
    times = f"{r['original'] * 1e3:>11.2f} {r['ours'] * 1e3:>9.2f} {r['speed']:>6.3f}"
    return f"{r['name']:<28} {times} | {r['nodes'][0]} -> {r['nodes'][1]}"


def _speed_summary(rows: list[dict]) -> str:
    speeds = [r["speed"] for r in rows if "speed" in r]
    if not speeds:
        return "nothing timed"
    mean = math.exp(statistics.fmean(map(math.log, speeds)))
    return f"{len(speeds)} networks, geometric mean of the speeds {mean:.3f}, the lowest {min(speeds):.3f}"


if __name__ == "__main__":
    sys.exit(main())
