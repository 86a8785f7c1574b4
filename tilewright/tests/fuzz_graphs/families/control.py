"""Control flow with random bodies that read the graphs around them, sequences, optionals, recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.tests.fuzz_graphs.draft import Draft, Rejected, Val
from tilewright.tests.fuzz_graphs.families import elementwise, movement, reduction
from tilewright.tests.fuzz_graphs.families.movement import anything
from tilewright.tests.fuzz_graphs.protos import reads, value_info

SHARE = 1.6

_INNER = (*elementwise.GENERATORS.values(), *movement.GENERATORS.values(), *reduction.GENERATORS.values())


def _body(d: Draft) -> Draft:
    if d.outer is not None and d.outer.outer is not None:
        raise Rejected("deep enough")
    return Draft(d.rng, d.opset, d.variants, d.wild, alone=d.alone, outer=d)


def _fill(body: Draft, nodes: int) -> None:
    """Random nodes from the elementwise and movement families."""
    tries = 0
    while len(body.nodes) < nodes and tries < 6 * nodes:
        tries += 1
        try:
            body.one_of(_INNER)(body)
        except Rejected:
            continue


def _graph(body: Draft, inputs: list[onnx.ValueInfoProto], outputs: list[Val]) -> onnx.GraphProto:
    constants = [v for v in body.vals if v.kind == "const"]
    used = {n for node in body.nodes for n in reads(node)} | {o.name for o in outputs}
    return helper.make_graph(
        body.nodes, body.fresh("body"), inputs,
        [helper.make_empty_tensor_value_info(o.name) for o in outputs],
        [numpy_helper.from_array(c.array, c.name) for c in constants if c.name in used],
    )  # fmt: skip


def _as_node(body: Draft, v: Val) -> Val:
    """A value of the body itself with the contents of ``v``: subgraph outputs must be made in the subgraph."""
    if v in body.vals and v.kind == "node":
        return v
    return body.emit("Identity", [v])[0]


def if_(d: Draft) -> object:
    condition = d.given(np.array(d.chance(0.5)), 0.2)
    if d.chance(0.3):
        x = d.tensor([np.float32], range(5))
        (total,) = d.emit("ReduceMax", [x], {"keepdims": 0})
        (condition,) = d.emit("Greater", [total, d.scalar(0.5, np.float32, 1.0)])
    one, two = _body(d), _body(d)
    _fill(one, d.integer(1, 4))
    made = [v for v in one.vals if v.kind == "node" and v.is_tensor]
    if not made:
        raise Rejected("empty branch")
    results = [d.one_of(made) for _ in range(d.integer(1, 2))]
    others = []
    _fill(two, d.integer(0, 3))
    for r in results:
        same = [v for v in two.vals if v.kind == "node" and v.is_tensor and v.dtype == r.dtype and v.dims == r.dims]
        if same:
            others.append(_as_node(two, d.one_of(same)))
            continue
        outside = d.pick(lambda v, r=r: v.is_tensor and v.dtype == r.dtype and v.dims == r.dims)
        others.append(_as_node(two, outside if outside is not None else d.like(r, constant=0.5)))
    results = [_as_node(one, r) for r in results]
    if len({r.name for r in results}) < len(results) or len({o.name for o in others}) < len(others):
        raise Rejected("an output twice")
    branches = {"then_branch": _graph(one, [], results), "else_branch": _graph(two, [], others)}
    return d.emit("If", [condition], branches, len(results))


def loop(d: Draft) -> object:
    state = d.tensor([d.one_of([np.float32, np.float32, np.int64])], range(4), small=True)
    body = _body(d)
    step = Val(body.fresh("i"), "node", (np.array(0, np.int64),) * d.variants)
    going = Val(body.fresh("go"), "node", (np.array(True),) * d.variants)
    carried = Val(body.fresh("s"), "node", state.arrays)
    body.vals.extend([step, going, carried])
    _fill(body, d.integer(1, 4))
    made = [v for v in body.vals if v.kind == "node" and v.is_tensor]
    fitting = [v for v in made if v.dtype == state.dtype and v.dims == state.dims]
    after = _as_node(body, d.one_of(fitting))
    if after is carried:
        (after,) = body.emit("Add", [carried, d.like(carried, constant=0.5)])
    scans = [v for v in body.vals if v.kind == "node" and v.is_tensor and v not in (step, going, carried, after)]
    results = [d.one_of(scans)] if scans and d.chance(0.6) else []
    (again,) = body.emit("Identity", [going])
    if d.chance(0.3):
        (again,) = body.emit("Less", [step, d.scalar(d.integer(0, 4), np.int64, 1.0)])
    declared = [value_info(step.name, step.array), value_info(going.name, going.array)]
    declared.append(helper.make_tensor_value_info(carried.name, helper.np_dtype_to_tensor_dtype(carried.dtype), None))
    graph = _graph(body, declared, [again, after, *results])
    count = d.scalar(d.integer(0, 5), np.int64, 0.6) if d.chance(0.9) else None
    first = d.scalar(True, np.bool_, 0.8) if count is None or d.chance(0.3) else None
    if count is None and "Less" not in {n.op_type for n in body.nodes}:
        raise Rejected("without an end")
    return d.emit("Loop", [count, first, state], {"body": graph}, 1 + len(results))


def scan(d: Draft) -> object:
    x = d.tensor([np.float32], range(1, 4), small=True)
    state = d.new(np.float32, x.dims[1:], 0.3, named=0.0)
    body = _body(d)
    held = Val(body.fresh("s"), "node", state.arrays)
    if min(x.dims[0]) == 0:
        raise Rejected("no steps")
    row = Val(body.fresh("r"), "node", tuple(a[0] for a in x.arrays))  # type: ignore[index]
    row = Val(row.name, "node", tuple(np.asarray(a) for a in row.arrays))
    body.vals.extend([held, row])
    (mixed,) = body.emit(d.one_of(["Add", "Mul", "Max", "Sub"]), [held, row])
    _fill(body, d.integer(0, 3))
    made = [v for v in body.vals if v.kind == "node" and v.is_tensor and v not in (held, row)]
    result = d.one_of(made)
    if result is mixed:
        (result,) = body.emit("Neg", [mixed])
    declared = [helper.make_tensor_value_info(v.name, onnx.TensorProto.FLOAT, None) for v in (held, row)]
    attrs: dict[str, object] = {"body": _graph(body, declared, [mixed, result]), "num_scan_inputs": 1}
    if d.chance(0.3):
        attrs["scan_input_directions"] = [1]
    if d.chance(0.3):
        attrs["scan_output_directions"] = [1]
    return d.emit("Scan", [state, x], attrs, 2)


def sequence(d: Draft) -> object:
    """Made, changed, and taken apart again."""
    if d.opset < 11:
        raise Rejected("from 11 on")
    x = anything(d, range(1, 4), small=True)
    if d.chance(0.5):
        (s,) = d.emit("SequenceConstruct", [x, *(d.like(x) for _ in range(d.integer(0, 2)))])
    else:
        (s,) = d.emit("SplitToSequence", [x], {"axis": d.axis(x.rank), "keepdims": d.integer(0, 1)})
    for _ in range(d.integer(0, 2)):
        where = [d.scalar(0, np.int64)] if d.chance(0.5) else []
        (s,) = d.emit("SequenceInsert", [s, x, *where]) if d.chance(0.6) else d.emit("SequenceErase", [s, *where])
    end = d.integer(0, 3)
    if end == 0:
        return d.emit("SequenceLength", [s])
    if end == 1:
        return d.emit("SequenceAt", [s, d.scalar(d.integer(-1, 0), np.int64)])
    if end == 2:
        return d.emit("ConcatFromSequence", [s], {"axis": 0, "new_axis": d.integer(0, 1)})
    return s


def _recurrent(op: str, gates: int):  # type: ignore[no-untyped-def]
    def generate(d: Draft) -> object:
        layout = d.integer(0, 1) if d.opset >= 14 and d.chance(0.2) else 0
        steps, batch = d.dim(True), d.dim(True)
        width, hidden = d.fixed(d.integer(1, 9)), d.one_of([32, 64]) if d.chance(0.2) else d.integer(1, 9)
        way = d.one_of(["forward", "forward", "reverse", "bidirectional"])
        ways = 2 if way == "bidirectional" else 1
        x = d.new(np.float32, (batch, steps, width) if layout else (steps, batch, width), 0.1)
        w = d.weight(np.float32, (ways, gates * hidden, *width[:1]))
        states = (ways, gates * hidden, hidden)
        if hidden < 32:
            r = d.weight(np.float32, states)
        else:  # small: many states that are fed back with large weights double each rounding from step to step
            r = d.given((d.rng.uniform(-1, 1, states) / 8).astype(np.float32))
        operands: list[Val | None] = [x, w, r, None, None, None]
        if d.chance(0.6):
            operands[3] = d.weight(np.float32, (ways, 2 * gates * hidden))
        if d.chance(0.3) and min(min(steps), min(batch)) > 0:
            operands[4] = d.given([np.asarray(d.rng.integers(1, s + 1, b)).astype(np.int32)
                                   for s, b in zip(steps, batch, strict=True)], 0.3)  # fmt: skip
        start = (batch, d.fixed(ways), d.fixed(hidden)) if layout else (d.fixed(ways), batch, d.fixed(hidden))
        if d.chance(0.4):
            operands[5] = d.new(np.float32, start, 0.3)
        attrs: dict[str, object] = {"hidden_size": hidden, "direction": way}
        if layout:
            attrs["layout"] = 1
        if op == "GRU" and d.chance(0.5):
            attrs["linear_before_reset"] = 1
        if op == "LSTM":
            operands += [d.new(np.float32, start, 0.3) if d.chance(0.3) else None, None]
            if d.chance(0.3):
                operands[7] = d.weight(np.float32, (ways, 3 * hidden))
            if d.chance(0.15):
                attrs["input_forget"] = 1
        if d.chance(0.15):
            attrs["clip"] = 1.5
        while operands[-1] is None:
            operands.pop()
        outputs = [d.chance(0.8), d.chance(0.7)] + ([d.chance(0.5)] if op == "LSTM" else [])
        if not any(outputs):
            outputs[0] = True
        while not outputs[-1]:
            outputs.pop()
        return d.emit(op, operands, attrs, outputs)

    return generate


GENERATORS: Mapping[str, object] = {
    "If": if_, "Loop": loop, "Scan": scan, "Sequence": sequence,
    "LSTM": _recurrent("LSTM", 4), "GRU": _recurrent("GRU", 3), "RNN": _recurrent("RNN", 1),
}  # fmt: skip
