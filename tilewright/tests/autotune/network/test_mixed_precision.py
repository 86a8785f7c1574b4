"""A part of a network on bfloat16: which nodes, what the log says, and what builds make of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, combinations
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.autotune.lookup.precision import MIXED, node_places
from tilewright.autotune.network.mixed_precision import Build, Builds, Errors, apart, nodes_within, worthwhile
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.precision import Chosen, choose_precision, confirm_precision
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.reading import from_line
from tilewright.autotune.records.record import Choice, NodeChoice, to_line
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.precision.choose_precision import NodePrecision, reduced_nodes

pytestmark = pytest.mark.skipif("avx512bf16" not in parse_target(None).enabled, reason="a CPU without vdpbf16ps")

TARGET = with_threads(parse_target(None), 1)
LAYERS = 5
Feed = Mapping[str, np.ndarray]


@pytest.fixture(autouse=True)
def two_precisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without matrix tiles (with them: test_between_precisions.py)."""
    monkeypatch.setattr("tilewright.autotune.network.precision.split_nodes", lambda graph: ())


def weight(seed: int, *shape: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)


def named(graph: Graph, *names: str) -> Graph:
    """The graph with these names of its products."""
    left = iter(names)
    return graph.replace(nodes=tuple(replace(n, name=next(left)) if n.op == "MatMul" else n for n in graph.nodes))


def perceptron(prefix: str = "layer") -> Graph:
    """Products one after the other, each off by about as much."""
    g = GraphBuilder("perceptron")
    x = g.input("x", "float32", (24, 256))
    for k in range(LAYERS):
        x = g.op("MatMul", x, weight(k, 256, 256))
        x = g.op("Tanh", x) if k + 1 < LAYERS else x
    return named(g.build(x), *(f"{prefix}{k}" for k in range(LAYERS)))


def branches() -> Graph:
    """Two products and a sum read one operand; an output of the graph is the operand of a third."""
    g = GraphBuilder("branches")
    x = g.op("Relu", g.input("x", "float32", (20, 256)))
    a = g.op("MatMul", x, weight(1, 256, 256))
    b = g.op("MatMul", x, weight(2, 256, 256))
    y = g.op("Add", g.op("Mul", a, b), x)
    c = g.op("MatMul", y, weight(3, 256, 128))
    return named(g.build(y, c), "a", "b", "c")


def options(**more: object) -> TuneOptions:
    return TuneOptions(precision="auto", threads=1, **more)  # type: ignore[arg-type]


def random(seed: int, *shape: int) -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def gaining(*gains: float) -> Callable[[Build, Build, Sequence[str], Feed], dict[str, tuple[float, float]]]:
    """Times of the nodes, of which the second are 1."""

    def profile(own: Build, other: Build, nodes: Sequence[str], feed: Feed) -> dict[str, tuple[float, float]]:
        return {n: (1.0 + g, 1.0) for n, g in zip(nodes, gains, strict=True)}

    return profile


def taking(**seconds: float) -> Callable[[Mapping[str, Callable[[], object]], int], Mapping[str, float]]:
    def measure(contenders: Mapping[str, Callable[[], object]], threads: int) -> Mapping[str, float]:
        for run in contenders.values():
            run()
        return {name: seconds[name] for name in contenders}

    return measure


def mixed(log: MemoryDatabase | JSONDatabase, graph: Graph | None = None, **more: object) -> Chosen:
    """A choice that reduces a part of the layers."""
    found = choose_precision(
        graph or perceptron(), log, options(**{"max_error": 4e-3, **more}), taking(fp32=3, bf16=1, mixed=2),
        gaining(5, 1, 4, 2, 3),
    )  # fmt: skip
    assert found.choice.implementation == MIXED
    return found


def build(graph: Graph, log: object, stop_after: str | None = None) -> object:
    return tilewright.compile(  # type: ignore[call-overload]
        graph, precision="auto", database=log, threads=1, stop_after=stop_after, progress=False
    )


# -- switches ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("graph", [branches(), perceptron()], ids=["branches", "perceptron"])
def test_switches_give_what_builds_give(graph: Graph) -> None:
    builds = Builds(graph, options(), TARGET)
    names = [n.name for n in graph.nodes if n.op == "MatMul"]
    feed = random(0, *(d.evaluate({}) for d in graph.values["x"].shape))
    run = builds.switched(names)
    seen: set[float] = set()
    own = builds.build("fp32").model.run(feed)
    for some in chain.from_iterable(combinations(names, k) for k in (0, 1, 2, len(names))):
        really = builds.reduced(some).model.run(feed)
        assert apart(really, run(some, feed)) < 1e-5
        seen.add(apart(own, really))
    assert len(seen) > len(names)


# -- the search ------------------------------------------------------------------------------------------------------
def test_nodes_that_gain_next_to_nothing_are_left_out() -> None:
    assert worthwhile({"a": 1.0, "b": -1.0, "c": 50.0, "d": 49.0, "e": 0.0}) == ["c", "d"]
    assert worthwhile({"a": 0.0}) == []


@pytest.mark.parametrize("budget", [1e-4, 2e-3, 3e-3, 4e-3, 5e-3])
def test_the_part_is_within_the_budget_and_not_much_smaller(budget: float) -> None:
    builds = Builds(perceptron(), options(), TARGET)
    own = builds.build("fp32").model.run
    errors = Errors(own, [random(s, 24, 256) for s in range(4)], budget)
    names = [f"layer{k}" for k in range(LAYERS)]
    taken, alone = nodes_within(builds, errors, {n: LAYERS - k for k, n in enumerate(names)})
    assert set(alone) == set(names)
    assert errors.are_within(builds.reduced(taken).model.run)
    for n in set(names) - set(taken):
        assert errors.first(builds.reduced([*taken, n]).model.run) > errors.margin
    for seed in range(100, 110):
        feed = random(seed, 24, 256)
        assert apart(own(feed), builds.reduced(taken).model.run(feed)) <= 1.2 * budget


def test_what_gains_most_for_its_error_is_taken() -> None:
    builds = Builds(perceptron(), options(), TARGET)
    errors = Errors(builds.build("fp32").model.run, [random(0, 24, 256)], 4.5e-3)
    for best in range(LAYERS):
        gains = {f"layer{k}": 100.0 if k == best else 10.0 for k in range(LAYERS)}
        assert nodes_within(builds, errors, gains)[0][:1] == [f"layer{best}"]


def test_what_was_held_back_counts() -> None:
    """A constant hides the error of small inputs, by which nodes are chosen."""
    g = GraphBuilder("hidden")
    y = g.op("MatMul", g.input("x", "float32", (24, 256)), weight(0, 256, 256))
    graph = named(g.build(g.op("Add", y, np.full(256, 30.0, np.float32))), "product")
    small, large = random(0, 24, 256), {"x": 100 * random(1, 24, 256)["x"]}
    profile, measure = gaining(1.0), taking(fp32=2, bf16=1)
    for held_back, wanted in ((small, "bf16"), (large, "fp32")):
        o = options(max_error=5e-4, feed=small, samples=[held_back])
        assert choose_precision(graph, MemoryDatabase(), o, measure, profile).precision == wanted


# -- the log and the build -----------------------------------------------------------------------------------------
def test_builds_follow_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.touch()
    chosen = mixed(JSONDatabase(path))
    _, line = (json.loads(x) for x in path.read_text("utf-8").splitlines())
    assert line["implementation"] == MIXED
    assert line["seconds"] == {"fp32": 3, "bf16": 1, "mixed": 2}
    assert line["errors"]["mixed"] <= 4e-3 < line["errors"]["bf16"]
    nodes = {n["name"]: n for n in line["nodes"].values()}
    assert set(nodes) == {f"layer{k}" for k in range(LAYERS)}
    reduced = {n for n, x in nodes.items() if x["implementation"] == "bf16"}
    assert 0 < len(reduced) < LAYERS
    assert all(0 < x["error"] < 4e-3 for x in nodes.values())
    assert nodes["layer0"]["seconds"] == {"fp32": 6.0, "bf16": 1.0}
    assert isinstance(chosen.precision, dict)
    assert set(reduced_nodes(build(perceptron(), path, "passes"))) == set()  # records count from lower on
    model = build(perceptron(), path)
    text = model.explain()  # type: ignore[attr-defined]
    assert f"fired bfloat16 x{len(reduced)}: " in text
    for n in nodes:
        what = f"{n}: by a record" if n in reduced else f"refused bfloat16 at {n}: by a record"
        assert what in text
    plain = tilewright.compile(perceptron(), threads=1, progress=False)
    for seed in range(20, 25):
        feed = random(seed, 24, 256)
        assert 0 < apart(plain.run(feed), model.run(feed)) <= 1.2 * 4e-3  # type: ignore[attr-defined]


def test_names_of_nodes_do_not_matter() -> None:
    log = MemoryDatabase()
    chosen = mixed(log)
    feed = random(1, 24, 256)
    one, other = (build(perceptron(prefix), log).run(feed) for prefix in ("layer", "block"))  # type: ignore[attr-defined]
    assert apart(one, other) == 0.0
    assert isinstance(chosen.precision, dict)
    pinned = tilewright.compile(perceptron(), precision=chosen.precision, threads=1, progress=False)
    assert apart(one, pinned.run(feed)) == 0.0


def test_a_part_that_is_not_faster_is_not_used() -> None:
    log = MemoryDatabase()
    o = options(max_error=4e-3)
    found = choose_precision(perceptron(), log, o, taking(fp32=1, bf16=0.5, mixed=1), gaining(1, 1, 1, 1, 1))
    assert found.precision == "fp32"
    assert {n.implementation for n in found.choice.nodes.values()} == {"fp32"}
    text = build(perceptron(), log).explain()  # type: ignore[attr-defined]
    assert "precision fp32: fp32 1000.000 ms; bf16 500.000 ms, off by" in text
    assert "0 of 5 products on bfloat16" in text


def test_slower_nodes_stay_in_float32_where_all_are_exact_enough() -> None:
    o = options(max_error=1e-1)
    found = choose_precision(
        perceptron(), MemoryDatabase(), o, taking(fp32=3, bf16=2, mixed=1), gaining(1, -1, 1, 0, 1)
    )
    assert isinstance(found.precision, dict)
    assert [p.precision for p in found.precision.values()] == ["bf16", "fp32", "bf16", "fp32", "bf16"]
    found = choose_precision(
        perceptron(), MemoryDatabase(), o, taking(fp32=3, bf16=1, mixed=2), gaining(1, -1, 1, 0, 1)
    )
    assert found.precision == "bf16"


def test_the_tuned_network_is_not_slower_than_float32() -> None:
    log = MemoryDatabase()
    chosen = mixed(log)
    feed = random(0, 24, 256)
    tuned = build(perceptron(), log)
    for seconds, wanted in (((3.0, 2.0), MIXED), ((2.0, 3.0), "fp32")):
        measure = taking(fp32=seconds[0], mixed=seconds[1])
        found, model = confirm_precision(perceptron(), log, options(), chosen, tuned, feed, measure)  # type: ignore[arg-type]
        assert found.choice.implementation == wanted
        assert found.choice.seconds == {"fp32": seconds[0], "mixed": seconds[1]}
        assert (model is tuned) == (wanted == MIXED)
        text = build(perceptron(), log).explain()  # type: ignore[attr-defined]
        assert ("fired bfloat16" in text) == (wanted == MIXED)


def test_tune_ends_with_what_was_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    monkeypatch.setattr("tilewright.autotune.network.tune_network.choose_precision", lambda m, log, o: mixed(log))
    slower = partial(confirm_precision, measure=taking(fp32=1, mixed=2))
    monkeypatch.setattr("tilewright.autotune.network.tune_network.confirm_precision", slower)
    tilewright.tune(perceptron(), options(time_budget_s=0.0, max_trials=0, check_network=False), database=path)
    choices = [x for x in JSONDatabase(path).lines() if isinstance(x, Choice) and x.workload == x.network]
    assert [c.implementation for c in choices] == [MIXED, "fp32"]


def test_sizes_that_broadcast() -> None:
    """The version of the network that runs such sizes is compared; the choice is for the network as builds know it."""
    g = GraphBuilder("broadcast")
    x = g.op("MatMul", g.input("x", "float32", ("n", 256)), weight(0, 256, 256))
    graph = named(g.build(g.op("Add", x, g.input("b", "float32", ("m", 256)))), "product")
    feed = {"x": random(0, 24, 256)["x"], "b": random(1, 1, 256)["x"]}
    log = MemoryDatabase()
    assert choose_precision(graph, log, options(feed=feed), taking(fp32=2, bf16=1), gaining(1.0)).precision == "bf16"
    found = build(graph, log)
    assert "fired bfloat16 x1: product" in found.explain()  # type: ignore[attr-defined]


def test_products_in_branches_are_part_of_the_whole_alone() -> None:
    g = GraphBuilder("if")
    y = g.op("MatMul", g.input("x", "float32", (24, 256)), weight(0, 256, 256))
    z = g.op("MatMul", y, weight(1, 256, 256))
    bodies = {}
    for name, seed in (("then_branch", 5), ("else_branch", 6)):
        inner = GraphBuilder(name)
        w = inner.constant(weight(seed, 256, 256), f"{name}_weight")
        out = inner.ops("MatMul", y, w, outputs=(f"{name}_result",))
        bodies[name] = named(inner.build(*out, infer=False), name)
    graph = named(g.build(z, g.op("If", g.input("c", "bool", ()), **bodies)), "first", "last")
    feed = {**random(0, 24, 256), "c": np.asarray(True)}
    measure = taking(fp32=3, bf16=1, mixed=2)
    for budget, wanted in ((1e-1, "bf16"), (3.5e-3, MIXED)):
        o = options(max_error=budget, feed=feed)
        found = choose_precision(graph, MemoryDatabase(), o, measure, gaining(1, 1))
        assert found.choice.implementation == wanted
        nodes = {n.name: n.implementation for n in found.choice.nodes.values()}
        assert nodes["then_branch"] == nodes["else_branch"] == ("bf16" if wanted == "bf16" else "fp32")


def test_an_error_that_is_not_finite_is_not_written(tmp_path: Path) -> None:
    g = GraphBuilder("overflow")
    x = g.op("MatMul", g.input("x", "float32", (24, 256)), weight(0, 256, 256))
    graph = g.build(g.op("Cast", g.op("Mul", x, np.array(1e3, np.float32)), to=tilewright.core.dtypes.int32))
    path = tmp_path / "log.jsonl"
    path.touch()
    found = choose_precision(graph, JSONDatabase(path), options(), taking(fp32=2, bf16=1), gaining(1.0))
    assert (found.precision, found.choice.errors) == ("fp32", {})
    assert JSONDatabase(path).skipped == ()


def test_lines_are_kept_with_what_is_not_known(tmp_path: Path) -> None:
    log = MemoryDatabase()
    line = json.loads(to_line(mixed(log).choice))
    place = next(iter(line["nodes"]))
    line["nodes"][place]["mood"] = "good"
    read = from_line(json.dumps(line))
    assert read is not None
    assert json.loads(to_line(read)) == line
    old = {k: x for k, x in line.items() if k != "nodes"}
    read = from_line(json.dumps(old))
    assert isinstance(read, Choice)
    assert read.nodes == {}
    assert "bfloat16" not in build(perceptron(), MemoryDatabase([read])).explain().split("kernels")[0]  # type: ignore[attr-defined]


def test_what_a_record_says_of_nodes_that_cannot_be_reduced_is_no_error() -> None:
    """As after a release in which they can no longer."""
    log = MemoryDatabase()
    choice = mixed(log).choice
    graph = perceptron()
    places = node_places(Builds(graph, options(), TARGET).build("fp32").lowered)
    other = next(n.name for n in graph.nodes if n.op == "Tanh")
    nodes = {**choice.nodes, places[other]: NodeChoice(other, "bf16"), "nowhere 0": NodeChoice("x", "bf16")}
    log.append(replace(choice, nodes=nodes, time=choice.time + 1))
    reduced = sum(n.implementation == "bf16" for n in choice.nodes.values())
    assert f"fired bfloat16 x{reduced}: " in build(graph, log).explain()  # type: ignore[attr-defined]


# -- the options -----------------------------------------------------------------------------------------------------
def test_a_precision_for_each_node() -> None:
    asked = {"a": "bf16", "c": NodePrecision("bf16", "since I say so"), "b": "fp32"}
    graph = tilewright.compile(branches(), precision=asked, stop_after="passes", progress=False)
    assert reduced_nodes(graph) == ("a", "c")
    text = tilewright.compile(branches(), precision=asked, progress=False).explain()
    assert "c: since I say so" in text
    assert "refused bfloat16 at b: asked for" in text


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"aa": "bf16"}, "precision: the model has no node 'aa' after its graph passes"),
        ({"aa": "fp32"}, "precision: the model has no node 'aa' after its graph passes"),
        ({"a": "auto"}, r"precision\['a'\]: expected one of fp32, bf16, bf16x3, got 'auto'"),
        ({"a": NodePrecision("half")}, r"precision\['a'\]: expected one of fp32, bf16, bf16x3, got 'half'"),  # type: ignore[arg-type]
        ({3: "bf16"}, "precision: expected names of nodes, got 3"),
        (
            {"n_Relu_0": "bf16"},
            r"precision: node 'n_Relu_0' \(Relu\): expected for bf16 a Conv, ConvTranspose, MatMul",
        ),
        (["a"], "precision: expected one of fp32, bf16, bf16x3, auto, got list"),
    ],
)
def test_what_is_no_precision(asked: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        tilewright.compile(branches(), precision=asked, progress=False)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("given", "message"),
    [({"x": np.zeros(3)}, "samples: expected dicts of arrays"), ([3], r"samples\[0\]: expected a dict by name, got 3")],
)
def test_samples_are_dicts(given: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TuneOptions(samples=given)  # type: ignore[arg-type]
