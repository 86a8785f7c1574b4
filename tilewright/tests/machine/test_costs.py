"""Costs: by the name of the CPU, or those that a target states; decisions follow them."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.core import dtypes
from tilewright.core.arith.expr import const
from tilewright.graph_ir.passes.base import PassContext
from tilewright.lowering.choose_implementation import choose_implementation
from tilewright.lowering.geometry.packing import panel_width
from tilewright.machine.costs import GENERIC, Costs
from tilewright.machine.cpus import CPUS, costs_of
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tests.lowering.test_choose_implementation import conv

TARGET = Target("x86_64-unknown-linux-gnu", "znver4", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)


def test_a_cpu_has_its_costs_by_name() -> None:
    assert TARGET.costs is CPUS["znver4"]
    assert replace(TARGET, cpu="neoverse-v1").costs is CPUS["neoverse-v1"]
    assert costs_of("no-such-cpu") is GENERIC


def test_a_target_may_state_its_own() -> None:
    own = replace(GENERIC, memory_rate=100.0)
    told = replace(TARGET, own_costs=own)
    assert told.costs is own
    assert told.key() != TARGET.key(), "its default schedules may be others"
    assert told.legality_key() == TARGET.legality_key()
    assert replace(told, own_costs=None).key() == TARGET.key()


@pytest.mark.parametrize("cpu", CPUS)
def test_no_decision_differs_among_named_cpus(cpu: str) -> None:
    """Whoever changes that measures on the CPU, names it here, and says what became of the replay test's networks."""
    assert replace(CPUS[cpu], core=None) == GENERIC


@pytest.mark.parametrize("cpu", [c for c in CPUS if c != "generic"])
def test_llvm_knows_the_names(cpu: str) -> None:
    arch = "aarch64" if cpu.startswith("neoverse") else "x86_64"
    assert parse_target(f"llvm -mtriple={arch}-unknown-linux-gnu -mcpu={cpu}").costs is CPUS[cpu]


def test_every_field_is_described() -> None:
    for kind in (Costs, type(GENERIC.cycles)):
        doc = kind.__doc__ or ""
        undescribed = [f.name for f in dataclasses.fields(kind) if f"``{f.name}``" not in doc]
        assert undescribed in ([], ["core", "cycles"]), kind.__name__


def test_schedules_follow_them() -> None:
    x = placeholder("X", (4096,), dtypes.float32)
    func = build_func("double", [x], [compute("Y", (4096,), lambda i: x[i] + x[i])])
    eager = replace(TARGET, own_costs=replace(GENERIC, parallel_ns=0, never_parallel_ns=0))
    assert "\nparallel(" not in default_trace(func, TARGET).to_text()
    assert "\nparallel(" in default_trace(func, eager).to_text()


def test_panels_follow_them() -> None:
    waits_long = replace(TARGET, own_costs=replace(GENERIC, accumulators=13))
    widths = [panel_width(const(2), const(256), t, 4) for t in (TARGET, waits_long)]
    assert widths[0] < widths[1], "few rows need more columns for as many results"


def test_implementations_follow_them() -> None:
    chosen = []
    for target in (TARGET, replace(TARGET, own_costs=replace(GENERIC, transforms=1 << 60))):
        graph = choose_implementation(target).apply(conv(), PassContext.for_graph(conv()))
        chosen += [n.attr("implementation") for n in graph.nodes]
    assert chosen == ["winograd4", "implicit_gemm"]
