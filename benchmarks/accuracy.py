#!/usr/bin/env python3
"""Are the results right? One row per network and input case, against recorded results of onnxruntime (unoptimised).

    python benchmarks/accuracy.py --models DIR [NAME ...]     networks kept as NAME.structure.onnx + NAME.expect.json
    python benchmarks/accuracy.py --light                     the light_* networks of the onnx package, random weights

The error is the largest difference in units of the output's standard deviation; it must stay within
max(10 x the listed noise, 1e-4). Each network runs in a process of its own. Exit status 1 if any row fails.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

_QUANTIZED = ("-qdq", "-qop", "-dynq")


def main() -> int:
    args = _arguments()
    if args.one:
        return _one(Path(args.models), args.one, Path(args.work), args.threads)
    if args.one_light:
        return _one_light(args.one_light, args.threads)
    failed = 0
    rows = _light_jobs() if args.light else _model_jobs(args)
    for name, command in rows:
        run = subprocess.run([sys.executable, __file__, *command], capture_output=True, text=True, timeout=1800)
        out = run.stdout.strip()
        if run.returncode or not out:
            failed += 1
            tail = (run.stderr.strip() or f"exit status {run.returncode}").splitlines()[-1]
            out = f"{out}\n{name:<28} FAILED  {tail[:300]}".strip()
        print(out, flush=True)
    print(f"{len(rows)} networks, {failed} failed")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("names", nargs="*")
    p.add_argument("--models", help="folder of structure files")
    p.add_argument("--work", default=tempfile.gettempdir() + "/tilewright-models", help="where to materialize them")
    p.add_argument("--light", action="store_true")
    p.add_argument("--quantized", action="store_true", help="include quantized networks")
    p.add_argument("--threads", type=int)
    p.add_argument("--one", help=argparse.SUPPRESS)
    p.add_argument("--one-light", help=argparse.SUPPRESS)
    args = p.parse_args()
    if not args.light and not args.models and not args.one_light:
        p.error("one of --models and --light is needed")
    return args


def _model_jobs(args: argparse.Namespace) -> list[tuple[str, list[str]]]:
    found = sorted(p.name.removesuffix(".structure.onnx") for p in Path(args.models).glob("*.structure.onnx"))
    names = args.names or [n for n in found if args.quantized or not any(q in n for q in _QUANTIZED)]
    extra = ["--threads", str(args.threads)] if args.threads else []
    return [(n, ["--models", args.models, "--work", args.work, "--one", n, *extra]) for n in names]


def materialize(models: Path, name: str, work: Path, case: int) -> tuple[Path, dict[str, np.ndarray]]:
    """The network's file with weights (made once) and the inputs of one case."""
    work.mkdir(parents=True, exist_ok=True)
    target, feed = work / f"{name}.onnx", work / f"{name}.case{case}.npz"
    if not target.exists() or not feed.exists():
        part = work / f"{name}.{case}.part"
        command = [sys.executable, str(models / "materialize.py"), str(models / f"{name}.structure.onnx"), str(part)]
        subprocess.run([*command, "--inputs", str(feed), "--case", str(case)], check=True, capture_output=True)
        part.replace(target)
    with np.load(feed) as arrays:
        return target, {k: arrays[k] for k in arrays.files}


def _noise(models: Path, name: str) -> float:
    """The noise listed for a network in the folder's README, 0 if there is none."""
    text = (models / "README.md").read_text(encoding="utf-8")
    row = re.search(rf"^\| {re.escape(name)} \|.*\| *([\d.e+-]+) *\|$", text, re.MULTILINE)
    return float(row.group(1)) if row else 0.0


def _one(models: Path, name: str, work: Path, threads: int | None) -> int:
    import tilewright

    expect = json.loads((models / f"{name}.expect.json").read_text(encoding="utf-8"))
    limit = max(10 * _noise(models, name), 1e-4)
    model = None
    bad = 0
    for k, case in enumerate(expect["cases"]):
        path, feed = materialize(models, name, work, k)
        if model is None:
            model = tilewright.compile(path, threads=threads, progress=False)
        results = model.run({s.name: feed[s.name] for s in model.inputs})
        worst, why = _compare(results, case)
        ok = worst <= limit and not why
        bad += not ok
        verdict = "ok" if ok else f"BAD {why}"
        print(f"{name:<28} case {k}  error {worst:8.1e}  limit {limit:7.1e}  {verdict}", flush=True)
    return 1 if bad else 0


def _compare(results: dict[str, np.ndarray], case: dict[str, dict[str, object]]) -> tuple[float, str]:
    worst, why = 0.0, ""
    for name, e in case.items():
        got = np.asarray(results[name])
        if list(got.shape) != e["shape"] or str(got.dtype) != e["dtype"]:
            return float("inf"), f"{name}: {got.dtype}{list(got.shape)}, expected {e['dtype']}{e['shape']}"
        flat = got.reshape(-1).astype(np.float64)
        samples = np.array(e["samples"], np.float64)
        mine = flat[:: int(str(e["stride"]))][: len(samples)]
        scale = float(str(e["std"])) or 1.0
        if got.dtype.kind != "f":
            scale = max(scale, 1.0)
        if not np.isfinite(flat).all():
            return float("inf"), f"{name}: not finite"
        errors = [np.abs(mine - samples).max(initial=0) / scale, abs(flat.mean() - float(str(e["mean"]))) / scale]
        worst = max(worst, *(float(x) for x in errors))
    return worst, why


def _light_jobs() -> list[tuple[str, list[str]]]:
    return [(p.stem, ["--one-light", str(p)]) for p in light_models()]


def light_models() -> list[Path]:
    """The light_* networks that the onnx package ships."""
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend/test/data/light").glob("light_*.onnx"))


def _one_light(path: str, threads: int | None) -> int:
    import onnxruntime

    import tilewright
    from tilewright.frontend.model_file.random_weights import with_random_weights

    model = with_random_weights(path, seed=0)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    rng = np.random.default_rng(1)
    feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    expected = session.run(None, feed)
    compiled = tilewright.compile(model, threads=threads, progress=False)
    results = compiled.run(None, feed)
    pairs = list(zip(results, expected, strict=True))
    worst = max(float(np.abs(a - b).max() / (b.std() or 1.0)) for a, b in pairs)
    ok = worst <= 1e-4
    print(f"{Path(path).stem:<28} case 0  error {worst:8.1e}  limit {1e-4:7.1e}  {'ok' if ok else 'BAD'}", flush=True)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
