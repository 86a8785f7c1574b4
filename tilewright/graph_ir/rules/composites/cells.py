"""Cells of LSTM and GRU, written in products and activations, as one step of the operator.

Exporters write ``nn.LSTMCell`` and ``nn.GRUCell`` so, and loops over time that are unrolled. One step alone saves
nodes; :mod:`tilewright.graph_ir.passes.join_steps` makes one operator of all steps of a chain. The operators have their
gates in the order input, output, forget, cell and update, reset, hidden: weights are constants, whose rows are gathered
in that order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.graph_ir.ir import Attribute, Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, P, Rule, tensor_shape
from tilewright.graph_ir.rules.composites.gate_sums import Columns, GateSum, gate_sum
from tilewright.graph_ir.rules.files.defaults import is_all_zero
from tilewright.graph_ir.rules.views import VIEWS

_TYPES = ("float16", "float32")
"""Those of which onnxruntime computes the operators."""


@dataclass(frozen=True, slots=True)
class _Cell:
    """``gates``: the arguments of the activations, in the operator's order. ``x``: the input that they read.
    ``states``: for each gate the sum in which its state is multiplied, and the value that is multiplied. ``h``: the
    state, "" for one of zeros that the gates do not read. ``apart``: the last gate has the bias of its state apart."""

    op: str
    gates: tuple[GateSum, ...]
    x: str
    states: tuple[tuple[GateSum, str], ...]
    h: str
    attrs: tuple[tuple[str, Attribute], ...] = ()
    apart: bool = False

    @property
    def nodes(self) -> dict[str, Node]:
        sums = (*self.gates, *(s for s, _ in self.states))
        return {name: n for s in sums for name, n in s.nodes.items()}


def _lstm(m: Match) -> _Cell | str:
    sums: list[GateSum] = []
    for key in "iofg":
        total = gate_sum(m.editor, m[key])
        if isinstance(total, str):
            return total
        sums.append(total)
    read = _sources(sums)
    if not read:
        return NOT_HERE
    if len(read) > 2:
        return f"the gates read {len(read)} values, not an input and a state"
    if {*read} != {*_sources((sums[0], *sums[2:]))}:
        return "only the output gate reads a value, which may depend on the memory"
    if len(read) == 1:
        return _of_zero_state(m, _Cell("LSTM", tuple(sums), read[0], tuple((s, "") for s in sums), ""))
    fitting = [s for s in reversed(read) if m.editor.value(s).type == m.editor.value(m.output).type]
    if not fitting:
        return "neither value that the gates read has the shape of the new state"
    h = next((s for s in fitting if _is_state(m, s, sums)), fitting[0])
    return _Cell("LSTM", tuple(sums), next(s for s in read if s != h), tuple((s, h) for s in sums), h)


def _gru(m: Match) -> _Cell | str:
    ed, h, apart = m.editor, m["h"], "hn" in m.names
    new = gate_sum(ed, m["xn"] if apart else m["nn"])
    if isinstance(new, str):
        return new if apart else NOT_HERE
    reset = next((s for s in new.products if _gated(ed, s, h)), h)
    gating = _gated(ed, reset, h)
    if not apart and not gating:
        return NOT_HERE
    update, gate = gate_sum(ed, m["z"]), gate_sum(ed, m["r"] if apart else gating[1].inputs[0])
    last = gate_sum(ed, m["hn"]) if apart else new
    if isinstance(update, str) or isinstance(gate, str) or isinstance(last, str):
        return next(s for s in (update, gate, last) if isinstance(s, str))
    read = [s for s in _sources((update, gate, new, last)) if s not in (h, reset)]
    if len(read) != 1:
        return f"the gates read {len(read)} values besides the state"
    if h in new.products or (apart and {*last.products} - {h}):
        return "the reset gate scales another sum than the product of the state"
    if not apart and reset in _sources((update, gate)):
        return "the state behind the reset gate is read by another gate"
    gate.nodes.update({n.name: n for n in gating})
    attrs = (("linear_before_reset", 1),) if apart else ()
    cell = _Cell("GRU", (update, gate, new), read[0], ((update, h), (gate, h), (last, reset)), h, attrs, apart)
    if h in _sources((update, gate, last)):
        return cell
    return _of_zero_state(m, cell) if is_all_zero(ed, h) else "the gates do not read the state"


def _sources(sums: Sequence[GateSum]) -> list[str]:
    return list(dict.fromkeys(source for s in sums for source in s.products))


def _gated(ed: GraphEditor, name: str, h: str) -> tuple[Node, ...]:
    """The Mul of the state and a Sigmoid that makes ``name``, and the Sigmoid; () for another value."""
    node = ed.producer(name)
    if node is None or node.op != "Mul" or h not in node.inputs:
        return ()
    gate = ed.producer(node.inputs[1 - node.inputs.index(h)])
    return (node, gate) if gate is not None and gate.op == "Sigmoid" else ()


def _is_state(m: Match, source: str, gates: Sequence[GateSum]) -> bool:
    """True for what a cell before this one computes, or what the next one multiplies by the same weights as this."""
    if maker_of(m.editor, source, "LSTM") is not None:
        return True
    weights = {c.constant for g in gates for c in g.products.get(source, ())}
    return any(n.inputs[1] in weights for n in _products_of(m))


def _products_of(m: Match) -> list[Node]:
    """Products that read the new state: those of the next cell."""
    readers = m.editor.users(m.output)
    return [n for n in readers if n.op in ("Gemm", "MatMul") and n.inputs[0] == m.output and not n.domain]


def _of_zero_state(m: Match, cell: _Cell) -> _Cell | str:
    """A first cell, whose state of zeros is folded away: any weights of the state are right, those of the next cell
    make both alike."""
    units = (m.out_shape or ())[1].const
    states = []
    for gate, (state, _) in zip(cell.gates, cell.states, strict=True):
        guide = gate.products.get(cell.x)
        weights = None if guide is None else _alike(m, guide[0], units)
        if weights is None:
            return "the gates read one value, and no next cell tells the weights of the state"
        states.append((GateSum({"": [weights]}, state.rows, state.nodes), ""))
    return replace(cell, states=tuple(states), h="")


def _alike(m: Match, columns: Columns, units: int) -> Columns | None:
    """The same columns of a matrix of the next cell."""
    for n in _products_of(m):
        turned = bool(n.op == "Gemm" and n.attr("transB"))
        here, there = m.editor.constant(columns.constant), m.editor.constant(n.inputs[1])
        if here is None or there is None or len(there.shape) != 2 or there.shape[turned] != units:
            continue
        if there.shape[1 - turned] == here.shape[1 - columns.turned]:
            return replace(columns, constant=n.inputs[1], turned=turned, first=0, last=units)
    return None


def maker_of(ed: GraphEditor, name: str, op: str) -> Node | None:
    """The node of that operator of which ``name`` is a result, perhaps seen with other axes of size 1."""
    maker = ed.producer(name)
    while maker is not None and maker.op in VIEWS and not maker.domain:
        maker = ed.producer(maker.inputs[0])
    return maker if maker is not None and maker.op == op and not maker.domain else None


def _guard(find: Callable[[Match], _Cell | str], most_rows: int | None) -> Callable[[Match], str | None]:
    """A guard that takes cells of at most ``most_rows`` sequences; None: of any number."""

    def guard(m: Match) -> str | None:
        shape = m.out_shape
        states = [m.shape(key) for key in ("c", "h") if key in m.names]
        if shape is None or len(shape) != 2 or shape[1].value() is None or any(s != shape for s in states):
            return NOT_HERE
        cell = find(m)
        if isinstance(cell, str):
            return cell
        x = m.editor.value(cell.x)
        if tensor_shape(x) is None or (tensor_shape(x) or ())[0] != shape[0]:
            return "input and state have other batches"
        if x.dtype.name not in _TYPES:
            return f"onnxruntime has no {cell.op} of {x.dtype}"
        rows = shape[0].value()
        if most_rows is not None and (rows is None or rows > most_rows):
            return f"steps of {shape[0]} sequences are faster as products of these rows"
        return _used_elsewhere(m, cell)

    return guard


def _used_elsewhere(m: Match, cell: _Cell) -> str | None:
    covered = {n.name: n for n in m.inner} | cell.nodes
    free = {m.node("cell").outputs[0]} if "cell" in m.nodes else set()
    for n in covered.values():
        for o in n.outputs:
            outside = m.editor.is_output(o) or any(u.name not in {*covered, m.root.name} for u in m.editor.users(o))
            if o not in free and outside:
                return f"'{o}' is also used elsewhere"
    return None


def _operator(m: Match, cell: _Cell) -> tuple[str, str]:
    """The new state, and the new memory of an LSTM, by one step of the operator."""
    ed, units = m.editor, (m.out_shape or ())[1].const
    dtype, ends = ed.value(m.output).dtype.numpy, ed.add_constant(np.array([0], np.int64), "axis")
    width = next(c.last - c.first for g in cell.gates for c in g.products.get(cell.x, ()))
    inputs = [g.matrix(ed, cell.x, (units, width), dtype) for g in cell.gates]
    states = [s.matrix(ed, source, (units, units), dtype) for s, source in cell.states]
    biases = [g.bias(ed, units, dtype) for g in cell.gates] + [np.zeros(units, dtype)] * len(cell.gates)
    if cell.apart:
        biases[-1] = cell.states[-1][0].bias(ed, units, dtype)
    arrays = (np.concatenate(inputs)[None], np.concatenate(states)[None], np.concatenate(biases)[None])
    before = maker_of(ed, cell.h, cell.op) if cell.h else None
    shared = () if before is None else before.inputs[1:4]
    weights = (_weights(m, a, (*shared, "", "", "")[k]) for k, a in enumerate(arrays))
    first = [m.op("Unsqueeze", m[key], ends) for key in ("c",) if key in m.names]
    h = m.op("Unsqueeze", cell.h, ends) if cell.h else ""
    needed = 3 if "cell" in m.nodes and _is_read(m) else 1
    operands = (m.op("Unsqueeze", cell.x, ends), *weights, *(("", h, *first) if h or first else ()))
    attrs: dict[str, Attribute] = {"hidden_size": units, **dict(cell.attrs)}
    made = ed.add(cell.op, operands, attrs, m.output, needed, stands_for=m.root)
    y = m.op("Squeeze", made[0], ed.add_constant(np.array([0, 1], np.int64), "axes"))
    return y, m.op("Squeeze", made[2], ends) if needed == 3 else ""


def _is_read(m: Match) -> bool:
    """True if others than the new state read the new memory."""
    return m.editor.use_count(m.node("cell").outputs[0]) > 1


def _weights(m: Match, array: np.ndarray, before: str) -> str:
    """A constant; that of the cell before, if it is the same."""
    known = m.editor.array(before) if before else None
    return before if known is not None and np.array_equal(known, array) else m.editor.add_constant(array, "weights")


def _as_lstm(m: Match) -> str | None:
    found = _lstm(m)
    if isinstance(found, str):
        return None
    y, memory = _operator(m, found)
    if memory:
        old = m.node("cell").outputs[0]
        m.editor.replace_uses(old, memory)
        m.editor.drop_if_dead(old)
    return y


def _as_gru(m: Match) -> str | None:
    found = _gru(m)
    return None if isinstance(found, str) else _operator(m, found)[0]


_MEMORY = P("Add", P("Mul", P("Sigmoid", "f"), "c"), P("Mul", P("Sigmoid", "i"), P("Tanh", "g")), at="cell")
_UPDATE = P("Sigmoid", "z")
_NEW = Either(P("Tanh", P("Add", "xn", P("Mul", P("Sigmoid", "r"), "hn"))), P("Tanh", "nn"))


def cell_rules(most_rows: int | None) -> tuple[Rule, ...]:
    """``most_rows``: in builds, the largest batch of which the operator takes no longer than products of rows."""
    return (
        Rule(
            "lstm_cell",
            "c' = s(f)*c + s(i)*tanh(g), h' = s(o)*tanh(c'), gates x@W + h@R + b --> LSTM of one step; in a build, of"
            " one sequence",
            P("Mul", P("Sigmoid", "o"), P("Tanh", _MEMORY)),
            _as_lstm,
            _guard(_lstm, most_rows),
            Exactness.REASSOCIATING,
        ),
        Rule(
            "gru_cell",
            "h' = (h - n)*s(z) + n, n = tanh(x@W + b + s(r)*(h@R + d)) --> GRU of one step; also (1 - s(z))*n + s(z)*h,"
            " and tanh(x@W + (s(r)*h)@R + b); in a build, of one sequence",
            Either(
                P("Add", P("Mul", P("Sub", "h", _NEW), _UPDATE), _NEW),
                P("Add", P("Mul", P("Sub", C("one", 1.0), _UPDATE), _NEW), P("Mul", _UPDATE, "h")),
            ),
            _as_gru,
            _guard(_gru, most_rows),
            Exactness.REASSOCIATING,
        ),
    )


RULES = cell_rules(most_rows=None)
"""For graphs that become files, which others run."""
