"""Recurrent layers one behind the other become one, where they are steps of one sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tilewright
from tilewright.core.plan import KernelStep
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.join_steps import JOIN_STEPS
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.rewriting import apply, assert_same_numbers, built, ops, reasons
from tilewright.tests.graph_ir.rules.test_cells import UNITS, WIDTH, blend, parts, product, rand, state, step
from tilewright.tests.replay.outputs import TARGETS

F = np.float32
Build = Callable[[GraphBuilder], "str | Sequence[str]"]
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
AXIS, ROW = np.array([0]), np.array([1])


def sequence(b: GraphBuilder, steps: int | str, name: str = "x") -> str:
    return b.input(name, "float32", (steps, "n", WIDTH))


def layers(
    b: GraphBuilder, op: str, xs: Sequence[str], attrs: Sequence[dict[str, object]] = ({},),
    seeds: Sequence[int] = (1,), lengths: str = "", stacked: bool = False,
) -> tuple[str, ...]:  # fmt: skip
    """A layer for each of ``xs``, from the last states of the one before; the states of all, and the last ones."""
    gates = GATES[op]
    h = b.op("Unsqueeze", state(b, "h"), AXIS)
    c = b.op("Unsqueeze", state(b, "c"), AXIS) if op == "LSTM" else ""
    found = []
    for k, x in enumerate(xs):
        seed, more = seeds[k % len(seeds)], attrs[k % len(attrs)]
        weights = [rand(1, gates * UNITS, WIDTH, seed=seed), rand(1, gates * UNITS, UNITS, seed=seed)]
        bias = rand(1, 2 * gates * UNITS, seed=seed)
        y, h, *rest = b.ops(op, x, *weights, bias, lengths, h, *([c] if c else []), outputs=3 if c else 2, **more)
        c = rest[0] if c else ""
        found.append(y)
    if stacked:
        return (b.op("Concat", *found, axis=0), *([h, c] if c else [h]))
    return (*found, h, *([c] if c else []))


def steps_of(b: GraphBuilder, kind: str, x: str, count: int) -> list[str]:
    """The first steps of a sequence, each ``[1, n, width]``."""
    axis = 1 if kind.endswith("batch_first") else 0
    if kind.startswith("gather"):
        return [b.op("Unsqueeze", b.op("Gather", x, np.array(t), axis=axis), AXIS) for t in range(count)]
    if kind.startswith("split"):
        return list(b.ops("Split", x, outputs=count, axis=axis))
    cut = [b.op("Slice", x, np.array([t]), np.array([t + 1]), np.array([axis])) for t in range(count)]
    if axis == 0:
        return cut
    return [b.op("Unsqueeze", b.op("Squeeze", v, ROW), AXIS) for v in cut]


def cells(b: GraphBuilder, op: str, steps: int, batch: int | str, zeros: bool, stack: int = 0) -> tuple[str, ...]:
    """A loop over a cell, unrolled: ``x[:, t]`` into the cell, the new states stacked."""
    x = b.input("x", "float32", (batch, steps, WIDTH))
    none = np.zeros((batch, UNITS), F) if zeros else None
    h: str | np.ndarray = state(b, "h", batch=batch) if none is None else none
    c: str | np.ndarray = state(b, "c", batch=batch) if none is None else none
    found = []
    for t in range(steps):
        now = b.op("Gather", x, np.array(t), axis=1)
        if op == "LSTM":
            seen = rand(4 * UNITS, seed=2) if isinstance(h, np.ndarray) else product(b, h, UNITS, 4, "gemm", 2)
            sums = b.op("Add", product(b, now, WIDTH, 4, "gemm", 1), seen)
            h, c = step(b, parts(b, sums, 4, "split"), "ifgo", c)
        else:
            if isinstance(h, np.ndarray):
                hr, hz, hn = np.split(np.broadcast_to(rand(3 * UNITS, seed=2), (h.shape[0], 3 * UNITS)), 3, axis=1)
            else:
                hr, hz, hn = parts(b, product(b, h, UNITS, 3, "gemm", 2), 3, "split")
            xr, xz, xn = parts(b, product(b, now, WIDTH, 3, "gemm", 1), 3, "split")
            r, z = b.op("Sigmoid", b.op("Add", hr, xr)), b.op("Sigmoid", b.op("Add", hz, xz))
            h = blend(b, z, b.op("Tanh", b.op("Add", xn, b.op("Mul", r, hn))), h)
        found.append(b.op("Unsqueeze", h, np.array([stack])))
    return (b.op("Concat", *found, axis=stack), h, *([c] if op == "LSTM" else []))


@pytest.mark.parametrize("zeros", [False, True], ids=["state", "zeros"])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_unrolled_loop_over_a_cell_is_one_layer(op: str, zeros: bool) -> None:
    for stack, batch in ((0, 3), (1, 3), (0, 1), (1, 1)):
        graph = built(lambda b, stack=stack, batch=batch: cells(b, op, 4, batch, zeros, stack))
        new, ctx = apply(graph, f"{op.lower()}_cell")
        assert [f.what for f in ctx.log.fired] == [f"{op.lower()}_cell"] * 4
        new, ctx = joined(new)
        assert len(ctx.log.fired) == 1
        assert ops(new).count(op) == 1
        assert not {"Concat", "Gather", "Gemm", "Slice"} & {*ops(new)}
        assert_same_numbers(graph, new, 2e-5)


def joined(graph: Graph) -> tuple[Graph, PassContext]:
    """The graph after the pass, verified and compared."""
    ctx = PassContext.for_graph(graph)
    new = JOIN_STEPS.apply(graph, ctx)
    verify_graph(new)
    assert_same_numbers(graph, new, 2e-5)
    return new, ctx


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_build_has_one_kernel_for_a_loop_over_one_sequence(op: str) -> None:
    def kernels(batch: int) -> int:
        graph = built(lambda b: cells(b, op, 4, batch, zeros=False))
        plan = tilewright.compile(graph, target=TARGETS["avx2"], stop_after="lower", progress=False).plan
        return sum(isinstance(s, KernelStep) for s in plan.steps)

    assert kernels(1) == 1
    assert kernels(2) > 1


@pytest.mark.parametrize("kind", ["slice", "gather", "split", "slice_batch_first", "gather_batch_first"])
@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_steps_of_one_sequence(op: str, kind: str) -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        shape = ("n", 3, WIDTH) if kind.endswith("batch_first") else (3, "n", WIDTH)
        return layers(b, op, steps_of(b, kind, b.input("x", "float32", shape), 3), stacked=True)

    states = ["Unsqueeze"] * (2 if op == "LSTM" else 1)
    turned = ["Transpose"] if kind.endswith("batch_first") else []
    new, ctx = joined(built(build))
    assert [f.what for f in ctx.log.fired] == ["join_steps"]
    assert sorted(ops(new)) == sorted([*states, *turned, op])


def test_some_steps_of_a_sequence() -> None:
    """Three of five: one Slice, and one for each result but the last."""
    new, _ = joined(built(lambda b: layers(b, "GRU", steps_of(b, "slice", sequence(b, 5), 3))))
    assert ops(new).count("Slice") == 1 + 2
    assert ops(new).count("GRU") == 1


def test_several_values_of_several_steps() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        return layers(b, "LSTM", [sequence(b, n, f"x{n}") for n in (2, 1, 3)])

    new, _ = joined(built(build))
    assert sorted(ops(new)) == ["Concat", "LSTM", "Slice", "Slice", "Slice", "Unsqueeze", "Unsqueeze"]


def test_states_in_between_are_read_from_the_states_of_all_steps() -> None:
    def build(b: GraphBuilder) -> tuple[str, ...]:
        x = sequence(b, 2)
        weights = [rand(1, 12, WIDTH), rand(1, 12, UNITS)]
        y0, h0 = b.ops("GRU", x, *weights, outputs=2)
        _, h1 = b.ops("GRU", sequence(b, 3, "z"), *weights, "", "", h0, outputs=2)
        return b.op("Relu", h0), y0, b.op("Neg", h1)

    new, ctx = joined(built(build))
    assert len(ctx.log.fired) == 1
    assert ops(new).count("GRU") == 1


def test_another_reader_of_a_state_goes_on_by_itself() -> None:
    """Two ways on from one state: the first is joined, the second starts from a step of it."""

    def build(b: GraphBuilder) -> tuple[str, ...]:
        weights = [rand(1, 12, WIDTH), rand(1, 12, UNITS)]
        _, h0 = b.ops("GRU", sequence(b, 1), *weights, outputs=2)
        _, left = b.ops("GRU", sequence(b, 1, "l"), *weights, "", "", h0, outputs=2)
        _, right = b.ops("GRU", sequence(b, 1, "r"), *weights, "", "", h0, outputs=2)
        return left, right

    new, ctx = joined(built(build))
    assert len(ctx.log.fired) == 1
    assert ops(new).count("GRU") == 2


def test_results_in_another_order_are_not_stacked() -> None:
    def build(b: GraphBuilder) -> str:
        y, z, *_ = layers(b, "GRU", steps_of(b, "slice", sequence(b, 2), 2))
        return b.op("Concat", z, y, axis=0)

    new, _ = joined(built(build))
    assert ops(new) == ["Unsqueeze", "GRU", "Slice", "Unsqueeze", "Concat"]


@pytest.mark.parametrize("shape", [(1, 1, UNITS, 3), (1, UNITS, 3), (UNITS, 1, 3), (3, UNITS)])
def test_results_in_another_shape_are_not_stacked(shape: tuple[int, ...]) -> None:
    def build(b: GraphBuilder) -> str:
        weights, x, h = [rand(1, 12, WIDTH), rand(1, 12, UNITS)], b.input("x", "float32", (2, 3, WIDTH)), ""
        found = []
        for x_t in steps_of(b, "slice", x, 2):
            _, h = b.ops("GRU", x_t, *weights, "", "", h, outputs=2)
            found.append(b.op("Reshape", h, np.array(shape)))
        return b.op("Concat", *found, axis=shape.index(1) if 1 in shape else 0)

    new, ctx = joined(built(build))
    assert len(ctx.log.fired) == 1
    assert ops(new).count("Concat") == 1


def backwards(b: GraphBuilder) -> tuple[str, ...]:
    return layers(b, "GRU", steps_of(b, "slice", sequence(b, 2), 2), [{"direction": "reverse"}])


def batch_first(b: GraphBuilder) -> tuple[str, ...]:
    weights, x = [rand(1, 12, WIDTH), rand(1, 12, UNITS)], b.input("x", "float32", (2, 1, WIDTH))
    _, h = b.ops("GRU", x, *weights, outputs=2, layout=1)
    return b.ops("GRU", x, *weights, "", "", h, outputs=2, layout=1)


def fed_back(b: GraphBuilder) -> tuple[str, ...]:
    """As a decoder: the input of the second step is computed from the state behind the first."""
    weights = [rand(1, 12, UNITS, seed=1), rand(1, 12, UNITS)]
    x = b.input("x", "float32", (1, "n", UNITS))
    y, h = b.ops("GRU", x, *weights, outputs=2)
    return b.ops("GRU", b.op("Relu", b.op("Squeeze", y, ROW)), *weights, "", "", h, outputs=2)


def memory_read(b: GraphBuilder) -> tuple[str, ...]:
    weights = [rand(1, 16, WIDTH), rand(1, 16, UNITS)]
    _, h, c = b.ops("LSTM", sequence(b, 1), *weights, outputs=3)
    return (*b.ops("LSTM", sequence(b, 1, "z"), *weights, "", "", h, c, outputs=3), b.op("Neg", c))


def other_memory(b: GraphBuilder) -> tuple[str, ...]:
    weights = [rand(1, 16, WIDTH), rand(1, 16, UNITS)]
    _, h, _ = b.ops("LSTM", sequence(b, 1), *weights, outputs=3)
    c = b.op("Unsqueeze", state(b, "c"), AXIS)
    return b.ops("LSTM", sequence(b, 1, "z"), *weights, "", "", h, c, outputs=3)


def of_lengths(b: GraphBuilder) -> tuple[str, ...]:
    return layers(b, "GRU", [sequence(b, 1), sequence(b, 1, "z")], lengths=b.constant(np.ones(3, np.int32), "lengths"))


STAYS: list[tuple[str, Build, str]] = [
    ("reverse", backwards, "runs another way than forward over its first axis"),
    ("layout", batch_first, "runs another way than forward over its first axis"),
    ("lengths", of_lengths, "has sequences of several lengths"),
    ("steps", lambda b: layers(b, "GRU", [sequence(b, "s"), sequence(b, "t", "z")]), "number of steps of"),
    (
        "attributes",
        lambda b: layers(b, "GRU", steps_of(b, "slice", sequence(b, 2), 2), [{}, {"linear_before_reset": 1}]),
        "has other attributes than",
    ),
    (
        "weights",
        lambda b: layers(b, "LSTM", steps_of(b, "slice", sequence(b, 2), 2), seeds=(1, 2)),
        "has other weights than",
    ),
    ("memory", memory_read, "is also used elsewhere"),
    ("other_memory", other_memory, ""),
    ("fed_back", fed_back, "its input depends on"),
]


@pytest.mark.parametrize(("build", "reason"), [s[1:] for s in STAYS], ids=[s[0] for s in STAYS])
def test_refused(build: Build, reason: str) -> None:
    graph = built(build)
    ctx = PassContext.for_graph(graph)
    assert JOIN_STEPS.apply(graph, ctx) is graph
    assert reason in reasons(ctx)
