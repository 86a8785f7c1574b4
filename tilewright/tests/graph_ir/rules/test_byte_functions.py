"""Functions of one byte as tables: what is one, how far it reaches, what is left as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.text import print_graph
from tilewright.machine.costs import GENERIC
from tilewright.machine.vectors import look_up_operations
from tilewright.tests.graph_ir.rewriting import apply, as_pass, built, ops, reasons

F = np.float32
QUICK = dataclasses.replace(GENERIC, look_up=4.0)
RULE = "byte_function"
ALL = np.arange(256, dtype=np.uint8)
Build = Callable[[GraphBuilder], "str | Sequence[str]"]
Function = Callable[[GraphBuilder, str], str]


def dequantized(b: GraphBuilder, q: str, scale: float = 0.05, zero: int = 3, dtype: type = np.uint8) -> str:
    return b.op("DequantizeLinear", q, F(scale), dtype(zero))


def quantized(b: GraphBuilder, x: str, scale: float = 0.02, zero: int = 7, dtype: type = np.uint8) -> str:
    return b.op("QuantizeLinear", x, F(scale), dtype(zero))


def pair(b: GraphBuilder, x: str, scale: float, zero: int) -> str:
    return dequantized(b, quantized(b, x, scale, zero), scale, zero)


def between(f: Function, dtype: type = np.uint8, to: type = np.uint8, zero: int = 3, other: int = 7) -> Build:
    """Quantize(f(Dequantize(q)))."""

    def build(b: GraphBuilder) -> str:
        x = dequantized(b, b.input("q", np.dtype(dtype).name, ("n", 256)), 0.05, zero, dtype)
        return quantized(b, f(b, x), 0.02, other, to)

    return build


def changed(build: Build) -> tuple[Graph, PassContext]:
    """The graph after the rule; results for all bytes are those of the graph before."""
    graph = built(build)
    new, ctx = apply(graph, RULE, costs=QUICK)
    for i in graph.inputs:
        assert graph.values[i].shape[-1] == 256
    feed = {i: ALL[None, :: 1 - 2 * k].view(graph.values[i].dtype.numpy) for k, i in enumerate(graph.inputs)}
    before, after = interpret(graph, feed), interpret(new, feed)
    for name, want in before.items():
        np.testing.assert_array_equal(np.asarray(after[name]), np.asarray(want))
    return new, ctx


def silu(b: GraphBuilder, x: str) -> str:
    return b.op("Mul", x, b.op("Sigmoid", x))


def silu_in_pairs(b: GraphBuilder, x: str) -> str:
    return b.op("Mul", x, pair(b, b.op("Sigmoid", x), 1 / 255, 0))


def hard_swish(b: GraphBuilder, x: str) -> str:
    return b.op("Div", b.op("Mul", x, b.op("Clip", b.op("Add", x, F(3)), F(0), F(6))), F(6))


def gelu(b: GraphBuilder, x: str) -> str:
    grown = b.op("Add", b.op("Erf", b.op("Div", x, F(1.4142135))), F(1))
    return b.op("Mul", b.op("Mul", x, F(0.5)), grown)


def named(op: str, **attrs: object) -> Function:
    return lambda b, x: b.op(op, x, **attrs)  # type: ignore[arg-type]


FUNCTIONS: dict[str, Function] = {
    "Sigmoid": named("Sigmoid"), "Tanh": named("Tanh"), "Elu": named("Elu", alpha=0.7), "Gelu": named("Gelu"),
    "HardSwish": named("HardSwish"), "silu": silu, "silu in pairs": silu_in_pairs, "hard swish": hard_swish,
    "gelu": gelu, "1/x": lambda b, x: b.op("Div", F(1), x), "log": named("Log"), "sqrt": named("Sqrt"),
    "slope": lambda b, x: b.op("PRelu", b.op("Tanh", x), np.full((1, 1), 0.25, F)),
    "three": lambda b, x: b.op("Mul", b.op("HardSigmoid", x), b.op("LeakyRelu", x, alpha=0.1)),
}  # fmt: skip


FIRES = [((RULE,), between(f), ["LookUp"]) for f in FUNCTIONS.values()]


@pytest.mark.parametrize(("names", "build", "want"), FIRES, ids=FUNCTIONS)
def test_functions(names: tuple[str, ...], build: Build, want: list[str]) -> None:
    new, ctx = changed(build)
    assert {f.what for f in ctx.log.fired} == {*names}
    assert ops(new) == want


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("to", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 100])
def test_types_and_zero_points(dtype: type, to: type, zero: int) -> None:
    new, _ = changed(between(silu, dtype, to, zero, 120 - zero))
    assert ops(new) == ["LookUp"]


def test_ties_go_to_even_and_what_is_too_large_saturates() -> None:
    def build(b: GraphBuilder) -> str:
        x = b.op("DequantizeLinear", b.input("q", "int8", (1, 256)), F(0.5))
        return b.op("QuantizeLinear", b.op("Div", b.op("Mul", x, F(6)), F(2)), F(1), np.int8(1))

    new, _ = changed(build)
    (table,) = (c.array for c in new.constants.values())
    assert table[[1, 3, 5, 127, 128]].tolist() == [3, 5, 9, 127, -128]


def test_text() -> None:
    new, _ = changed(between(silu))
    text = print_graph(new)
    assert "QuantizeLinear_3: uint8[n, 256] = LookUp(q, QuantizeLinear_3.const)" in text
    assert "const QuantizeLinear_3.const: uint8[256]" in text


def test_no_run_time_shape_is_needed() -> None:
    def build(b: GraphBuilder) -> str:
        return quantized(b, b.op("Sigmoid", dequantized(b, b.input("q", "uint8", (256,)))))

    new, _ = apply(built(build), RULE, costs=QUICK)
    assert ops(new) == ["LookUp"]


def test_a_byte_that_others_read_is_where_a_chain_begins() -> None:
    def build(b: GraphBuilder) -> tuple[str, str]:
        middle = quantized(b, b.op("Tanh", dequantized(b, b.input("q", "uint8", (1, 256)))), 0.01, 128)
        return quantized(b, b.op("Sigmoid", dequantized(b, middle, 0.01, 128))), b.op("Transpose", middle, perm=(1, 0))

    new, _ = changed(build)
    assert sorted(ops(new)) == ["LookUp", "LookUp", "Transpose"]
    first, second = (n for n in new.nodes if n.op == "LookUp")
    assert first.inputs[0] == "q"
    assert second.inputs[0] == first.outputs[0]


def test_a_chain_goes_past_such_a_byte_where_it_has_to() -> None:
    def build(b: GraphBuilder) -> tuple[str, str]:
        x = dequantized(b, b.input("q", "uint8", (1, 256)))
        gate = quantized(b, b.op("Sigmoid", x), 1 / 255, 0)
        return quantized(b, b.op("Mul", x, dequantized(b, gate, 1 / 255, 0))), b.op("Transpose", gate, perm=(1, 0))

    new, _ = changed(build)
    assert [n.inputs[0] for n in new.nodes if n.op == "LookUp"] == ["q", "q"]


def refused(build: Build, reason: str) -> None:
    new, ctx = changed(build)
    assert "LookUp" not in ops(new)
    assert reason in reasons(ctx)


@pytest.mark.parametrize("op", ["Relu", "LeakyRelu", "Neg"])
def test_what_is_quick_stays(op: str) -> None:
    refused(between(named(op)), "a look-up takes 4 operations, computing 4")


def test_a_number_that_others_read_stays() -> None:
    def build(b: GraphBuilder) -> tuple[str, str]:
        y = b.op("Sigmoid", dequantized(b, b.input("q", "uint8", (1, 256))))
        return quantized(b, y), b.op("Neg", y)

    refused(build, "is also used elsewhere")


def two_bytes(b: GraphBuilder) -> str:
    x, y = (dequantized(b, b.input(name, "uint8", ("n", 256))) for name in "qr")
    return quantized(b, b.op("Sigmoid", b.op("Mul", x, y)))


def scales_by_column(b: GraphBuilder) -> str:
    scales, zeros = np.linspace(0.1, 0.2, 256).astype(F), np.zeros(256, np.uint8)
    return quantized(b, b.op("Sigmoid", b.op("DequantizeLinear", b.input("q", "uint8", ("n", 256)), scales, zeros)))


def shorts(b: GraphBuilder) -> str:
    return quantized(b, b.op("Sigmoid", dequantized(b, b.input("q", "uint16", (1, 256)), dtype=np.uint16)))


def neighbours(b: GraphBuilder) -> str:
    return quantized(b, b.op("Softmax", dequantized(b, b.input("q", "uint8", ("n", 256)))))


def row(b: GraphBuilder) -> str:
    x = dequantized(b, b.input("q", "uint8", ("n", 256)))
    return quantized(b, b.op("Sigmoid", b.op("Add", x, np.arange(256, dtype=F))))


def larger(b: GraphBuilder) -> str:
    x = dequantized(b, b.input("q", "uint8", ("n", 256)))
    return quantized(b, b.op("Sigmoid", b.op("Add", x, np.zeros((1, 1, 1), F))))


def random(b: GraphBuilder) -> str:
    return quantized(b, b.op("Sigmoid", b.op("Bernoulli", dequantized(b, b.input("q", "uint8", (1, 256))))))


@pytest.mark.parametrize("build", [two_bytes, scales_by_column, neighbours, row, larger], ids=lambda f: f.__name__)
def test_what_is_no_function_of_one_byte(build: Build) -> None:
    new, ctx = changed(build)
    assert "LookUp" not in ops(new)
    assert not ctx.log.fired


@pytest.mark.parametrize("build", [shorts, random], ids=lambda f: f.__name__)
def test_other_types_and_chance(build: Build) -> None:
    graph = built(build)
    assert rule_alone(graph) is graph


def rule_alone(graph: Graph) -> Graph:
    from_here = dataclasses.replace(PassContext.for_graph(graph), costs=QUICK)
    return as_pass(RULE).apply(graph, from_here)


def test_only_where_look_ups_are_quick() -> None:
    new, ctx = apply(built(between(silu)), RULE)
    assert "LookUp" not in ops(new)
    assert "a look-up takes 50 operations, computing 20" in reasons(ctx)
    for cpu, operations in (("znver4", 4), ("haswell", 12), ("skylake-avx512", 12), ("x86-64", GENERIC.look_up)):
        assert look_up_operations(parse_target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")) == operations
    assert look_up_operations(parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1")) == GENERIC.look_up


@pytest.mark.parametrize("cpu", ["znver4", "icelake-server", "haswell", "x86-64"])
def test_what_a_build_for_a_cpu_does(cpu: str) -> None:
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    graph = tilewright.compile(built(between(silu_in_pairs)), target=target, stop_after="passes")
    assert ("LookUp" in ops(graph)) == (cpu != "x86-64")


def test_channels_last_pass_through() -> None:
    """Between two convolutions of bytes no Transpose is left."""

    def build(b: GraphBuilder) -> str:
        x = dequantized(b, b.input("q", "uint8", (1, 16, 9, 9)))
        for k in range(2):
            w = b.op("DequantizeLinear", b.constant(np.ones((16, 16, 3, 3), np.int8), f"w{k}"), F(0.01))
            x = silu_in_pairs(b, pair(b, b.op("Conv", x, w), 0.1, 100))
            x = pair(b, x, 0.05, 20)
        return x

    graph = tilewright.compile(built(build), target="llvm -mtriple=x86_64-linux-gnu -mcpu=znver4", stop_after="passes")
    names = ops(graph)
    assert names.count("LookUp") == 2
    first, last = (k for k, n in enumerate(names) if n == "ConvInteger")
    assert "Transpose" not in names[first:last]
