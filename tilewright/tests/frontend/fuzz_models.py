"""Mutated model files: the importer must accept them or raise one of the package's errors, quickly.

``python -m tilewright.tests.frontend.fuzz_models --count 20000 --seed 1`` runs longer than the test suite does; a
failure prints the case number, with which ``--only`` repeats it.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import onnx

from tilewright.core.errors import TilewrightError, UnsupportedError, VerifyError
from tilewright.frontend import from_onnx
from tilewright.frontend.importer import BROKEN_ASSUMPTION
from tilewright.tests.frontend.models import MODELS

Rng = np.random.Generator
MAX_SECONDS = 5.0

_HUGE = (2**31, 2**33, 2**40, 2**40 + 1, 2**62, 2**63 - 1, -1, -(2**62), 0)


# -- mutations of bytes --------------------------------------------------------------------------------------------
def truncate(data: bytes, rng: Rng) -> bytes:
    return data[: int(rng.integers(0, len(data)))]


def flip_bits(data: bytes, rng: Rng) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        out[int(rng.integers(0, len(out)))] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)


def splice(data: bytes, rng: Rng) -> bytes:
    """Copy a piece of the file somewhere else, over or between what is there."""
    a, b = sorted(int(v) for v in rng.integers(0, len(data), 2))
    at = int(rng.integers(0, len(data)))
    keep = at if rng.random() < 0.5 else min(len(data), at + b - a)
    return data[:at] + data[a : min(b, a + 64)] + data[keep:]


# -- mutations of messages -----------------------------------------------------------------------------------------
def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    found = [model.graph]
    for g in found:
        found.extend(a.g for n in g.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return found


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [n for g in _graphs(model) for n in g.node] + [n for f in model.functions for n in f.node]


def _pick(items: Sequence[object], rng: Rng) -> object:
    return items[int(rng.integers(0, len(items)))]


def cyclic_edge(model: onnx.ModelProto, rng: Rng) -> None:
    nodes = [n for n in _nodes(model) if n.input]
    target, source = _pick(nodes, rng), _pick(nodes, rng)
    target.input[int(rng.integers(0, len(target.input)))] = source.output[0]  # type: ignore[attr-defined]


def drop_initializer(model: onnx.ModelProto, rng: Rng) -> None:
    if model.graph.initializer:
        del model.graph.initializer[int(rng.integers(0, len(model.graph.initializer)))]


def huge_dims(model: onnx.ModelProto, rng: Rng) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        t = _pick(model.graph.initializer, rng)
        if t.dims:  # type: ignore[attr-defined]
            t.dims[0] = _pick(_HUGE, rng)  # type: ignore[attr-defined]
    else:
        dims = _pick(model.graph.input, rng).type.tensor_type.shape.dim  # type: ignore[attr-defined]
        if dims:
            _pick(dims, rng).dim_value = _pick(_HUGE, rng)  # type: ignore[attr-defined]


def huge_constant(model: onnx.ModelProto, rng: Rng) -> None:
    """Absurd numbers where shapes are computed from."""
    ints = [t for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT64 and t.raw_data]
    if ints:
        t = _pick(ints, rng)
        t.raw_data = np.int64(_pick(_HUGE, rng)).tobytes() * (len(t.raw_data) // 8)  # type: ignore[attr-defined]


def swap_type(model: onnx.ModelProto, rng: Rng) -> None:
    code = int(rng.integers(0, 30))
    if model.graph.initializer and rng.random() < 0.5:
        _pick(model.graph.initializer, rng).data_type = code  # type: ignore[attr-defined]
    else:
        _pick(model.graph.input, rng).type.tensor_type.elem_type = code  # type: ignore[attr-defined]


def rewire(model: onnx.ModelProto, rng: Rng) -> None:
    nodes = _nodes(model)
    names = [v for n in nodes for v in (*n.input, *n.output)] + ["", "nowhere"]
    n = _pick(nodes, rng)
    side = n.input if rng.random() < 0.6 else n.output  # type: ignore[attr-defined]
    if side:
        side[int(rng.integers(0, len(side)))] = _pick(names, rng)


def change_operator(model: onnx.ModelProto, rng: Rng) -> None:
    operators = ("Conv", "Reshape", "Loop", "If", "Scan", "Constant", "Softmax", "NoSuch", "", "Resize", "Einsum",
                 "SequenceMap", "Split", "TopK", "LSTM", "Expand", "Range", "Tile", "Attention", "Pad")  # fmt: skip
    _pick(_nodes(model), rng).op_type = _pick(operators, rng)  # type: ignore[attr-defined]


def change_attribute(model: onnx.ModelProto, rng: Rng) -> None:
    attrs = [a for n in _nodes(model) for a in n.attribute]
    if not attrs:
        return
    a = _pick(attrs, rng)
    match int(rng.integers(0, 4)):
        case 0:
            a.type = int(rng.integers(0, 15))  # type: ignore[attr-defined]
        case 1:
            a.name = _pick(("axis", "pads", "to", "nothing", ""), rng)  # type: ignore[attr-defined]
        case 2:
            a.i = _pick(_HUGE, rng)  # type: ignore[attr-defined]
        case _ if a.ints:  # type: ignore[attr-defined]
            a.ints[0] = _pick(_HUGE, rng)  # type: ignore[attr-defined]


def cut_payload(model: onnx.ModelProto, rng: Rng) -> None:
    filled = [t for t in model.graph.initializer if t.raw_data]
    if filled:
        t = _pick(filled, rng)
        t.raw_data = t.raw_data[: int(rng.integers(0, len(t.raw_data)))]  # type: ignore[attr-defined]


def change_version(model: onnx.ModelProto, rng: Rng) -> None:
    if rng.random() < 0.2:
        model.ir_version = int(_pick((0, 1, 3, 99, 2**40), rng))  # type: ignore[call-overload]
    elif model.opset_import:
        model.opset_import[0].version = int(rng.integers(-1, 40))


def repeat_or_drop(model: onnx.ModelProto, rng: Rng) -> None:
    g = _pick(_graphs(model), rng)
    parts = [p for p in (g.node, g.input, g.output, g.initializer, model.opset_import, model.functions) if p]  # type: ignore[attr-defined]
    part = _pick(parts, rng)
    k = int(rng.integers(0, len(part)))  # type: ignore[arg-type]
    if rng.random() < 0.5:
        del part[k]  # type: ignore[attr-defined]
    else:
        part.add().CopyFrom(part[k])  # type: ignore[attr-defined,index]


BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (truncate, flip_bits, flip_bits, splice)
MESSAGES: tuple[Callable[[onnx.ModelProto, Rng], None], ...] = (
    cyclic_edge, drop_initializer, huge_dims, huge_constant, swap_type, rewire, change_operator, change_attribute,
    cut_payload, change_version, repeat_or_drop,
)  # fmt: skip


def mutated(seed: int, case: int) -> tuple[str, bytes]:
    """Case number ``case`` of a seed: what was done, and the file."""
    rng = np.random.default_rng((seed, case))
    name = sorted(MODELS)[int(rng.integers(0, len(MODELS)))]
    model = MODELS[name]()
    steps = [name]
    if rng.random() < 0.4:
        change = BYTES[int(rng.integers(0, len(BYTES)))]
        return f"{name} {change.__name__}", change(model.SerializeToString(), rng)
    for _ in range(int(rng.integers(1, 4))):
        mutate = MESSAGES[int(rng.integers(0, len(MESSAGES)))]
        steps.append(mutate.__name__)
        with contextlib.suppress(ValueError):  # nothing of that kind is left, or protobuf refuses the value
            mutate(model, rng)
    return " ".join(steps), model.SerializeToString()


def check(seed: int, case: int) -> str:
    """Import one case: "ok" or the error's type. Any other exception goes through.

    Slowness, a message of several lines and an error that only the safety net caught are AssertionErrors.
    """
    what, data = mutated(seed, case)
    start = time.perf_counter()
    try:
        from_onnx(data)
        outcome = "ok"
    except TilewrightError as e:
        outcome = type(e).__name__
        lines = str(e).splitlines()
        if isinstance(e, VerifyError) or str(e).startswith(BROKEN_ASSUMPTION):
            raise AssertionError(f"case {case} ({what}): {e}") from e
        if len(lines) != 1 and not isinstance(e, UnsupportedError):
            raise AssertionError(f"case {case} ({what}): expected one line, got {lines}") from e
    seconds = time.perf_counter() - start
    if seconds > MAX_SECONDS:
        raise AssertionError(f"case {case} ({what}): took {seconds:.1f} s")
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this case alone")
    args = parser.parse_args(argv)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    tally: Counter[str] = Counter()
    for case in range(args.count) if args.only is None else (args.only,):
        try:
            tally[check(args.seed, case)] += 1
        except BaseException:
            print(f"failed: --seed {args.seed} --only {case} ({mutated(args.seed, case)[0]})", file=sys.stderr)
            raise
    print(", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
