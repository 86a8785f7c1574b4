"""Mutated model files through compile and run, each in a process with limits of time and memory.

A case ends in results, which the graph interpreter judges where it can, or in one of the package's errors. A signal,
more than 20 seconds, more than 2 GB beyond what the process has anyway, another exception, an internal error, a message
of several lines, or a wrong result is a failure, printed with the command that repeats it:

``python -m tilewright.tests.api.fuzz_files --count 20000 --seed 1 --jobs 2`` is a long run; with ``--only 317`` in the
place of ``--count`` it is that case, which ``--keep case.onnx`` writes to a file.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

import numpy as np

from tilewright.commands.common import random_feed
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InternalError, ParseError, TilewrightError, UnsupportedError, VerifyError
from tilewright.core.plan import ControlStep, KernelStep, Plan
from tilewright.frontend import from_onnx
from tilewright.frontend.importer import BROKEN_ASSUMPTION
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, walk_graphs
from tilewright.tests.forked import HANG, Ended, Note, run_forked
from tilewright.tests.frontend.models import MODELS
from tilewright.tests.frontend.more_models import EXTERNAL_BYTES, MORE_MODELS
from tilewright.tests.frontend.mutations import mutated
from tilewright.tests.fuzz_graphs.tolerance import allowed, interpret_perturbed, mismatch

SECONDS = 20.0
BYTES = 2 << 30
ALL = {**MODELS, **MORE_MODELS}

_MOST_FLOPS = 1 << 31
_MOST_ELEMENTS = 1 << 26
_MOST_TRIPS = 1 << 12
_HUGE = 1e18
_SIZES = (1, 3, 5)
JUDGE = "step judge"
_OURS = (InternalError, VerifyError, ParseError)
_RANDOM = frozenset(("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
                     "RandomUniformLike"))  # fmt: skip


class Wrong(Exception):
    """A case that must not end like this."""


def run_case(seed: int, case: int, folder: Path, note: Note) -> None:
    """Compile and run one case; notes "step", then "ok" or what error it was. Raises where something is wrong."""
    what, data = mutated(ALL, seed, case)
    note(f"case {what}")
    path = folder / f"{case}.onnx"
    path.write_bytes(data)
    try:
        _compile_and_run(path, 1 + case % 2, np.random.default_rng((seed, case, 1)), note)
    except TilewrightError as e:
        text = str(e)
        if isinstance(e, _OURS) or text.startswith(BROKEN_ASSUMPTION):
            raise
        if not isinstance(e, UnsupportedError) and (len(text.splitlines()) != 1 or len(text) > 2000):
            raise Wrong(f"expected a message of one line, got {text[:3000]!r}") from e
        note(f"error {type(e).__name__}: {text}")
    finally:
        path.unlink()


def _compile_and_run(path: Path, threads: int, rng: np.random.Generator, note: Note) -> None:
    note("step compile")
    model = compile(path, threads=threads, progress=False)
    graph = from_onnx(path)
    inputs = {n: graph.values[n] for n in model.plan.inputs}
    if any(not isinstance(v.type, TensorType) or v.type.shape is None for v in inputs.values()):
        note("ok not run: an input without a shape")
        return
    symbols = sorted({s for v in inputs.values() for d in v.shape for s in d.free_vars()})
    for k in range(3 if symbols else 1):
        env = {s: int(rng.choice(_SIZES)) if k == 2 else _SIZES[k] for s in symbols}
        if sum(_elements(v, env) for v in graph.values.values()) > _MOST_ELEMENTS or _is_long(model.plan, env):
            note("ok not run: much work")
            return
        feed = random_feed({n: (v.dtype, v.shape) for n, v in inputs.items()}, env, int(rng.integers(0, 2**31)))
        if _loops_on(graph, feed):
            note("ok not run: a loop without an end that is near")
            return
        note("step run")
        got = model.run(feed)
        note(JUDGE)
        _judge(graph, feed, got, note)


def _elements(value: Value, env: Mapping[str, int]) -> int:
    """Elements of a tensor, counting only the sizes that ``env`` tells."""
    if not isinstance(value.type, TensorType) or value.type.shape is None:
        return 0
    return prod(d.evaluate(env) for d in value.type.shape if d.free_vars() <= env.keys())


def _is_long(plan: Plan, env: Mapping[str, int]) -> bool:
    """True if the arithmetic of kernels whose sizes ``env`` tells is too much for a test."""
    flops = [s.flops.evaluate(env) for s in plan.steps
             if isinstance(s, KernelStep) and s.flops is not None and s.flops.free_vars() <= env.keys()]  # fmt: skip
    inner = any(_is_long(b, env) for s in plan.steps if isinstance(s, ControlStep) for b in s.bodies)
    return inner or sum(flops) > _MOST_FLOPS


def _loops_on(graph: Graph, feed: Mapping[str, np.ndarray]) -> bool:
    """True if a Loop has no trip count, or a known one that is too high for a test."""
    for g in walk_graphs(graph):
        arrays = {**feed, **{n: c.array for n, c in (*graph.constants.items(), *g.constants.items())}}
        for n in g.nodes:
            if n.op == "Loop" and (not n.inputs[0] or np.any(arrays.get(n.inputs[0], 0) > _MOST_TRIPS)):
                return True
    return False


def _judge(graph: Graph, feed: Mapping[str, np.ndarray], got: Mapping[str, object], note: Note) -> None:
    nodes = [n for g in walk_graphs(graph) for n in g.nodes]
    if any(n.op in _RANDOM for n in nodes):
        note("ok random")
        return
    if any(isinstance(v, float) and abs(v) > _HUGE for n in nodes for _, v in n.attrs):
        note("ok unjudged: a huge coefficient, of which sums cancel")
        return
    if any(_is_stuffed(n, graph) for n in nodes):
        note("ok unjudged: weights that are no numbers, times zeros between the elements of an input")
        return
    try:
        samples = interpret_perturbed(graph, feed, 6)
    except (TilewrightError, MemoryError) as e:
        note(f"ok unjudged: {type(e).__name__}: {e}")
        return
    wrongs = [(n, mismatch(got[n], samples[0][n], allowed(samples, n))) for n in graph.outputs]
    if any(wrong for _, wrong in wrongs) and _overflows(graph, feed):
        samples = interpret_perturbed(graph, feed, 6, huge=True)
        wrongs = [(n, mismatch(got[n], samples[0][n], allowed(samples, n), huge=True)) for n in graph.outputs]
    for name, wrong in wrongs:
        if wrong:
            raise Wrong(f"{name}: {wrong}")
    note("ok compared")


def _is_stuffed(node: Node, graph: Graph) -> bool:
    """True for a ConvTranspose, which is computed as a Conv of an input with zeros inside, with odd weights."""
    weight = graph.constants.get(node.inputs[1]) if node.op == "ConvTranspose" else None
    return weight is not None and not bool(np.isfinite(weight.array.astype(np.float64)).all())


def _overflows(graph: Graph, feed: Mapping[str, np.ndarray]) -> bool:
    """True if a finite number is met whose square is none: sums and products of such depend on their order."""
    names = {o for n in graph.nodes for o in n.outputs if o} | graph.constants.keys() | feed.keys()
    values = interpret(graph, feed, keep=names).values()
    floats = [x[np.isfinite(x)] for x in values if isinstance(x, np.ndarray) and x.dtype.kind == "f"]
    return any(bool((np.abs(x) > np.sqrt(np.finfo(x.dtype).max)).any()) for x in floats)


def prepare(folder: Path) -> None:
    """The files that external data may point to, and a compile of every model, which fills the object cache."""
    (folder / "weights.bin").write_bytes(np.linspace(-1, 1, EXTERNAL_BYTES // 4, dtype=np.float32).tobytes())
    (folder / "folder").mkdir()
    os.mkfifo(folder / "pipe")
    os.environ["TILEWRIGHT_CACHE"] = str(folder / "cache")
    for name, make in ALL.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(make().SerializeToString())
        for threads in (1, 2):
            compile(path, threads=threads, progress=False)


@dataclass(slots=True)
class Summary:
    """What a run found."""

    tally: Counter[str] = field(default_factory=Counter)
    slowest: Ended | None = None
    largest: Ended | None = None

    def add(self, ended: Ended) -> None:
        self.tally["FAILED" if ended.failure else ended.notes[-1].split(":")[0]] += 1
        if self.slowest is None or ended.seconds > self.slowest.seconds:
            self.slowest = ended
        if self.largest is None or ended.peak_bytes > self.largest.peak_bytes:
            self.largest = ended

    def __str__(self) -> str:
        lines = [", ".join(f"{v} {k}" for k, v in sorted(self.tally.items()))]
        if self.slowest is not None and self.largest is not None:
            lines.append(f"slowest: case {self.slowest.case}, {self.slowest.seconds:.1f} s")
            lines.append(f"largest: case {self.largest.case}, {self.largest.peak_bytes >> 20} MB")
        return "\n".join(lines)


def fuzz(cases: Iterable[int], seed: int, jobs: int, show: Callable[[Ended], None]) -> Summary:
    """Run the cases of a seed; ``show`` gets each as it ends."""
    summary = Summary()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prepare(folder)
        for ended in run_forked(cases, lambda case, note: run_case(seed, case, folder, note), jobs, SECONDS, BYTES):
            if ended.failure == HANG and ended.notes[-1] == JUDGE:
                ended = replace(ended, notes=(*ended.notes, "ok unjudged: the interpreter takes too long"), failure="")
            summary.add(ended)
            show(ended)
    return summary


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--first", type=int, default=0, help="the first case, to go on from there")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this case alone, and say what it does")
    parser.add_argument("--keep", help="with --only: write the file there")
    args = parser.parse_args(argv)
    if args.only is not None and args.keep:
        Path(args.keep).write_bytes(mutated(ALL, args.seed, args.only)[1])

    def show(ended: Ended) -> None:
        if ended.failure or args.only is not None:
            told = "; ".join(n for n in ended.notes if n != ended.failure)
            print(f"--seed {args.seed} --only {ended.case} ({told}): {ended.failure or 'fine'}", flush=True)

    cases = range(args.first, args.count) if args.only is None else (args.only,)
    summary = fuzz(cases, args.seed, args.jobs, show)
    print(summary)
    return 1 if summary.tally["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
