#!/usr/bin/env python3
"""How many tokens a second does a language model give? Against onnxruntime, in turns of some tokens.

    python benchmarks/decoder.py [--bits 4] [--fixed 1024] [--prompt 64] [--tokens 64] [--accuracy-level 4]
    python benchmarks/decoder.py --layers 16 --hidden 2048 --heads 32 --kv-heads 8 --intermediate 8192

The model is one that ONNX Runtime GenAI would export, with random weights (tilewright/tests/frontend/transformers/
decoders.py); its default sizes are those of Qwen2.5-0.5B. Ours is compiled twice: for a prompt of any length and for a
single row. Caches of a fixed length (--fixed) are updated in place by both sides, through ``out=`` and a binding, as an
engine that serves such models does it; caches that grow are new arrays in each call. Both sides decode greedily what
onnxruntime chooses, some tokens in a row, and their logits are compared at every token. The median of a token's seconds
counts. Each token reads all weights but the embedding: the bytes of what is stored for them, divided by the time of a
token, are the rate at which they were read. It is shown as a share of what memory delivers, which is measured before
and after the tokens of each turn: on a shared machine that changes from second to second. The machine should be
otherwise idle.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_ONE_ROW = {"batch_size": 1, "sequence_length": 1}
_TURN = 16
"""Tokens in a row of one side."""

_READS = 3
"""Of memory, before and after the tokens of a turn."""

_SETTLED, _PAUSE, _PATIENCE = 0.05, 0.02, 3.0
"""The share of a processor that this process may still use, the seconds over which it is looked at, and how long."""


def main() -> int:
    args = _arguments()
    import onnx

    import tilewright
    from tilewright.autotune.measure.peaks import memory_reader
    from tilewright.codegen.detect_cpu import detect_host
    from tilewright.inspect.ort import open_session
    from tilewright.tests.frontend.transformers.decoders import Decoder, decoder_model, past_names, present_name

    room = args.fixed or None
    if room is not None and room < args.prompt + args.tokens:
        raise SystemExit(f"--fixed: expected at least {args.prompt + args.tokens} rows, got {room}")
    d = Decoder(args.layers, args.hidden, args.heads, args.kv_heads, args.intermediate, args.vocabulary, args.bits,
                args.block, room, max(4096, args.prompt + args.tokens), args.accuracy_level)  # fmt: skip
    proto = decoder_model(d, args.seed)
    size = _read_bytes(proto)
    start = time.perf_counter()
    prompt_model = tilewright.compile(proto, threads=args.threads, progress=False)
    row_model = tilewright.compile(proto, threads=args.threads, progress=False, input_shapes=_ONE_ROW)
    print(f"compiled twice in {time.perf_counter() - start:.1f} s; {len(row_model.plan.steps)} steps a token")
    session = open_session(proto, args.threads)
    if session is None:
        raise SystemExit("onnxruntime is not installed")
    assert isinstance(proto, onnx.ModelProto)
    del proto
    names = [o.name for o in session.get_outputs()]

    def theirs(feed: dict) -> dict:
        return dict(zip(names, session.run(names, feed), strict=True))

    first, others = prompt_model.run, row_model.run
    if room is not None:
        caches = {n: present_name(n) for n in past_names(d.layers)}
        first, others = (_in_place(caches, m, d.vocabulary) for m in (prompt_model, row_model))
        theirs = _bound(caches, session, d.vocabulary)
    prompt = np.random.default_rng(args.seed).integers(0, d.vocabulary, (1, args.prompt))
    calls = {"tilewright": (first, others), "onnxruntime": (theirs, theirs)}
    read = memory_reader(detect_host(), args.threads)
    prompts, turns, worst = _decode(d, calls, prompt, args.tokens, read)
    rates = [rate / 1e9 for taken in turns.values() for _, rate in taken]
    print(f"weights read for a token: {size / 1e6:.1f} MB; read bandwidth of {args.threads} thread(s), beside the "
          f"tokens: {np.median(rates):.1f} GB/s ({min(rates):.1f} to {max(rates):.1f})")  # fmt: skip
    for who, taken in turns.items():
        tokens = [seconds for turn, _ in taken for seconds in turn]
        middle, share = float(np.median(tokens)), np.median([size / np.median(turn) / rate for turn, rate in taken])
        print(f"{who:<12} {1 / middle:8.1f} tokens/s  median {middle * 1e3:.2f} ms, least {min(tokens) * 1e3:.2f} ms, "
              f"{share:6.1%} of the bandwidth; prompt of {args.prompt}: {prompts[who] * 1e3:.0f} ms")  # fmt: skip
    print(f"logits differ by at most {worst:.1e} of the largest")
    return 0 if worst <= args.tolerance else 1


def _arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default, what in (
        ("layers", 24, ""), ("hidden", 896, "width of a row"), ("heads", 14, "of queries"), ("kv-heads", 2, ""),
        ("intermediate", 4864, "width inside the second half of a layer"), ("vocabulary", 151936, ""),
        ("block", 32, "weights that share a scale"), ("prompt", 64, "tokens of the prompt"),
        ("tokens", 64, "to decode"), ("threads", 2, ""), ("seed", 0, ""),
        ("fixed", 0, "rows of caches of a fixed length; 0: caches grow"),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=default, help=f"{what} (default: {default})".strip())
    p.add_argument("--bits", type=int, choices=(4, 8, 32), default=4, help="of a weight; 32: float32")
    p.add_argument("--accuracy-level", type=int, choices=(0, 1, 4), default=0,
                   help="4: onnxruntime may round rows to bytes, as most models of ONNX Runtime GenAI say")  # fmt: skip
    p.add_argument("--tolerance", type=float, default=1e-3, help="largest difference of logits, of the largest logit")
    return p.parse_args()


def _read_bytes(proto: object) -> int:
    """Bytes of the weights that one token reads: all but the table that a row is gathered from."""
    weights = {t.name: len(t.raw_data) for t in proto.graph.initializer}  # type: ignore[attr-defined]
    tables = {i for n in proto.graph.node if n.op_type.startswith("Gather") for i in n.input}  # type: ignore[attr-defined]
    return sum(size for name, size in weights.items() if name not in tables and not name.endswith("_cache"))


def _decode(
    d: object, calls: dict[str, tuple[Callable, Callable]], prompt: np.ndarray, count: int, read: Callable[[], float]
) -> tuple[dict[str, float], dict[str, list[tuple[list[float], float]]], float]:
    """Seconds of the prompt; of each turn the seconds of its tokens and the rate of ``read`` beside them; and the
    largest difference of logits.

    The sides take turns of some tokens in a row; onnxruntime, the last of ``calls``, goes first and chooses them."""
    caches = {who: d.empty_caches() for who in calls}  # type: ignore[attr-defined]
    prompts: dict[str, float] = {}
    turns: dict[str, list[tuple[list[float], float]]] = {who: [] for who in calls}
    inputs, worst = [prompt], 0.0
    for start in range(0, count + 1, _TURN):
        steps = range(start, min(start + _TURN, count + 1))
        logits: dict[str, list[np.ndarray]] = {who: [] for who in calls}
        for who, (first, others) in reversed(calls.items()):
            _settle()
            rates, tokens = [read() for _ in range(_READS)], []
            for k in steps:
                seen = sum(ids.shape[1] for ids in inputs[:k])
                feed = d.step(inputs[k], seen, caches[who])  # type: ignore[attr-defined]
                begun = time.perf_counter()
                results = (others if k else first)(feed)
                taken = time.perf_counter() - begun
                if k:
                    tokens.append(taken)
                else:
                    prompts[who] = taken
                caches[who] = d.next_caches(results)  # type: ignore[attr-defined]
                logits[who].append(results["logits"][0, -1].copy())
                if len(inputs) == k + 1:
                    inputs.append(logits[who][-1].argmax()[None, None])
            _settle()
            rates += [read() for _ in range(_READS)]
            turns[who].append((tokens, float(np.median(rates))))
        for ours, theirs in zip(*logits.values(), strict=True):
            worst = max(worst, float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    return prompts, turns, worst


def _in_place(caches: dict[str, str], model: Any, vocabulary: int) -> Callable[[dict], dict]:
    """Our side with caches that are updated where they lie, and logits in one array. ``caches``: outputs by input."""
    logits = _Kept(vocabulary)

    def call(feed: dict) -> dict:
        out = {present: feed[past] for past, present in caches.items()}
        return model.run(feed, out=out | {"logits": logits.of(feed)})

    return call


def _bound(caches: dict[str, str], session: Any, vocabulary: int) -> Callable[[dict], dict]:
    """The same of onnxruntime: a value is bound as input and as output."""
    import onnxruntime

    value_of, binding, logits = onnxruntime.OrtValue.ortvalue_from_numpy, session.io_binding(), _Kept(vocabulary)
    bound: dict[str, np.ndarray] = {}

    def call(feed: dict) -> dict:
        for name, array in feed.items():
            present = caches.get(name)
            if present is None:
                binding.bind_cpu_input(name, array)
            elif bound.get(present) is not array:
                bound[present] = array
                value = value_of(array)  # has the memory of the array
                binding.bind_ortvalue_input(name, value)
                binding.bind_ortvalue_output(present, value)
        result = logits.of(feed)
        if bound.get("logits") is not result:
            bound["logits"] = result
            binding.bind_ortvalue_output("logits", value_of(result))
        session.run_with_iobinding(binding)
        return bound

    return call


class _Kept:
    """The array of the logits, as long as calls have the same number of tokens."""

    def __init__(self, vocabulary: int) -> None:
        self._array = np.empty((1, 0, vocabulary), np.float32)

    def of(self, feed: dict) -> np.ndarray:
        rows = feed["input_ids"].shape[1]
        if self._array.shape[1] != rows:
            self._array = np.empty((1, rows, self._array.shape[2]), np.float32)
        return self._array


def _settle() -> None:
    """Wait until the threads of the side before have stopped looking for work: onnxruntime's do so for long, on a
    processor that the other side would have."""
    end = time.perf_counter() + _PATIENCE
    while time.perf_counter() < end:
        used, start = time.process_time(), time.perf_counter()
        time.sleep(_PAUSE)
        if time.process_time() - used < _SETTLED * (time.perf_counter() - start):
            return


if __name__ == "__main__":
    sys.exit(main())
