"""Narrow types on CPUs that cannot compute with them: no kernel calls a function of the compiler's library, which is
not there when it is linked."""

from __future__ import annotations

import re

import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.ir import Func
from tilewright.tests.codegen.helpers import emitted

CPUS = ("x86-64", "haswell", "skylake-avx512", "znver4")
UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor", "Gelu",
    "HardSigmoid", "Log", "Mish", "Neg", "Reciprocal", "Round", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Sqrt",
    "Tan", "Tanh",
)  # fmt: skip
BINARY = ("Add", "Div", "Max", "Mod", "Mul", "Pow")
SHAPES = ([], [37])
"""Code for one element alone goes other ways through LLVM than vectors do."""
FROM_C = {"ceil", "ceilf", "floor", "floorf", "roundeven", "roundevenf", "trunc", "truncf"}
"""What a CPU without SSE4.1 calls the C library for, which every process has."""


def _assembly(func: Func, target: Target) -> str:
    return assembly_text(emitted(default_trace(func, target).apply(func), target), target)


def _calls(nodes: list, inputs: dict[str, int], outputs: dict[str, int], shape: list[int], cpu: str) -> set[str]:
    """The functions outside of them that the kernels of a graph call, by name."""
    ins, outs = ([helper.make_tensor_value_info(n, t, shape) for n, t in x.items()] for x in (inputs, outputs))
    model = helper.make_model(helper.make_graph(nodes, "g", ins, outs), opset_imports=[helper.make_opsetid("", 22)])
    target = f"llvm -mcpu={cpu}"
    funcs = tilewright.compile(model, target=target, threads=1, stop_after="lower").funcs
    text = "\n".join(_assembly(f, parse_target(target)) for f in funcs.values())
    called = set(re.findall(r"\b(?:call|jmp)q?\s+([A-Za-z_][\w.]*)", text))
    return called - set(re.findall(r"^([\w.]+):", text, re.MULTILINE)) - FROM_C


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16", "DOUBLE"])
def test_arithmetic(shape: list[int], cpu: str, dtype: str) -> None:
    t = getattr(TensorProto, dtype)
    nodes = [helper.make_node(op, ["x"], [f"{op}_y"]) for op in UNARY]
    nodes += [helper.make_node(op, ["x", "z"], [f"{op}_y"], **({"fmod": 1} if op == "Mod" else {})) for op in BINARY]
    assert not _calls(nodes, {"x": t, "z": t}, {f"{op}_y": t for op in (*UNARY, *BINARY)}, shape, cpu)


@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("shape", SHAPES)
def test_casts_after_arithmetic(shape: list[int], cpu: str) -> None:
    types = ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "FLOAT8E4M3FN", "INT64", "UINT64", "INT8")
    nodes, outputs = [], {}
    for a in types[:4]:
        for op in ("Asinh", "Mul"):
            wide = f"{op}_{a}"
            nodes.append(helper.make_node(op, [a] if op == "Asinh" else [a, a], [wide]))
            for b in types:
                nodes.append(helper.make_node("Cast", [wide], [f"{wide}_{b}"], to=getattr(TensorProto, b)))
                outputs[f"{wide}_{b}"] = getattr(TensorProto, b)
    assert not _calls(nodes, {a: getattr(TensorProto, a) for a in types[:4]}, outputs, shape, cpu)
