#!/usr/bin/env python3
"""Writes docs/pipeline.md: one operator from its ONNX node to machine code, every stage as the compiler prints it.

    python docs/make_pipeline.py            write the page
    python docs/make_pipeline.py --check    exit status 1 if the page is out of date

The target is fixed, so the page is the same on every machine; the assembly also depends on the version of LLVM.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import textwrap

import numpy as np
import onnx
from generated import GeneratedPage
from llvmlite import binding
from onnx import helper, numpy_helper

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.codegen.emit.function import emit_kernel, is_parallel, workspaces
from tilewright.codegen.llvm.jit import assembly_text
from tilewright.codegen.prepare.steps import prepare
from tilewright.compile import plan_text
from tilewright.graph_ir.text import print_graph
from tilewright.lowering.plan import lower_graph_to_plan
from tilewright.lowering.workspaces import Scheduled, with_scheduled
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace

ASSEMBLY = "## 9. Assembly"

HEAD = """\
# One operator through the pipeline

<!-- Written by docs/make_pipeline.py; a test compares it with what the compiler prints today. Do not edit. -->

A fully connected layer, `y = relu(x @ w + b)`, from two ONNX nodes to x86 instructions. Every block below is what the
compiler prints. For the same of your own model: `tilewright inspect MODEL --stage STAGE`, or `model.dump(directory)`.
The function that runs all of this is `compile` in `tilewright/compile.py`."""


def comparable(have: str, want: str) -> tuple[str, str]:
    """The assembly counts only for the LLVM that the page was made with."""
    if f"LLVM {_llvm_version()}" not in have:
        return have.split(ASSEMBLY)[0], want.split(ASSEMBLY)[0]
    return have, want


def layer() -> onnx.ModelProto:
    """The example."""
    rng = np.random.default_rng(0)
    constants = {"w": rng.standard_normal((96, 16)).astype(np.float32), "b": np.arange(16, dtype=np.float32) / 4}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], "layer"),
        helper.make_node("Relu", ["h"], ["y"], "relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "fully_connected",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [24, 96])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [24, 16])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def fixed_target() -> Target:
    """A CPU with AVX2 and usual caches, one thread."""
    named = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=x86-64-v3")
    return dataclasses.replace(named, l1_bytes=32 << 10, l2_bytes=512 << 10, l3_bytes=16 << 20, threads=1)


def render() -> str:
    """The whole page."""
    target, proto = fixed_target(), layer()
    imported = tilewright.compile(proto, stop_after="import")
    optimized = tilewright.compile(proto, target=target, stop_after="passes")
    fused = tilewright.compile(proto, target=target, stop_after="fuse")
    lowered = lower_graph_to_plan(fused, target)
    (name,) = lowered.funcs
    func = lowered.funcs[name]
    trace = default_trace(func, target)
    scheduled = trace.apply(func)
    ready = prepare(scheduled, target)
    spaces = tuple((b.dtype, b.shape) for b in workspaces(ready, target))
    facts = Scheduled(func.dims, spaces, is_parallel(ready))
    llvm = emit_kernel(ready, target, name)
    onnx_nodes = "\n".join(f"{n.name}: {n.op_type}({', '.join(n.input)}) -> {n.output[0]}" for n in proto.graph.node)
    sections = [
        HEAD,
        _section("1. ONNX", "What an exporter writes. Opset 18; `w` and `b` are initializers.", onnx_nodes),
        _section(
            "2. Graph IR",
            "The frontend gives every value an element type and a shape (whose dimensions may be symbols), and "
            "writes older operator versions in terms of the newest. (`--stage import`)",
            print_graph(imported),
        ),
        _section(
            "3. After the graph passes",
            "Matrix products have one form, `MatMul` with an `Add` behind it, so that everything later has one case. "
            "`implementation` is what the last pass chose among the ways to compute the node; `explain` lists them. "
            "(`--stage passes`)",
            print_graph(optimized),
        ),
        _section(
            "4. The fused graph",
            "The same nodes, and in the last lines what runs: here one group, which becomes one kernel. A value that "
            "lay inside another (an operand of a `Concat`) would say so behind its type. (`--stage fuse`)",
            print_graph(fused),
        ),
        _section(
            "5. The call plan",
            "One line a kernel. `packed_...` is `w` in the order in which the kernel reads it, made at build time. "
            "(`--stage plan`)",
            plan_text(with_scheduled(lowered.plan, {name: facts})),
        ),
        _section(
            "6. Tensor IR",
            "What the kernel computes, as plain loops, a stage after the other. `acc` is the product over the packed "
            "operand; the other stages are the epilogue. Nothing here says how to run it. (`--stage function`)",
            str(func),
        ),
        _section(
            "7. The schedule",
            "How to run it: a trace, made by rule from the function and the target. Each line is a checked step that "
            "may refuse. (`--stage trace`)",
            trace.to_text(),
        ),
        _section(
            "8. The scheduled function",
            "The trace applied: a tile of registers (`local`), rows written out, columns in vectors, the epilogue on "
            "the tile before it leaves the registers. (`--stage scheduled`; `--stage prepared` adds what code "
            "generation decides, such as where a local buffer lies.)",
            str(scheduled),
        ),
        _section(
            ASSEMBLY.removeprefix("## "),
            f"The inner loop, as LLVM {_llvm_version()} makes it for AVX2: each `ymm` accumulator stays "
            "in its register. (`--stage llvm` shows the LLVM IR in between, `--stage asm` all of it.)",
            inner_loop(assembly_text(llvm, target)),
        ),
    ]
    return "\n\n".join(s.strip("\n") for s in sections) + "\n"


def _section(title: str, prose: str, text: str) -> str:
    return f"## {title}\n\n{textwrap.fill(prose, 120)}\n\n```text\n{text.strip()}\n```"


def _llvm_version() -> str:
    return ".".join(map(str, binding.llvm_version_info))


def inner_loop(assembly: str) -> str:
    """The loop with the most multiply-adds, from its label to the jump back."""
    lines = [x for x in assembly.splitlines() if not x.lstrip().startswith((".p2align", "#"))]
    labels = {m.group(1): k for k, x in enumerate(lines) if (m := re.match(r"(\.L\w+):", x))}
    loops = [
        (labels[m.group(1)], k)
        for k, x in enumerate(lines)
        if (m := re.match(r"\s+j\w+\s+(\.L\w+)", x)) and labels.get(m.group(1), k) < k
    ]
    simple = [(a, b) for a, b in loops if not any(lines[k].startswith(".L") for k in range(a + 1, b))]
    if not simple:
        return "(no inner loop)"
    start, end = max(simple, key=lambda s: sum("vfmadd" in x for x in lines[s[0] : s[1]]))
    return "\n".join(x.expandtabs(8) for x in lines[start : end + 1])


PAGE = GeneratedPage(__file__, "pipeline.md", render, comparable)

if __name__ == "__main__":
    sys.exit(PAGE.main())
