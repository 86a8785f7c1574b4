"""Implementations of convolutions and products: what records and choices say, and what a build then uses."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical, workload_of
from tilewright.autotune.lookup.implementations import (
    Tunable,
    find_tunable,
    other_implementations,
    recorded_implementations,
)
from tilewright.autotune.lookup.workloads import kernel_of_node, networks_of, workload_hashes
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.network.end_to_end import Times, Variant, _Judge
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import prepare, tune_model
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.reading import from_line
from tilewright.autotune.records.record import Choice, Verdict, make_record, to_line
from tilewright.codegen.detect_cpu import detect_host
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph, Group
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.lowering.group import LoweredGroup, lower_group
from tilewright.lowering.plan import LoweredGroups, fuse_and_lower

HERE = detect_host().with_threads(2)
ALL = ("direct", "implicit_gemm", "winograd2", "winograd3", "winograd4")


def conv_model(channels: int = 32, size: int = 24) -> onnx.ModelProto:
    """Two convolutions of one shape, with a ReLU between."""
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / 17 for _ in range(2)]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w1"], ["y"], "second", pads=[1, 1, 1, 1]),
    ]
    shape = [1, channels, size, size]
    graph = helper.make_graph(
        nodes, "convs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def passed(disabled: tuple[str, ...] = ()) -> Graph:
    graph = tilewright.compile(conv_model(), target=HERE, stop_after="passes", disabled_pass=disabled)
    assert isinstance(graph, Graph)
    return graph


def record(graph: Graph, implementation: str, seconds: float) -> list[object]:
    """Records of the default schedule of both convolutions with an implementation."""
    changed = with_implementations(
        graph, dict.fromkeys((c.node.name for c in alternatives_of(graph, HERE)), implementation)
    )
    out = []
    for func in fuse_and_lower(changed, HERE).funcs.values():
        named = canonical(func)
        task = Task(named, HERE)
        out.append(make_record(task, Space(named, HERE).default(), Ok(seconds, (seconds,), 0.0, 0.1), time=1.0))
    return out


def found_options(graph: Graph, disabled: tuple[str, ...] = ()) -> tuple[Tunable, ...]:
    return find_tunable(graph, fuse_and_lower(graph, HERE), HERE, disabled)


def test_every_implementation_is_an_option() -> None:
    options = found_options(passed())
    assert all(set(o.workloads) == set(ALL) for o in options)
    assert len(options) == 2
    assert all(len(set(o.workloads.values())) == len(ALL) for o in options)
    assert {a for x in other_implementations(options) for a in x.values()} == set(ALL) - {o.own for o in options}


def test_a_forbidden_implementation_is_no_option() -> None:
    without = found_options(passed(("winograd",)), ("winograd",))
    assert all(set(o.workloads) == {"direct", "implicit_gemm"} for o in without)
    graph = passed(("choose_implementation",))
    assert found_options(graph, ("choose_implementation",)) == ()
    assert {n.attr("implementation") for n in graph.nodes} == {None}


def test_other_implementations_are_those_of_the_network_lowered_as_a_whole() -> None:
    """One group is lowered for each, and what comes out is what the whole graph would have there."""
    graph = passed()
    for o in found_options(graph):
        for name, workload in o.workloads.items():
            whole = fuse_and_lower(with_implementations(graph, {o.node: name}), HERE)
            assert workload_hashes(whole)[kernel_of_node(whole)[o.node]] == workload.hash


def resnet50(width: int = 16, size: int = 112) -> Graph:
    """Its 53 convolutions, a quarter as wide."""
    b, rng = GraphBuilder("resnet50"), np.random.default_rng(0)

    def conv(x: str, ic: int, oc: int, taps: int, stride: int = 1) -> str:
        w = rng.standard_normal((oc, ic, taps, taps)).astype(np.float32) / np.sqrt(np.float32(ic * taps**2))
        return b.op("Conv", x, w, strides=(stride,) * 2, pads=(taps // 2,) * 4)

    y, ic = b.op("Relu", conv(b.input("x", "float32", (1, 3, size, size)), 3, width, 7, 2)), width
    y = b.op("MaxPool", y, kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = width << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            z = b.op("Relu", conv(b.op("Relu", conv(y, ic, inner, 1)), inner, inner, 3, stride))
            past = y if block else conv(y, ic, 4 * inner, 1, stride)
            y, ic = b.op("Relu", b.op("Add", conv(z, inner, 4 * inner, 1), past)), 4 * inner
    return b.build(b.op("GlobalAveragePool", y))


def test_enumeration_lowers_no_network_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[object, ...]] = []

    def counting(graph: Graph, group: Group, *more: object) -> LoweredGroup:
        calls.append((group.name, *(n.attr("implementation") for n in group.nodes)))
        return lower_group(graph, group, *more)  # type: ignore[arg-type]

    graph = tilewright.compile(resnet50(), target=HERE, stop_after="passes")
    assert sum(n.op == "Conv" for n in graph.nodes) == 53
    monkeypatch.setattr("tilewright.lowering.plan.lower_group", counting)
    known = LoweredGroups()
    lowered = fuse_and_lower(graph, HERE, pack=False, known=known)
    groups = len(calls)
    options = find_tunable(graph, lowered, HERE)
    others = sum(len(o.workloads) - 1 for o in options)
    assert len(options) > 15
    assert len(calls) == groups + others
    for names in other_implementations(options):
        fuse_and_lower(with_implementations(graph, names), HERE, pack=False, known=known)
    assert len(set(calls)) == len(calls) == groups + others


def test_each_group_is_lowered_once_for_each_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what the tuner prepares, variants of the whole network included."""
    lowered: list[tuple[str, ...]] = []

    def counting(graph: Graph, group: Group, *more: object) -> LoweredGroup:
        lowered.append((group.name, *(str(n.attr("implementation")) for n in group.nodes)))
        return lower_group(graph, group, *more)  # type: ignore[arg-type]

    monkeypatch.setattr("tilewright.lowering.plan.lower_group", counting)
    prepare(conv_model(), TuneOptions(threads=2))
    groups = {name for name, *_ in lowered}
    assert len(lowered) == len(set(lowered)) == len(groups) + 2 * (len(ALL) - 1)


def test_a_pinned_node_is_not_searched() -> None:
    prepared = prepare(conv_model(), TuneOptions(threads=2, implementations={"first": "direct"}))
    assert {o.node for o in prepared.tunable} == {"second"}
    assert [n.attr("implementation") for n in prepared.graph.nodes if n.name == "first"] == ["direct"]
    assert all(v.implementations.get("first", "direct") == "direct" for v in prepared.variants)


@pytest.mark.parametrize("fast", ALL)
def test_the_implementation_with_the_fastest_record_is_used(fast: str) -> None:
    graph = passed()
    lines = [x for a in ALL for x in record(graph, a, 1e-4 if a == fast else 2e-4)]
    options = found_options(graph)
    found = recorded_implementations(options, HERE, MemoryDatabase(lines), "net")
    assert {found.get(o.node, o.own) for o in options} == {fast}
    only = MemoryDatabase(record(graph, "winograd2", 1e-9))
    own = {o.own for o in options}
    found = recorded_implementations(options, HERE, only, "net")
    assert found == {} or own == {"winograd2"}  # nothing to compare it with


@pytest.mark.parametrize("rows", ["n", 24])
def test_what_is_estimated_alike_and_has_records_is_used(rows: str | int) -> None:
    """A log of a release that estimated otherwise, or of a build for other sizes, serves on."""

    def product(rows: str | int) -> Graph:
        g = GraphBuilder("product")
        w = np.random.default_rng(0).standard_normal((96, 48)).astype(np.float32)
        return g.build(g.op("MatMul", g.input("x", "float32", (rows, 96)), w))

    here = tilewright.compile(product("n"), target=HERE, stop_after="passes", progress=False)
    (option,) = found_options(here)
    assert (option.own, "packed_gemm" in option.alike) == ("packed_by_rows", True)
    there = with_implementations(product(rows), {option.node: "packed_gemm"})
    (func,) = fuse_and_lower(there, HERE).funcs.values()
    named = canonical(func)
    task = Task(named, HERE, dict.fromkeys(named.dims, 24))
    known = make_record(task, Space(named, HERE).default(), Ok(1e-3, (1e-3,), 0.0, 0.1), time=1.0)
    assert recorded_implementations((option,), HERE, MemoryDatabase([known]), ()) == {option.node: "packed_gemm"}
    assert recorded_implementations((option,), HERE, MemoryDatabase(), ()) == {}


def test_a_choice_made_in_the_network_counts_before_records() -> None:
    graph = passed()
    network = networks_of(fuse_and_lower(graph, HERE))[0]
    options = found_options(graph)
    database = MemoryDatabase([x for a in ALL for x in record(graph, a, 1e-4 if a == ALL[0] else 2e-4)])
    for time, name in enumerate((*ALL[1:], ALL[0])):
        for o in options:
            seconds = dict.fromkeys(ALL, 1e-4)
            database.append(Choice(o.workloads[o.own].hash, network, HERE, name, seconds, float(time)))
        found = recorded_implementations(options, HERE, database, network)
        assert {found.get(o.node, o.own) for o in options} == {name}
    other = dataclasses.replace(HERE, cpu="another")
    assert recorded_implementations(options, other, database, network) == {}


def test_a_choice_of_an_older_log_is_of_what_rounds_as_the_definition_does() -> None:
    (o, *_) = found_options(passed())
    new = Choice(o.workloads[o.own].hash, "net", HERE, "winograd2", {"winograd2": 1e-3, "direct": 2e-3}, 7.0)
    old = to_line(new).replace('"implementation":"winograd2"', '"algorithm":"direct"')
    read = from_line(old)
    assert isinstance(read, Choice)
    assert (read.implementation, set(read.seconds)) == ("standard", {"winograd2", "standard"})
    found = recorded_implementations([o], HERE, MemoryDatabase([read]), "net")
    assert found.get(o.node, o.own) == o.standard
    named = from_line(to_line(new).replace('"implementation":"winograd2"', '"algorithm":"winograd3"'))
    assert recorded_implementations([o], HERE, MemoryDatabase([named]), "net").get(o.node, o.own) == "winograd3"


def test_choices_are_lines_of_the_log(tmp_path) -> None:  # type: ignore[no-untyped-def]
    c = Choice("0" * 64, "net", HERE, "winograd4", {"direct": 2e-3, "winograd4": 1e-3}, 7.0, {"later": [1]})
    assert from_line(to_line(c)) == c
    database = JSONDatabase(tmp_path / "log.jsonl")
    database.append(c)
    assert JSONDatabase(tmp_path / "log.jsonl").choice("0" * 64, HERE, "net") == c
    assert database.prune() == 0
    assert database.choice("0" * 64, HERE, "another") is None


def test_tuning_tries_the_implementations_and_builds_use_what_it_chose() -> None:
    database = MemoryDatabase()
    options = TuneOptions(time_budget_s=None, max_trials=8, threads=2)
    prepared = prepare(conv_model(), options)
    assert {a for v in prepared.variants for a in v.implementations.values()} == set(ALL)
    done = tune_model(conv_model(), database, measurer=TableMeasurer(lambda c: 1e-4), options=options)
    choices = [x for x in database.lines() if isinstance(x, Choice)]
    assert choices
    assert all(set(c.seconds) == set(ALL) for c in choices)
    model = tilewright.compile(conv_model(), threads=2, database=database)
    assert {r.kernel for r in model.coverage().rows} == {r.kernel for r in done.coverage.rows}
    x = np.random.default_rng(0).standard_normal((1, 32, 24, 24)).astype(np.float32)
    plain = tilewright.compile(conv_model(), threads=2, disabled_pass=["winograd"])
    np.testing.assert_allclose(model.run({"x": x})["y"], plain.run({"x": x})["y"], atol=1e-4)
    assert workload_of(next(iter(prepared.lowered.funcs.values()))).hash in {t.workload for t in prepared.tasks}


def test_a_kernel_that_only_another_implementation_has_is_given_up_alone() -> None:
    """It made the network slower, and stands where the network without records has no kernel with alternatives."""
    lowered, other = (fuse_and_lower(passed(disabled), HERE) for disabled in ((), ("winograd",)))
    own = Variant({}, lowered, tilewright.compile(conv_model(), target=HERE))
    database = MemoryDatabase()
    judge = _Judge(own, HERE, database, lambda: 1.0)
    hashes = workload_hashes(other)
    name = next(n for n, h in hashes.items() if h not in workload_hashes(lowered).values())
    judge.give_up(other, name, Times(1.1, 1.0))
    (verdict,) = [x for x in database.lines() if isinstance(x, Verdict)]
    assert (verdict.workload, verdict.helps, verdict.scope) == (hashes[name], False, "network")
    assert not [x for x in database.lines() if isinstance(x, Choice)]


def test_a_product_by_another_implementation_is_tuned_and_built(monkeypatch: pytest.MonkeyPatch) -> None:
    # no choice is given up
    monkeypatch.setattr("tilewright.autotune.network.end_to_end._network_times", lambda *_: Times(1.0, 1.0))
    rng = np.random.default_rng(5)
    w = rng.standard_normal((640, 1280)).astype(np.float32) / 25
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "product"), helper.make_node("Relu", ["a"], ["y"], "relu")]
    shape = (1, 97, 640)
    graph = helper.make_graph(
        nodes, "product", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 97, 1280))], [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    options = TuneOptions(time_budget_s=None, max_trials=4, threads=2)
    database = MemoryDatabase()
    tune_model(model, database, measurer=TableMeasurer(lambda c: 1e-4), options=options)
    (choice,) = [x for x in database.lines() if isinstance(x, Choice)]
    assert set(choice.seconds) == {"packed_gemm", "strassen"}
    later = dataclasses.replace(choice, implementation="strassen", time=choice.time + 1.0)
    database.append(later)
    built = tilewright.compile(model, threads=2, database=database)
    assert "product (MatMul): strassen, by record (without it packed_gemm)" in built.explain()
    assert built.explain().count("strassen, by record") == 1
    assert "implementations" not in built.explain().partition("tuning records:")[2]
    x = rng.standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(built.run({"x": x})["y"], np.maximum(x @ w, 0), rtol=1e-4, atol=1e-5)
    forbidden = tilewright.compile(model, threads=2, database=database, disabled_pass=["strassen"])
    assert "product (MatMul): packed_gemm, by estimate" in forbidden.explain()


def test_logs_know_a_network_as_it_was_lowered_without_them() -> None:
    """Whatever implementations records choose, so that verdicts on it are found again: by verify and inspect, too."""
    graph = passed()
    own = {o.own for o in found_options(graph)}
    other = next(a for a in ALL if a not in own)
    database = MemoryDatabase()
    for r in [*record(graph, other, 1e-6), *(x for a in own for x in record(graph, a, 1.0))]:
        database.append(r)  # type: ignore[arg-type]
    plain = tilewright.compile(conv_model(), target=HERE, stop_after="lower", database=None)
    tuned = tilewright.compile(conv_model(), target=HERE, stop_after="lower", database=database)
    assert {n.attr("implementation") for n in tuned.graph.nodes if n.op == "Conv"} == {other}
    assert workload_hashes(tuned) != workload_hashes(plain)
    assert networks_of(tuned) == networks_of(plain)
