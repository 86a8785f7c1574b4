"""LSTM, GRU and RNN: all input products as one matrix product, then a recurrence over the time steps.

A state buffer holds, for each direction, the state before step 0 in its row 0 and the state after step s in row s + 1.
A reverse direction reads its inputs from the end. Beyond a sequence's own length the state stands still and the output
is zero.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, ceildiv, const
from tilewright.core.dtypes import DType
from tilewright.lowering.context import Lower, LowerContext, wide, widen
from tilewright.lowering.formulas.elementwise import elu, hard_sigmoid, leaky_relu, sigmoid, softplus
from tilewright.lowering.geometry.packing import pack_columns, packed_stage, panel_width, unflatten
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
Gates = Callable[..., Val]
"""Reads the value of a gate: ``(gate, d, s, b, j)``."""

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
    """A recurrent node: its sizes, how to read its operands, and the stages that every kind of cell has.

    ``d`` is the direction, ``s`` the step, ``b`` the sequence and ``j`` the hidden unit everywhere. ``in_between``: a
    product of a step needs results of the same step.
    """

    c: LowerContext
    backwards: tuple[bool, ...]
    gates: int
    activations: tuple[tuple[Activation, ...], ...]
    in_between: bool = False

    @property
    def batch_first(self) -> bool:
        return bool(self.c.attr_int("layout", 0))

    @property
    def directions(self) -> int:
        return len(self.backwards)

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

    def activation(self, n: int, d: IntExpr, v: Val) -> Val:
        """Activation ``n`` of the direction."""
        own = [a[n] for a in self.activations]
        if all(_same(f, own[0]) for f in own):
            return own[0](v)
        return self.by_direction(d, lambda k: own[k](v))

    def by_direction(self, d: IntExpr, pick: Callable[[int], Val]) -> Val:
        """``pick`` of the direction."""
        return choose(d, [const(k + 1) for k in range(self.directions)], pick)

    def length(self, b: IntExpr) -> Val | None:
        """The length of sequence ``b``; None if all have every step."""
        return self.c.length(self.c.input(4)[b], self.steps) if self.c.has_input(4) else None

    def place(self, d: IntExpr, s: IntExpr, b: IntExpr) -> IntExpr:
        """The time of step ``s``, and the step of time ``s``."""
        if not any(self.backwards):
            return s
        n = self.length(b)
        if n is None and all(self.backwards):
            return self.steps - 1 - s
        at = index_value(s)
        back = index_value(self.steps - 1 - s) if n is None else select(at < n, n - 1 - at, at)
        return self.c.wrapped(self.by_direction(d, lambda k: back if self.backwards[k] else at), self.steps)

    def clip(self, v: Val) -> Val:
        limit = self.c.attr_float("clip", 0.0)
        return op("max", op("min", v, limit), -limit) if limit > 0 else v

    def state(self, operand: int, hint: str) -> Tensor:
        """The recorded state buffer, filled with the initial state in row 0 and zeros below."""
        c = self.c

        def body(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            zero = constant(0.0, self.dtype)
            if not c.has_input(operand):
                return zero
            i = (b, d, j) if self.batch_first else (d, b, j)
            return select(index_value(s).equal(0), widen(c.input(operand)[i]), zero)

        return c.stage(compute(c.name(hint), (self.directions, self.steps + 1, self.batch, self.hidden), body))

    def products(self, recurrent_bias: Callable[[int], bool]) -> Gates:
        """The recorded products of all inputs with the weights of all gates, plus the biases.

        ``recurrent_bias``: for which gates the recurrent bias is added here as well.
        """
        c, x = self.c, self.c.input(0)
        unit = self.hidden * self.gates
        rows, columns, depth = x.shape[0] * x.shape[1], unit * self.directions, x.shape[2]
        width = panel_width(rows, columns, c.target, self.dtype.itemsize)
        if c.constants[1] is not None and columns.is_const and depth.is_const:

            def transform(w: np.ndarray) -> np.ndarray:
                return pack_columns(self._in_order(w).reshape(-1, w.shape[2]).T, width, self.dtype.numpy)

            shape = (ceildiv(columns, width), depth, width)
            packed = c.packed(1, transform, shape, f"recurrent_panels_{width}_{self.shared_width}", self.dtype)
        else:
            packed = packed_stage(
                c, (), depth, columns, width, self.dtype,
                lambda _, k, n: widen(c.input(1)[n // unit, self._row(n % unit), k]),
            )  # fmt: skip
        k = c.axis(depth, "k")

        def product(m: IntExpr, no: IntExpr, ni: IntExpr) -> Reduction:
            return sum_over(widen(x[(*unflatten(m, x.shape[1:2]), k.index)]) * packed[no, k, ni], k)

        full = (rows, ceildiv(columns, width), const(width))
        acc = c.stage(compute(c.name("acc"), full, product, axis_names=["m", "no", "ni"]))
        biases = self._biases(recurrent_bias)

        def with_bias(m: IntExpr, n: IntExpr) -> Val:
            v = acc[m, n // width, n % width]
            return v if biases is None else v + biases[n]

        xs = c.stage(compute(c.name("x_products"), (rows, columns), with_bias))

        def read(gate: int, d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            t = self.place(d, s, b)
            row = b * self.steps + t if self.batch_first else t * self.batch + b
            return xs[row, d * unit + self._column(gate, j)]

        return read

    def _column(self, gate: int, j: IntExpr) -> IntExpr:
        """The column of a gate of unit ``j``: those that a panel of :attr:`shared_width` units reads lie together."""
        width = self.shared_width
        return self.hidden * gate + j if width is None else (j // width * self.gates + gate) * width + j % width

    def _row(self, column: IntExpr) -> IntExpr:
        """The row of the weights that makes a ``column``."""
        if (width := self.shared_width) is None:
            return column
        return column // width % self.gates * self.hidden + column // (width * self.gates) * width + column % width

    def _in_order(self, w: np.ndarray) -> np.ndarray:
        """The rows of a constant ``[direction, row, ...]`` in the order of columns."""
        if (width := self.shared_width) is None:
            return w
        rows = np.arange(w.shape[1]).reshape(self.gates, -1, width)
        return w[:, rows.transpose(1, 0, 2).reshape(-1)]

    def _biases(self, recurrent_bias: Callable[[int], bool]) -> Tensor | None:
        """One bias a column of ``products``: that of the inputs, and of the gates asked for the recurrent one too."""
        c, h, unit = self.c, self.hidden, self.hidden * self.gates
        if not c.has_input(3):
            return None
        both = [recurrent_bias(g) for g in range(self.gates)]
        if c.constants[3] is not None and h.is_const:

            def transform(b: np.ndarray) -> np.ndarray:
                parts = b.astype(self.dtype.numpy).reshape(self.directions, 2, self.gates, -1)
                total: np.ndarray = parts[:, 0] + parts[:, 1] * np.asarray(both)[None, :, None]
                return self._in_order(total.reshape(self.directions, -1)).reshape(-1)

            hint = f"recurrent_bias_{both}_{self.shared_width}"
            return c.packed(3, transform, (unit * self.directions,), hint, self.dtype)

        def body(n: IntExpr) -> Val:
            d, at = n // unit, self._row(n % unit)
            own, other = widen(c.input(3)[d, at]), widen(c.input(3)[d, at + unit])
            return own + select(self._is_gate(at, both), other, 0.0)

        return c.stage(compute(c.name("biases"), (unit * self.directions,), body))

    def _is_gate(self, at: IntExpr, chosen: Sequence[bool]) -> Val:
        """True where ``at``, a position among the gates, is in one of the chosen ones."""
        gate = index_value(at // self.hidden)
        found = constant(False, dtypes.bool_)
        for g, yes in enumerate(chosen):
            found = found | gate.equal(g) if yes else found
        return found

    def recurrent_bias(self, gate: int, d: IntExpr, j: IntExpr) -> Val:
        """The recurrent bias of one gate."""
        if not self.c.has_input(3):
            return constant(0.0, self.dtype)
        return widen(self.c.input(3)[d, self.hidden * (gate + self.gates) + j])

    def recurrent(self, source: Callable[..., Val], first: int, count: int) -> tuple[Tensor, Gates]:
        """The product of a state with the recurrent weights of ``count`` gates, a stage of the recurrence.

        Its columns are ``[panel, gate, unit of the panel]``: one register tile holds all gates of some units.
        """
        c, h = self.c, self.hidden
        width = self.units_of_panel(count)
        panels = ceildiv(h, width)
        shape = (const(self.directions), panels, h, const(count), const(width))
        if c.constants[2] is not None and h.is_const:

            def transform(r: np.ndarray) -> np.ndarray:
                gates = r.astype(self.dtype.numpy).reshape(r.shape[0], self.gates, r.shape[2], r.shape[2])
                part = gates[:, first : first + count]
                whole = -(-r.shape[2] // width) * width
                padded = np.pad(part, ((0, 0), (0, 0), (0, whole - r.shape[2]), (0, 0)))
                split = padded.reshape(r.shape[0], count, whole // width, width, r.shape[2])
                return np.ascontiguousarray(split.transpose(0, 2, 4, 1, 3))

            weights = c.packed(2, transform, shape, f"recurrent_gates_{first}_{count}", self.dtype)
        else:

            def body(d: IntExpr, no: IntExpr, k: IntExpr, g: IntExpr, ni: IntExpr) -> Val:
                j = no * width + ni
                value = widen(c.input(2)[d, h * (g + first) + j, k])
                return select(index_value(j) < index_value(h), value, 0.0)

            weights = c.stage(compute(c.name("r_panels"), shape, body))
        k = c.axis(h, "k")

        def product(d: IntExpr, s: IntExpr, no: IntExpr, b: IntExpr, g: IntExpr, ni: IntExpr) -> Reduction:
            return sum_over(source(d, s, b, k.index) * weights[d, no, k, g, ni], k)

        extents = (self.directions, self.steps, panels, self.batch, count, width)
        acc = compute(c.name("h_products"), extents, product)

        def read(gate: int, d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            return acc[d, s, j // width, b, gate - first, j % width]

        return acc, read

    def units_of_panel(self, count: int) -> int:
        """Units of a panel of weights of ``count`` gates."""
        target = self.c.target
        return target.lanes(self.dtype.itemsize) * max(1, target.costs.accumulators // count)

    @property
    def shared_width(self) -> int | None:
        """Units of the panels over which all stages of a step go together, so that what a panel's products are needed
        for is done by who made them; None where the units are no whole panels or a step needs those of all in between.
        """
        if self.in_between:
            return None
        width, units = self.units_of_panel(self.gates), self.hidden.value()
        return width if units is not None and units % width == 0 else None

    def stage(self, hint: str, f: Callable[..., Val]) -> Tensor:
        """A stage [directions, steps, batch, hidden] of the recurrence."""
        return compute(self.c.name(hint), (self.directions, self.steps, self.batch, self.hidden), f)

    def advance(self, state: Tensor, new: Callable[..., Val], hint: str) -> Update:
        """Write row s + 1 of a state; a finished sequence keeps what it had."""

        def body(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> tuple[tuple[IntExpr, ...], Val]:
            n, value = self.length(b), new(d, s, b, j)
            if n is not None:
                value = select(index_value(s) < n, value, state[d, s, b, j])
            return (d, s + 1, b, j), value

        name, extents = self.c.name(hint), (self.directions, self.steps, self.batch, self.hidden)
        if (width := self.shared_width) is None:
            return update(name, state, extents, body, ordered=(1,))
        panels = (self.directions, self.steps, self.hidden // width, self.batch, width)
        return update(name, state, panels, lambda d, s, no, b, ni: body(d, s, b, no * width + ni), ordered=(1,))

    def run(self, stages: Sequence[Tensor | Update]) -> None:
        """Record the recurrence: for each direction, step by step, panel by panel if all stages can be."""
        loops = [(self.c.name("direction"), const(self.directions)), (self.c.name("step"), self.steps)]
        if self.shared_width is not None:
            loops.append((self.c.name("panel"), self.hidden // self.shared_width))
        self.c.recurrence(loops, stages)


def _same(a: Activation, b: Activation) -> bool:
    """True if two activations (made by ``_activations``) are one function with equal parameters."""
    if isinstance(a, partial) and isinstance(b, partial):
        return a.func is b.func and a.keywords == b.keywords
    return a is b


def lstm_cell(cell: Cell) -> tuple[Tensor, Tensor]:
    """The recorded state histories (H, C)."""
    c, h = cell.c, cell.hidden
    xs = cell.products(lambda _: True)
    hidden, memory = cell.state(5, "h_state"), cell.state(6, "c_state")
    hs, products = cell.recurrent(lambda d, s, b, k: hidden[d, s, b, k], 0, 4)

    def gate(n: int, peephole: int | None, at: IntExpr, d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        v = xs(n, d, s, b, j) + products(n, d, s, b, j)
        if peephole is not None and c.has_input(7):
            v = v + widen(c.input(7)[d, j + h * peephole]) * memory[d, at, b, j]
        return cell.activation(1 if n == 3 else 0, d, cell.clip(v))

    def new_memory(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        i = gate(0, 0, s, d, s, b, j)
        forget = 1.0 - i if c.attr_int("input_forget", 0) else gate(2, 2, s, d, s, b, j)
        return forget * memory[d, s, b, j] + i * gate(3, None, s, d, s, b, j)

    def new_hidden(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return gate(1, 1, s + 1, d, s, b, j) * cell.activation(2, d, cell.clip(memory[d, s + 1, b, j]))

    cell.run((hs, cell.advance(memory, new_memory, "next_c"), cell.advance(hidden, new_hidden, "next_h")))
    return hidden, memory


def gru_cell(cell: Cell) -> tuple[Tensor, ...]:
    """The recorded state history."""
    reset_after = bool(cell.c.attr_int("linear_before_reset", 0))
    cell = dataclasses.replace(cell, in_between=not reset_after)
    xs = cell.products(lambda gate: gate < 2 or not reset_after)
    hidden = cell.state(5, "h_state")
    hs, products = cell.recurrent(lambda d, s, b, k: hidden[d, s, b, k], 0, 3 if reset_after else 2)
    stages: list[Tensor | Update] = [hs]

    def gate(n: int, d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return cell.activation(0, d, cell.clip(xs(n, d, s, b, j) + products(n, d, s, b, j)))

    if reset_after:

        def inner(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
            return gate(1, d, s, b, j) * (products(2, d, s, b, j) + cell.recurrent_bias(2, d, j))

    else:
        kept = cell.stage("reset_h", lambda d, s, b, j: gate(1, d, s, b, j) * hidden[d, s, b, j])
        rs, rest = cell.recurrent(lambda d, s, b, k: kept[d, s, b, k], 2, 1)
        stages += [kept, rs]
        inner = partial(rest, 2)

    def new(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        z = gate(0, d, s, b, j)
        candidate = cell.activation(1, d, cell.clip(xs(2, d, s, b, j) + inner(d, s, b, j)))
        return (1.0 - z) * candidate + z * hidden[d, s, b, j]

    cell.run((*stages, cell.advance(hidden, new, "next_h")))
    return (hidden,)


def rnn_cell(cell: Cell) -> tuple[Tensor, ...]:
    """The recorded state history."""
    xs = cell.products(lambda _: True)
    hidden = cell.state(5, "h_state")
    hs, products = cell.recurrent(lambda d, s, b, k: hidden[d, s, b, k], 0, 1)

    def new(d: IntExpr, s: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return cell.activation(0, d, cell.clip(xs(0, d, s, b, j) + products(0, d, s, b, j)))

    cell.run((hs, cell.advance(hidden, new, "next_h")))
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


def _recurrent(gates: int, defaults: tuple[str, ...], run: Callable[[Cell], tuple[Tensor, ...]]) -> Lower:
    def lower(c: LowerContext) -> tuple[Tensor, ...]:
        direction = c.attr_str("direction", "forward")
        if direction not in ("forward", "reverse", "bidirectional"):
            raise c.unsupported(f"attribute direction: unknown value {direction!r}")
        backwards = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]
        cell = Cell(c, backwards, gates, tuple(_activations(c, defaults, len(backwards))))
        states = run(cell)
        return _history(cell, states[0]), *(_final(cell, s) for s in states)

    return lower


def _history(cell: Cell, state: Tensor) -> Tensor:
    """Y: the hidden state of every time step and direction."""
    c, dtype = cell.c, cell.c.input(0).dtype

    def at(t: IntExpr, d: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        v, n = state[d, cell.place(d, t, b) + 1, b, j], cell.length(b)
        return (v if n is None else select(index_value(t) < n, v, 0.0)).cast(dtype)

    if cell.batch_first:
        shape = (cell.batch, cell.steps, const(cell.directions), cell.hidden)
        return c.stage(compute(c.name("y"), shape, lambda b, t, d, j: at(t, d, b, j)))
    return c.stage(compute(c.name("y"), (cell.steps, const(cell.directions), cell.batch, cell.hidden), at))


def _final(cell: Cell, state: Tensor) -> Tensor:
    """Y_h or Y_c: the state after the last step of every direction."""
    c, dtype = cell.c, cell.c.input(0).dtype

    def at(d: IntExpr, b: IntExpr, j: IntExpr) -> Val:
        return state[d, cell.steps, b, j].cast(dtype)

    if cell.batch_first:
        shape = (cell.batch, const(cell.directions), cell.hidden)
        return c.stage(compute(c.name("y_last"), shape, lambda b, d, j: at(d, b, j)))
    return c.stage(compute(c.name("y_last"), (const(cell.directions), cell.batch, cell.hidden), at))


LOWER: dict[str, Lower] = {
    "LSTM": _recurrent(4, ("Sigmoid", "Tanh", "Tanh"), lstm_cell),
    "GRU": _recurrent(3, ("Sigmoid", "Tanh"), gru_cell),
    "RNN": _recurrent(1, ("Tanh",), rnn_cell),
}
