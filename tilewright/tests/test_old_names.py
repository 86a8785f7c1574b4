"""Names that were replaced by the field's own: gone from code and docs, and what replaces them is there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tilewright.tests.sources import PACKAGE, ROOT

MODULES = {
    "core.intexpr": "core.arith.expr",
    "core.intbounds": "core.arith.bounds",
    "core.intbroadcast": "core.arith.broadcast",
    "core.intextrema": "core.arith.minmax",
    "core.intnamed": "core.arith.named",
    "core.intparse": "core.arith.parse",
    "core.intsamples": "core.arith.samples",
    "core.intsum": "core.arith.polynomial",
    "core.target": "machine.target",
    "core.winograd": "lowering.implementations.conv.winograd_matrices",
    "core.strassen": "lowering.implementations.gemm.strassen_factors",
    "graph_ir.passes.choose_algorithms": "lowering.choose_implementation",
    "lowering.conv": "lowering.geometry.conv_shape",
    "lowering.matmul": "lowering.geometry.product",
    "lowering.winograd": "lowering.implementations.conv.winograd",
    "lowering.strassen": "lowering.implementations.gemm.strassen",
    "codegen.joined": "codegen.emit.copies",
    "codegen.interleaved": "codegen.emit.copies",
    "codegen.private": "codegen.emit.privatize",
    "codegen.register_use": "codegen.prepare.limit_unrolling",
    "codegen.math_functions": "codegen.math.functions",
    "codegen.math_float64": "codegen.math.float64",
    "codegen.llvm_types": "codegen.llvm.types",
    "codegen.llvm_names": "codegen.llvm.names",
    "codegen.llvm_child": "codegen.llvm.child",
    "schedule.rules.ahead": "schedule.rules.prefetch",
    "schedule.rules.blocks": "schedule.rules.tiling.cache_blocking",
    "schedule.rules.chains": "schedule.rules.gemm_chain",
    "schedule.rules.choices": "schedule.rules.sampling",
    "schedule.rules.depth": "schedule.rules.tiling.k_blocking",
    "schedule.rules.inlining": "schedule.rules.auto_inline",
    "schedule.rules.lane_sums": "schedule.rules.reductions.vectorized_reduction_axis",
    "schedule.rules.outer_sums": "schedule.rules.reductions.column_reduction",
    "schedule.rules.past_cache": "schedule.rules.streaming_stores",
    "schedule.rules.rows": "schedule.rules.reductions.row_reduction",
    "schedule.rules.sampled_rows": "schedule.rules.resample",
    "schedule.rules.spatial": "schedule.rules.elementwise",
    "schedule.rules.steps": "schedule.rules.recurrence",
    "schedule.rules.tiles": "schedule.rules.tiling.register_tiles",
    "schedule.rules.transformed_tiles": "schedule.rules.winograd",
    "schedule.rules.windows": "schedule.rules.fused_depthwise",
    "schedule.moves": "schedule.stage_motion",
    "schedule.shrink": "schedule.compact_buffer",
    "tuned": "autotune.lookup.apply_best",
    "tuning": "autotune.network.tune_network",
    "in_place": "autotune.network.end_to_end",
    "autotune.evaluator": "autotune.measure.time_evaluator",
    "autotune.trial": "autotune.measure.ab_timing",
    "autotune.outcome": "autotune.base.measure_result",
    "autotune.station": "autotune.measure.worker_pool",
    "autotune.guarded": "autotune.measure.guard_pages",
    "autotune.gain": "autotune.search.gain_estimate",
    "autotune.footprint": "autotune.base.resource_check",
    "autotune.jobs": "autotune.measure.worker_protocol",
    "autotune.steadiness": "autotune.measure.noise_monitor",
    "autotune.compare": "autotune.measure.interleaved_timing",
    "autotune.learner": "autotune.cost_model.training_set",
    "autotune.transfer": "autotune.search.warm_start",
    "autotune.scoring": "autotune.cost_model.predict",
    "autotune.models": "autotune.cost_model.cost_model",
    "autotune.cost_model": "autotune.cost_model.xgboost_model",
    "autotune.measure": "autotune.measure.measurer",
    "autotune.records": "autotune.records.record",
    "codegen.team": "codegen.native.thread_pool",
    "codegen.repeat": "codegen.native.loop_driver",
    "codegen.host": "codegen.detect_cpu",
    "runtime.team": "runtime.resources.thread_pool",
    "runtime.repeat": "runtime.loop_driver",
    "runtime.host": "runtime.host_ops.host_step",
    "runtime.suppression": "runtime.host_ops.non_max_suppression",
    "reference.windows": "reference.spatial.conv_pool",
    "session": "api.session",
    "scheduling": "api.schedule",
    "build": "kernels.build",
    "link": "kernels.link",
    "explain": "inspect.account",
    "verify": "inspect.verify",
    "report": "inspect.report",
    "ort": "inspect.ort",
    "lowering.contraction": "lowering.geometry.packing",
    "lowering.groups": "lowering.geometry.grouped_conv",
    "graph_ir.early_sizes": "graph_ir.fused.shape_program",
    "graph_ir.run_time_sizes": "graph_ir.data_dependent_shapes",
    "graph_ir.fusion": "graph_ir.fused.fuse",
    "lowering.host_policy": "graph_ir.fused.partition",
    "lowering.run_time_slices": "lowering.data_dependent_slices",
    "lowering.storage": "graph_ir.fused.placement",
    "lowering.within": "lowering.subview",
    "graph_ir.window_pairs": "graph_ir.fused.fuse_pointwise_depthwise",
    "tensor_ir.analysis.worth": "tensor_ir.analysis.parallel_if",
}
"""Modules by what they were called, without the package's own name."""

WORDS = {name.rpartition(".")[2] for name in MODULES if name.startswith("core.int")} | set(
    """
    joined_nest joined_values register_use lane_sums outer_sums sampled_rows transformed_tiles past_cache Crew
    TeamCode team_code team_text TEAMS team crew steadiness REPEAT_TYPE repeat_text Outcome on_outcome outcome_of
    Station Steadiness steadiness_of Learner learn_from_others Guarded check_in_place lane_sums_rule outer_sums_rule
    tile_rule rows_rule steps_rule windows_rule spatial_rule find_chains window_pairs worth_of
    """.split()
)
"""Words that were nothing but our own: nobody says them any more."""


def place(module: str) -> Path:
    path = PACKAGE.joinpath(*module.split("."))
    return path if path.is_dir() else path.with_suffix(".py")


@cache
def texts() -> dict[str, str]:
    """All that people read: code, tests, examples, docs. Logs of old versions keep their names."""
    files = [p for f in ("tilewright", "benchmarks", "docs", "examples", "tools") for p in (ROOT / f).rglob("*.*")]
    files += ROOT.glob("*.md")
    read = {p.relative_to(ROOT).as_posix(): p for p in files if p.suffix in (".py", ".md", ".sh")}
    return {k: p.read_text(encoding="utf-8") for k, p in read.items() if p != Path(__file__)}


def test_what_replaces_them_is_there() -> None:
    assert not [new for new in MODULES.values() if not place(new).exists()]


@pytest.mark.parametrize("old", MODULES)
def test_module_is_gone(old: str) -> None:
    assert not PACKAGE.joinpath(*old.split(".")).with_suffix(".py").exists()
    dotted, path = f"tilewright.{old}", f"{old.replace('.', '/')}.py"
    names = rf"{re.escape(dotted)}\b(?!\.)|(?<![\w/]){re.escape(path)}\b"
    if not place(old).is_dir():
        assert not _where(names, dotted, path), f"read {MODULES[old]} there"


@pytest.mark.parametrize("word", sorted(WORDS))
def test_word_is_gone(word: str) -> None:
    assert not _where(rf"\b{word}\b", word)


def _where(pattern: str, *parts: str) -> list[str]:
    """Files and lines in which ``pattern`` is found; what it matches has one of ``parts`` in it."""
    found = re.compile(pattern)
    near = {k: t for k, t in texts().items() if any(p in t for p in parts)}
    return [f"{k}:{t[: m.start()].count(chr(10)) + 1}" for k, t in near.items() for m in found.finditer(t)]
