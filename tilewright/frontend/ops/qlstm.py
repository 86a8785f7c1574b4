"""DynamicQuantizeLSTM: an LSTM whose weights are integers and whose inputs and states are quantized as they come.

As in onnxruntime, all inputs are quantized at once and the hidden state before each step, for all sequences of the
batch together; onnxruntime does so for the part of the batch that one of its threads has. So the operator is a Scan
over the steps for each direction, not an LSTM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.qproducts import dynamically_quantized, real_product
from tilewright.frontend.ops.rule import Family, contrib
from tilewright.graph_ir.ir import TensorType, Value

Activation = Callable[[GraphBuilder, str], str]
_DEFAULTS = ("sigmoid", "tanh", "tanh")
# activations by name, with their default alpha and beta where they have any
_NUMBERS: dict[str, tuple[float, ...]] = {
    "relu": (), "tanh": (), "sigmoid": (), "softsign": (), "softplus": (), "affine": (1.0, 0.0), "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,), "scaledtanh": (1.0, 1.0), "hardsigmoid": (0.2, 0.5), "elu": (1.0,),
}  # fmt: skip
_OPS = {
    "relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid", "softsign": "Softsign", "softplus": "Softplus",
    "leakyrelu": "LeakyRelu", "thresholdedrelu": "ThresholdedRelu", "hardsigmoid": "HardSigmoid", "elu": "Elu",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Direction:
    """The operands of one direction: weights [columns], their scale and zero point, initial states, peepholes."""

    backwards: bool
    activations: tuple[Activation, ...]
    products: str
    recurrent: tuple[str, str, str]
    states: tuple[str, str]
    peepholes: tuple[str, ...]


def _lstm(call: Call, build: GraphBuilder) -> None:
    kind = call.str_attr("direction", "forward")
    turns = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}.get(kind)
    if turns is None:
        call.error("an attribute direction of forward, reverse or bidirectional", kind)
    activations = _activations(call, len(turns))
    x = dynamically_quantized(build, call.input(0))
    done = [_run(call, build, _direction(call, build, d, back, activations[d], x)) for d, back in enumerate(turns)]
    for k, axis in ((0, 1), (1, 0), (2, 0)):
        if call.output(k):
            at = build.ints((axis,), "axis")
            parts = [build.emit("Unsqueeze", (results[k], at), "direction") for results in done]
            build.emit_to("Concat", parts, call.outputs[k : k + 1], {"axis": axis})


def _direction(
    call: Call, build: GraphBuilder, d: int, backwards: bool, activations: tuple[Activation, ...],
    x: tuple[str, str, str],
) -> _Direction:  # fmt: skip
    """What direction ``d`` works on; ``x``: the quantized inputs, their scale and zero point."""

    def part(i: int) -> str:
        return build.emit("Gather", (call.input(i), build.constant(np.array(d, np.int64), "d")), "part", axis=0)

    w, r, w_scale, w_zero, r_scale, r_zero = (part(i) for i in (1, 2, 8, 9, 10, 11))
    products = real_product(build, x[0], w, x[1], w_scale, x[2], w_zero)
    if call.input(3):
        products = build.emit("Add", (products, _sum_of_halves(build, part(3))), "products")
    sizes = [build.emit("Shape", (v,), "size", start=k, end=k + 1) for v, k in ((call.input(0), 1), (r, 0))]
    shape = build.emit("Concat", sizes, "state_shape", axis=0)
    nothing = build.scalar_like(0.0, call.input(0), "nothing")
    hidden, memory = (part(i) if call.input(i) else build.emit("Expand", (nothing, shape), "state") for i in (5, 6))
    peepholes = _pieces(build, part(7), 3) if call.input(7) else ()
    return _Direction(backwards, activations, products, (r, r_scale, r_zero), (hidden, memory), peepholes)


def _pieces(build: GraphBuilder, x: str, count: int) -> tuple[str, ...]:
    """Equal parts along the last axis."""
    names = tuple(build.name(f"piece{k}") for k in range(count))
    build.emit_to("Split", (x,), names, {"axis": -1, "num_outputs": count})
    return names


def _sum_of_halves(build: GraphBuilder, x: str) -> str:
    return build.emit("Add", _pieces(build, x, 2), "bias")


def _run(call: Call, build: GraphBuilder, d: _Direction) -> tuple[str, str, str]:
    """All hidden states [steps, batch, hidden] in order of time, and the last states."""
    lengths, products = call.input(4), d.products
    if d.backwards:
        products = _turned(build, products, lengths)
    scanned = [products, *([_is_running(build, call.input(0), lengths)] if lengths else [])]
    outputs = tuple(build.name(n) for n in ("last_hidden", "last_memory", "all_hidden"))
    body = build.nested()
    names = [build.state.value_name(n) for n in ("h", "c", "x_products", *(["running"] if lengths else []))]
    for name, dtype in zip(names, (*[dtypes.float32] * 3, dtypes.bool_), strict=False):
        body.define_value(Value(name, TensorType(dtype, None)))
    body.state.dtypes.update(dict.fromkeys(names[:3], dtypes.float32))
    results = _step(call, body, d, names)
    graph = body.body("step", names, results)
    build.emit_to("Scan", (*d.states, *scanned), outputs, {"body": graph, "num_scan_inputs": len(scanned)})
    history = _turned(build, outputs[2], lengths) if d.backwards else outputs[2]
    return history, outputs[0], outputs[1]


def _turned(build: GraphBuilder, x: str, lengths: str) -> str:
    """[steps, ...] in the other order, every sequence within its own length."""
    if lengths:
        wide = build.emit("Cast", (lengths,), "lengths", to=dtypes.int64)
        return build.emit("ReverseSequence", (x, wide), "turned", time_axis=0, batch_axis=1)
    ends = [build.ints((v,), "end") for v in (-1, np.iinfo(np.int64).min + 1, 0, -1)]
    return build.emit("Slice", (x, *ends), "turned")


def _is_running(build: GraphBuilder, x: str, lengths: str) -> str:
    """[steps, batch, 1]: whether a sequence has that step."""
    zero, one = (build.constant(np.array(v, np.int64), "bound") for v in (0, 1))
    steps = build.emit("Squeeze", (build.emit("Shape", (x,), "steps", start=0, end=1),), "steps")
    time = build.emit("Unsqueeze", (build.emit("Range", (zero, steps, one)), build.ints((1, 2), "axes")), "time")
    wide = build.emit("Cast", (lengths,), "lengths", to=dtypes.int64)
    return build.emit("Less", (time, build.emit("Unsqueeze", (wide, build.ints((0, 2), "axes")))), "running")


def _step(call: Call, body: GraphBuilder, d: _Direction, names: list[str]) -> tuple[str, str, str]:
    """The states after a step, and what it gives."""
    hidden, memory = names[:2]
    q, scale, zero = dynamically_quantized(body, hidden)
    r, r_scale, r_zero = d.recurrent
    total = body.emit("Add", (names[2], real_product(body, q, r, scale, r_scale, zero, r_zero)), "total")
    gates = _pieces(body, total, 4)  # input, output, forget, cell
    first, second, third = d.activations

    def gate(n: int, peephole: int | None, state: str, f: Activation) -> str:
        v = gates[n]
        if peephole is not None and d.peepholes:
            v = body.emit("Add", (v, body.emit("Mul", (d.peepholes[peephole], state), "peep")), "gate")
        return f(body, _clipped(call, body, v))

    i = gate(0, 0, memory, first)
    if call.int_attr("input_forget", 0):
        forget = body.emit("Sub", (body.scalar_like(1.0, hidden, "one"), i), "forget")
    else:
        forget = gate(2, 2, memory, first)
    new = body.emit("Mul", (i, gate(3, None, memory, second)), "new")
    kept = body.emit("Add", (body.emit("Mul", (forget, memory), "kept"), new), "memory")
    out = body.emit("Mul", (gate(1, 1, kept, first), third(body, kept)), "hidden")
    if len(names) < 4:
        return out, kept, body.emit("Identity", (out,), "given")
    running = names[3]
    given = body.emit("Where", (running, out, body.scalar_like(0.0, hidden, "nothing")), "given")
    states = [body.emit("Where", (running, a, b), "state") for a, b in ((out, hidden), (kept, memory))]
    return states[0], states[1], given


def _clipped(call: Call, body: GraphBuilder, v: str) -> str:
    limit = call.float_attr("clip", 0.0)
    if limit <= 0:
        return v
    bounds = [body.constant(np.array(b, np.float32), "bound") for b in (-limit, limit)]
    return body.emit("Clip", (v, *bounds), "clipped")


# -- activations ---------------------------------------------------------------------------------------------------
def _activations(call: Call, directions: int) -> list[tuple[Activation, ...]]:
    """Three a direction, with the numbers of activation_alpha and activation_beta that they take, in order."""
    given = call.attrs.get("activations")
    names = [str(n).lower() for n in given] if isinstance(given, tuple) and given else [*_DEFAULTS * directions]
    if len(names) != 3 * directions:
        call.error(f"{3 * directions} activations", len(names))
    lists = [_numbers(call, f"activation_{k}") for k in ("alpha", "beta")]
    made = []
    for name in names:
        if name not in _NUMBERS:
            raise UnsupportedError(f"node '{call.name}' ({call.op}): attribute activations: unknown name {name!r}")
        numbers = [left.pop(0) if left else v for v, left in zip(_NUMBERS[name], lists, strict=False)]
        made.append(_activation(name, numbers))
    return [tuple(made[3 * d : 3 * d + 3]) for d in range(directions)]


def _numbers(call: Call, key: str) -> list[float]:
    given = call.attrs.get(key)
    return [v for v in given if isinstance(v, int | float)] if isinstance(given, tuple) else []


def _activation(name: str, numbers: list[float]) -> Activation:
    def plain(body: GraphBuilder, v: str) -> str:
        return body.emit(_OPS[name], (v,), name, **dict(zip(("alpha", "beta"), numbers, strict=False)))

    def affine(body: GraphBuilder, v: str) -> str:
        alpha, beta = (body.scalar_like(n, v, "number") for n in numbers)
        return body.emit("Add", (body.emit("Mul", (v, alpha)), beta))

    def scaled_tanh(body: GraphBuilder, v: str) -> str:
        alpha, beta = (body.scalar_like(n, v, "number") for n in numbers)
        return body.emit("Mul", (body.emit("Tanh", (body.emit("Mul", (v, beta)),)), alpha))

    return {"affine": affine, "scaledtanh": scaled_tanh}.get(name, plain)


_MAKES = (
    "DynamicQuantizeLinear", "MatMulInteger", "Cast", "Mul", "Add", "Sub", "Gather", "Shape", "Concat", "Expand",
    "Split", "Scan", "Unsqueeze", "Squeeze", "Slice", "ReverseSequence", "Range", "Less", "Where", "Clip", "Identity",
    "Reshape", "CastLike", *_OPS.values(),
)  # fmt: skip

RULES: Family = {"DynamicQuantizeLSTM": contrib((0, 1, 2, 8, 9, 10, 11), _lstm, _MAKES)}
