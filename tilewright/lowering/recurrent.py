"""LSTM, GRU and RNN: the input products as one hoisted stage, then a recurrence over the time steps.

A state buffer holds the state before step 0 in its row 0 and the state after step s in row s + 1. A reverse direction
reads its inputs from the end. Beyond a sequence's own length the state stands still and the output is zero.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.intexpr import IntExpr, const
from tilewright.lowering.context import LowerContext, Rule, wide, widen, wrap_index
from tilewright.lowering.elementwise import elu, hard_sigmoid, leaky_relu, sigmoid, softplus
from tilewright.lowering.indexing import choose
from tilewright.tensor_ir.compute import (
    Reduction,
    Tensor,
    Update,
    Val,
    compute,
    constant,
    index_value,
    op,
    select,
    sum_over,
    update,
)

Activation = Callable[[Val], Val]

_ACTIVATIONS: dict[str, Callable[..., Val]] = {
    "relu": lambda x, a, b: op("max", x, 0.0),
    "tanh": lambda x, a, b: op("tanh", x),
    "sigmoid": lambda x, a, b: sigmoid(x),
    "affine": lambda x, a, b: x * (1.0 if a is None else a) + (0.0 if b is None else b),
    "leakyrelu": lambda x, a, b: leaky_relu(x, 0.01 if a is None else a),
    "thresholdedrelu": lambda x, a, b: select(x > (1.0 if a is None else a), x, 0.0),
    "scaledtanh": lambda x, a, b: op("tanh", x * (1.0 if b is None else b)) * (1.0 if a is None else a),
    "hardsigmoid": lambda x, a, b: hard_sigmoid(x, 0.2 if a is None else a, 0.5 if b is None else b),
    "elu": lambda x, a, b: elu(x, 1.0 if a is None else a),
    "softsign": lambda x, a, b: x / (op("abs", x) + 1.0),
    "softplus": lambda x, a, b: softplus(x),
}
# how many parameters of activation_alpha and activation_beta an activation takes
_PARAMETERS = {
    "affine": (1, 1), "leakyrelu": (1, 0), "thresholdedrelu": (1, 0), "scaledtanh": (1, 1), "hardsigmoid": (1, 1),
    "elu": (1, 0),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """One direction of a recurrent node: its sizes, and how to read its operands."""

    c: LowerContext
    direction: int
    backwards: bool
    gates: int
    activations: tuple[Activation, ...]

    @property
    def batch_first(self) -> bool:
        return bool(self.c.attr_int("layout", 0))

    @property
    def steps(self) -> IntExpr:
        return self.c.input(0).shape[1 if self.batch_first else 0]

    @property
    def batch(self) -> IntExpr:
        return self.c.input(0).shape[0 if self.batch_first else 1]

    @property
    def hidden(self) -> IntExpr:
        return self.c.input(2).shape[2]

    @property
    def dtype(self) -> DType:
        return wide(self.c.input(0).dtype)

    def length(self, b: IntExpr) -> Val | None:
        """The length of sequence ``b``; None if all have every step."""
        return self.c.input(4)[b].cast(dtypes.int64) if self.c.has_input(4) else None

    def place(self, s: IntExpr, b: IntExpr) -> IntExpr:
        """The time of step ``s``, and the step of time ``s``."""
        if not self.backwards:
            return s
        n = self.length(b)
        if n is None:
            return self.steps - 1 - s
        at = index_value(s)
        return wrap_index(select(at < n, n - 1 - at, at), self.steps)

    def x(self, s: IntExpr, b: IntExpr, k: IntExpr) -> Val:
        t = self.place(s, b)
        return widen(self.c.input(0)[(b, t, k) if self.batch_first else (t, b, k)])

    def weight(self, operand: int, name: str) -> Callable[[IntExpr, IntExpr], Val]:
        """``(k, g)`` element of a weight [directions, gates, k]; stored with gates innermost if it is a constant."""
        c, d = self.c, self.direction
        w = c.input(operand)
        if c.constants[operand] is not None and all(s.is_const for s in w.shape):

            def transposed(a: np.ndarray) -> np.ndarray:
                turned: np.ndarray = a[d].T
                return turned

            packed = c.packed(operand, transposed, (w.shape[2], w.shape[1]), f"recurrent_{name}{d}")
            return lambda k, g: widen(packed[k, g])
        return lambda k, g: widen(w[d, g, k])

    def bias(self, gate: int, j: IntExpr, recurrent: bool) -> Val:
        """The input bias, or the recurrent bias, of a gate."""
        if not self.c.has_input(3):
            return constant(0.0, self.dtype)
        return widen(self.c.input(3)[self.direction, self.hidden * (gate + (self.gates if recurrent else 0)) + j])

    def clip(self, v: Val) -> Val:
        limit = self.c.attr_float("clip", 0.0)
        return op("max", op("min", v, limit), -limit) if limit > 0 else v

    def state(self, operand: int, hint: str) -> Tensor:
        """The recorded state buffer, filled with the initial state in row 0 and zeros below."""
        c = self.c

        def body(s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            zero = constant(0.0, self.dtype)
            if not c.has_input(operand):
                return zero
            i = (b, const(self.direction), j) if self.batch_first else (const(self.direction), b, j)
            return select(index_value(s).equal(0), widen(c.input(operand)[i]), zero)

        return c.stage(compute(c.name(hint), (self.steps + 1, self.batch, self.hidden), body))

    def products(self, first: int, count: int) -> Tensor:
        """The recorded products of the inputs with the weights of ``count`` gates, plus the input bias."""
        c, h = self.c, self.hidden
        k = c.axis(c.input(0).shape[2], "k")
        w = self.weight(1, "w")
        name = c.name("x_products")
        raw = compute(
            name, (self.steps, self.batch, h * count),
            lambda s, b, g: sum_over(self.x(s, b, k.index) * w(k.index, g + h * first), k),
        )  # fmt: skip
        return c.stage(raw)

    def recurrent(self, source: Callable[..., Val], first: int, count: int) -> Tensor:
        """The product of a state with the recurrent weights of ``count`` gates (part of a recurrence)."""
        c, h = self.c, self.hidden
        k = c.axis(h, "k")
        r = self.weight(2, "r")

        def body(s: IntExpr, b: IntExpr, g: IntExpr) -> Reduction:
            return sum_over(source(s, b, k.index) * r(k.index, g + h * first), k)

        return compute(c.name("h_products"), (self.steps, self.batch, h * count), body, ordered=(0,))

    def stage(self, hint: str, f: Callable[..., Val]) -> Tensor:
        """A stage [steps, batch, hidden] of the recurrence."""
        return compute(self.c.name(hint), (self.steps, self.batch, self.hidden), f, ordered=(0,))

    def advance(self, state: Tensor, new: Callable[..., Val], hint: str) -> Update:
        """Write row s + 1 of a state; a finished sequence keeps what it had."""

        def body(s: IntExpr, b: IntExpr, j: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
            n, value = self.length(b), new(s, b, j)
            if n is not None:
                value = select(index_value(s) < n, value, state[s, b, j])
            return (s + 1, b, j), value

        return update(self.c.name(hint), state, (self.steps, self.batch, self.hidden), body, ordered=(0,))


def lstm_cell(cell: Cell) -> tuple[Tensor, Tensor]:
    """The recorded state histories (H, C)."""
    c, h = cell.c, cell.hidden
    f, g, out = cell.activations
    xs = cell.products(0, 4)
    hidden, memory = cell.state(5, "h_state"), cell.state(6, "c_state")
    hs = cell.recurrent(lambda s, b, k: hidden[s, b, k], 0, 4)

    def gate(n: int, s: IntExpr, b: IntExpr, j: IntExpr, peephole: int | None, at: IntExpr) -> Val:
        v = xs[s, b, j + h * n] + hs[s, b, j + h * n] + cell.bias(n, j, False) + cell.bias(n, j, True)
        if peephole is not None and c.has_input(7):
            v = v + widen(c.input(7)[cell.direction, j + h * peephole]) * memory[at, b, j]
        return cell.clip(v)

    i = cell.stage("gate_i", lambda s, b, j: f(gate(0, s, b, j, 0, s)))
    if c.attr_int("input_forget", 0):
        forget = cell.stage("gate_f", lambda s, b, j: 1.0 - i[s, b, j])
    else:
        forget = cell.stage("gate_f", lambda s, b, j: f(gate(2, s, b, j, 2, s)))
    candidate = cell.stage("gate_c", lambda s, b, j: g(gate(3, s, b, j, None, s)))
    next_c = cell.advance(
        memory, lambda s, b, j: forget[s, b, j] * memory[s, b, j] + i[s, b, j] * candidate[s, b, j], "next_c"
    )
    o = cell.stage("gate_o", lambda s, b, j: f(gate(1, s, b, j, 1, s + 1)))
    next_h = cell.advance(hidden, lambda s, b, j: o[s, b, j] * out(memory[s + 1, b, j]), "next_h")
    c.recurrence(cell.steps, "step", (hs, i, forget, candidate, next_c, o, next_h))
    return hidden, memory


def gru_cell(cell: Cell) -> tuple[Tensor, ...]:
    c, h = cell.c, cell.hidden
    f, g = cell.activations
    xs = cell.products(0, 3)
    hidden = cell.state(5, "h_state")
    reset_after = c.attr_int("linear_before_reset", 0)
    hs = cell.recurrent(lambda s, b, k: hidden[s, b, k], 0, 3 if reset_after else 2)

    def gate(n: int, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        v = xs[s, b, j + h * n] + hs[s, b, j + h * n] + cell.bias(n, j, False) + cell.bias(n, j, True)
        return f(cell.clip(v))

    z = cell.stage("gate_z", lambda s, b, j: gate(0, s, b, j))
    r = cell.stage("gate_r", lambda s, b, j: gate(1, s, b, j))
    stages: list[Tensor | Update] = [hs, z, r]
    if reset_after:

        def candidate(s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            inner = r[s, b, j] * (hs[s, b, j + h * 2] + cell.bias(2, j, True))
            return g(cell.clip(xs[s, b, j + h * 2] + inner + cell.bias(2, j, False)))

    else:
        kept = cell.stage("reset_h", lambda s, b, j: r[s, b, j] * hidden[s, b, j])
        rs = cell.recurrent(lambda s, b, k: kept[s, b, k], 2, 1)
        stages += [kept, rs]

        def candidate(s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            bias = cell.bias(2, j, False) + cell.bias(2, j, True)
            return g(cell.clip(xs[s, b, j + h * 2] + rs[s, b, j] + bias))

    new = cell.stage("gate_h", candidate)
    next_h = cell.advance(
        hidden, lambda s, b, j: (1.0 - z[s, b, j]) * new[s, b, j] + z[s, b, j] * hidden[s, b, j], "next_h"
    )
    c.recurrence(cell.steps, "step", (*stages, new, next_h))
    return (hidden,)


def rnn_cell(cell: Cell) -> tuple[Tensor, ...]:
    (f,) = cell.activations
    xs = cell.products(0, 1)
    hidden = cell.state(5, "h_state")
    hs = cell.recurrent(lambda s, b, k: hidden[s, b, k], 0, 1)

    def new(s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return f(cell.clip(xs[s, b, j] + hs[s, b, j] + cell.bias(0, j, False) + cell.bias(0, j, True)))

    cell.c.recurrence(cell.steps, "step", (hs, cell.advance(hidden, new, "next_h")))
    return (hidden,)


def _numbers(c: LowerContext, key: str) -> list[float]:
    given = c.attr(key)
    return [float(x) for x in given] if isinstance(given, tuple) else []


def _activations(c: LowerContext, defaults: tuple[str, ...], directions: int) -> list[tuple[Activation, ...]]:
    given = c.attr("activations")
    names = [str(n).lower() for n in given] if given else [n.lower() for n in defaults * directions]  # type: ignore[union-attr]
    alphas = _numbers(c, "activation_alpha")
    betas = _numbers(c, "activation_beta")
    made: list[Activation] = []
    for name in names:
        if name not in _ACTIVATIONS:
            raise c.unsupported(f"attribute activations: unknown name {name!r}")
        takes = _PARAMETERS.get(name, (0, 0))
        a = alphas.pop(0) if takes[0] and alphas else None
        b = betas.pop(0) if takes[1] and betas else None
        made.append(partial(_ACTIVATIONS[name], a=a, b=b))
    n = len(defaults)
    if len(made) != n * directions:
        raise c.unsupported(f"attribute activations must have {n * directions} entries, got {len(made)}")
    return [tuple(made[d * n : (d + 1) * n]) for d in range(directions)]


def _recurrent(gates: int, defaults: tuple[str, ...], run: Callable[[Cell], tuple[Tensor, ...]]) -> Rule:
    def rule(c: LowerContext) -> tuple[Tensor, ...]:
        direction = c.attr_str("direction", "forward")
        if direction not in ("forward", "reverse", "bidirectional"):
            raise c.unsupported(f"attribute direction: unknown value {direction!r}")
        count = 2 if direction == "bidirectional" else 1
        activations = _activations(c, defaults, count)
        cells = [Cell(c, d, direction == "reverse" or d == 1, gates, activations[d]) for d in range(count)]
        states = [run(cell) for cell in cells]
        finals = [_final(c, cells, [s[n] for s in states]) for n in range(len(states[0]))]
        return _history(c, cells, [s[0] for s in states]), *finals

    return rule


def _history(c: LowerContext, cells: list[Cell], states: list[Tensor]) -> Tensor:
    """Y: the hidden state of every time step and direction."""
    first, dtype = cells[0], c.input(0).dtype
    ends = [const(d + 1) for d in range(len(cells))]

    def at(t: IntExpr, d: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        def pick(k: int) -> Val:
            v = states[k][cells[k].place(t, b) + 1, b, j]
            n = cells[k].length(b)
            return v if n is None else select(index_value(t) < n, v, 0.0)

        return choose(d, ends, pick).cast(dtype)

    if first.batch_first:
        shape = (first.batch, first.steps, const(len(cells)), first.hidden)
        return c.stage(compute(c.name("y"), shape, lambda b, t, d, j: at(t, d, b, j)))
    return c.stage(compute(c.name("y"), (first.steps, const(len(cells)), first.batch, first.hidden), at))


def _final(c: LowerContext, cells: list[Cell], states: list[Tensor]) -> Tensor:
    """Y_h or Y_c: the state after the last step of every direction."""
    first, dtype = cells[0], c.input(0).dtype
    ends = [const(d + 1) for d in range(len(cells))]

    def at(d: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return choose(d, ends, lambda k: states[k][first.steps, b, j]).cast(dtype)

    if first.batch_first:
        shape = (first.batch, const(len(cells)), first.hidden)
        return c.stage(compute(c.name("y_last"), shape, lambda b, d, j: at(d, b, j)))
    return c.stage(compute(c.name("y_last"), (const(len(cells)), first.batch, first.hidden), at))


RULES: dict[str, Rule] = {
    "LSTM": _recurrent(4, ("Sigmoid", "Tanh", "Tanh"), lstm_cell),
    "GRU": _recurrent(3, ("Sigmoid", "Tanh"), gru_cell),
    "RNN": _recurrent(1, ("Tanh",), rnn_cell),
}
