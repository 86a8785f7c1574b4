#!/usr/bin/env python3
"""What do several callers of one session get? Against one caller, and against onnxruntime, in turns.

    python benchmarks/callers.py [--callers 16] [--threads 2] [--streams N] [--model MODEL.onnx] [--rounds 10]

Each round has as many runs by one caller as by all of them together (each a thread that calls in a loop). Printed are
the medians of runs a second, and of the round's slowest call beside its median call: with fair turns that is little
above 1. The default model is the light squeezenet of the onnx package with random weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from accuracy import light_models

_CALLS = 8
"""Of each caller in a round."""


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--callers", type=int, default=16)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--streams", type=int, default=0, help="calls at once (default: as they come)")
    p.add_argument("--model", default="")
    p.add_argument("--rounds", type=int, default=10)
    args = p.parse_args()
    import tilewright
    from tilewright.inspect.ort import open_session

    source: Any = args.model or _light()
    options = tilewright.SessionOptions(intra_op_num_threads=args.threads)
    if args.streams:
        options.add_session_config_entry("NUM_STREAMS", str(args.streams))
    ours = tilewright.InferenceSession(source, options)
    theirs = open_session(source, args.threads)
    rng = np.random.default_rng(0)
    feed = {
        a.name: rng.standard_normal([d if isinstance(d, int) else 1 for d in a.shape]).astype(np.float32)
        for a in ours.get_inputs()
    }
    runs: dict[str, Callable[[], object]] = {"tilewright": lambda: ours.run(None, feed)}
    if theirs is not None:
        runs["onnxruntime"] = lambda: theirs.run(None, feed)
    rates: dict[tuple[str, int], list[float]] = {}
    slowest: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for name, run in runs.items():
            for callers in (1, args.callers):
                seconds, waits = _round(run, callers, args.callers * _CALLS // callers)
                rates.setdefault((name, callers), []).append(args.callers * _CALLS / seconds)
            slowest.setdefault(name, []).append(max(waits) / statistics.median(waits))
    for name in runs:
        one, all_ = (statistics.median(rates[name, n]) for n in (1, args.callers))
        ratio = statistics.median(b / a for a, b in zip(rates[name, 1], rates[name, args.callers], strict=True))
        print(f"{name:<12} one caller {one:8.1f} runs/s, {args.callers} callers {all_:8.1f} ({ratio:.2f}x); "
              f"slowest call {statistics.median(slowest[name]):.2f} times the median")  # fmt: skip
    return 0


def _round(run: Callable[[], object], callers: int, calls: int) -> tuple[float, list[float]]:
    """Seconds of ``calls`` runs of each caller, and of each run."""
    waits: list[float] = []
    begin = threading.Barrier(callers + 1)

    def work() -> None:
        begin.wait()
        for _ in range(calls):
            start = time.perf_counter()
            run()
            waits.append(time.perf_counter() - start)

    threads = [threading.Thread(target=work) for _ in range(callers)]
    for t in threads:
        t.start()
    begin.wait()
    start = time.perf_counter()
    for t in threads:
        t.join()
    return time.perf_counter() - start, waits


def _light() -> Any:
    from tilewright.frontend.model_file.random_weights import with_random_weights

    return with_random_weights(next(p for p in light_models() if "squeezenet" in p.stem), seed=0)


if __name__ == "__main__":
    sys.exit(main())
