"""Products of float32 in matrix tiles of bfloat16, each operand two such numbers: formulas, schedules, results."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.codegen.detect_cpu import parse_target
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph, Value
from tilewright.lowering.choose_implementation import alternatives_of, with_implementations
from tilewright.lowering.geometry.split_pairs import SPLIT
from tilewright.lowering.implementations.split_products import ATTRIBUTE
from tilewright.machine.target import Target
from tilewright.schedule.default import explained_default
from tilewright.tensor_ir.ir import Func
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles
from tilewright.tests.lowering import lowered
from tilewright.tests.lowering.implementations.test_tiles import (
    CASES,
    DIMS,
    RAPIDS,
    Case,
    case_of,
    randomly_scheduled,
    rapids,
)

__all__ = ["tiles"]

SOME = (*CASES, *(f"shifted {c}" for c in ("images", "transposed", "symbolic rows", "symbolic sizes")))
SIMULATED = ("odd", "image", "padded rows of taps", "transposed", "shifted dilated", "shifted symbolic rows")


def graph_of(case: Case, scale: float = 1.0) -> Graph:
    op, a, b, attrs = case
    g = GraphBuilder("g")
    w = (np.random.default_rng(1).standard_normal(b) * scale / 8).astype(np.float32)
    bias = [np.linspace(-1, 1, b[0], dtype=np.float32)] if op == "Conv" else []
    y = g.op(op, g.input("x", "float32", a), w, *bias, **{ATTRIBUTE: 1}, **attrs)
    return g.build(g.op("Relu", y))


def feed_of(x: Value, dims: dict[str, int] = DIMS) -> dict[str, np.ndarray]:
    shape = [d.evaluate(dims) for d in x.shape]
    return {"x": np.random.default_rng(2).standard_normal(shape).astype(np.float32)}


def way_of(name: str) -> str:
    return "split_shifted" if name.startswith("shifted") else "split_tiles"


def split(graph: Graph, target: Target, name: str) -> Graph:
    """``graph`` with its product by the implementation ``name``."""
    (found,) = (c for c in alternatives_of(graph, target) if c.node.op != "Relu")
    way = found.named(name)
    assert way is not None
    assert way.refusal(found.facts) is None
    return with_implementations(graph, {found.node.name: name})


def require_close(got: np.ndarray, want: object) -> None:
    """As far off as 17 bits of each operand, and not as far as 16."""
    assert isinstance(want, np.ndarray)
    scale = np.sqrt(np.mean(want.astype(np.float64) ** 2))
    assert np.sqrt(np.mean((got - want) ** 2)) < 1e-5 * scale
    np.testing.assert_allclose(got, want, rtol=5e-5, atol=float(5e-5 * scale))


@pytest.mark.parametrize("name", SOME)
def test_the_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = parse_target(RAPIDS)
    monkeypatch.setattr(lowered, "TARGET", target)
    graph = split(graph_of(case_of(name)), target, way_of(name))
    lowered.require_twin(graph, feed_of(graph.values["x"]), DIMS, 5e-5)


@pytest.mark.parametrize("name", SIMULATED)
def test_a_model(tiles: State, name: str) -> None:
    target = with_tiles().with_threads(2)
    graph = split(graph_of(case_of(name)), target, way_of(name))
    feed = feed_of(graph.values["x"])
    (got,) = tilewright.compile(graph, target=target, progress=False).run(None, feed)
    require_close(got, *interpret(graph, feed).values())
    tiles.require_clean()


def func_of(name: str) -> Func:
    target = parse_target(RAPIDS)
    graph = split(graph_of(case_of(name)), target, way_of(name))
    (func,) = tilewright.compile(graph, target=target, stop_after="lower", progress=False).funcs.values()
    return func


@pytest.mark.parametrize("name", ["odd", "symbolic rows", "shifted images"])
def test_any_decisions(name: str) -> None:
    """A schedule of the search space computes what the function does, by the interpreter; words are any bits there."""
    text, want, got = randomly_scheduled(func_of(name), 0)
    assert "tiles_dot2_split_" in text
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["whole", "pixels", "shifted image", "transposed"])
def test_the_default_runs_the_intrinsic(name: str) -> None:
    trace, rules = explained_default(func_of(name), parse_target(RAPIDS))
    assert "tiles_dot2_split_" in str(trace)
    assert {"matrix_tiles", "shifted_tiles"} & {*rules.values()}


def test_taps_and_channels_take_turns() -> None:
    """A few steps of a tap at a time are still a straight line for the intrinsic."""
    target = rapids()
    case: Case = ("Conv", (1, 30, 30, 128), (256, 128, 3, 3), {"data_layout": "NHWC", "strides": (2, 2)})
    graph = split(graph_of(case), target, "split_tiles")
    (func,) = tilewright.compile(graph, target=target, stop_after="lower", progress=False).funcs.values()
    trace = str(explained_default(func, target)[0])
    assert 'decision="columns"' in trace
    assert "acc.depth" in trace
    assert "tiles_dot2_split_2x2" in trace


@pytest.mark.parametrize("way", ["split_tiles", "split_tiles_by_rows"])
def test_few_rows_of_a_number_that_a_call_tells(tiles: State, way: str) -> None:
    target = with_tiles().with_threads(2)
    graph = split(graph_of(("MatMul", ("n", 70), (70, 80), {})), target, way)
    model = tilewright.compile(graph, target=target, progress=False)
    for rows in (0, 1, 2, 7, 8, 33):
        feed = feed_of(graph.values["x"], {"n": rows})
        (got,) = model.run(None, feed)
        if rows:
            require_close(got, *interpret(graph, feed).values())
        assert got.shape == (rows, 80)
    tiles.require_clean()


@pytest.mark.parametrize("k", [1, 31, 32, 75])
def test_a_packed_weight_has_its_high_and_its_low_parts(k: int) -> None:
    w = np.random.default_rng(0).standard_normal((k, 5)).astype(np.float32)
    words = SPLIT.pack(w).reshape(-1, 2, 16, 5)
    pairs = np.stack([words << 16, words & np.int32(-65536)], 3).view(np.float32)  # [block, part, word, of two, column]
    high, low = (pairs[:, n].reshape(-1, 5) for n in (0, 1))
    assert len(high) == -(-k // 32) * 32
    np.testing.assert_allclose(high[:k] + low[:k], w, rtol=2.0**-16)
    np.testing.assert_allclose(high[:k], w, rtol=2.0**-8)
    assert not np.any(high[k:])
    assert not np.any(low[k:])


def refusal_of(graph: Graph, name: str, target: str = RAPIDS) -> str | None:
    found = next(c for c in alternatives_of(graph, parse_target(target)) if c.node.op != "Relu")
    way = found.named(name)
    assert way is not None
    return way.refusal(found.facts)


def unsplit(graph: Graph) -> Graph:
    return graph.replace(nodes=tuple(n.with_attrs(**{ATTRIBUTE: 0}) for n in graph.nodes))


def test_why_a_product_is_not_split() -> None:
    plain = unsplit(graph_of(CASES["whole"]))
    assert "must not be rounded" in str(refusal_of(plain, "split_tiles"))
    assert "no matrix tiles" in str(refusal_of(graph_of(CASES["whole"]), "split_tiles", f"{RAPIDS} -mattr=-amx-bf16"))
    grouped = graph_of(("Conv", (1, 4, 4, 32), (32, 16, 3, 3), {"data_layout": "NHWC", "group": 2}))
    assert refusal_of(grouped, "split_tiles") == "2 groups, expected one"
    few = graph_of(("MatMul", (3, 64), (64, 64), {}))
    assert refusal_of(few, "split_tiles") == "3 rows, expected at least 4"


@pytest.mark.parametrize("largest", [np.inf, np.nan, 3.4e38])
def test_a_weight_that_is_not_finite_when_rounded_is_not_split(largest: float) -> None:
    """It would be off by any amount; asked for by name, it is refused with the estimate."""
    g = GraphBuilder("g")
    w = np.ones((64, 64), np.float32)
    w[3, 5] = largest
    graph = g.build(g.op("MatMul", g.input("x", "float32", (64, 64)), w, **{ATTRIBUTE: 1}))
    (found,) = alternatives_of(graph, parse_target(RAPIDS))
    way = found.named("split_tiles")
    assert way is not None
    assert found.error(way) == np.inf
    asked = {graph.nodes[0].name: "bf16x3"}
    with pytest.raises(InputError, match="expected for bf16x3"):
        tilewright.compile(unsplit(graph), target=RAPIDS, precision=asked, stop_after="passes", progress=False)
