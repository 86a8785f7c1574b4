"""Products of two bfloat16 numbers for each operand, where those of one are too far off: what is chosen, and built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

import tilewright
from tilewright.autotune.lookup.precision import MIXED
from tilewright.autotune.network.mixed_precision import Build, apart
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.precision import Chosen, choose_precision
from tilewright.autotune.records.database import MemoryDatabase
from tilewright.codegen.detect_cpu import detect_host
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.ir import Graph
from tilewright.machine.target import Target
from tilewright.machine.vectors import is_x86
from tilewright.tests.codegen.matrix_tiles import State, tiles, with_tiles

__all__ = ["tiles"]

pytestmark = pytest.mark.skipif(not is_x86(detect_host().triple), reason="tiles are simulated on x86")

LAYERS = 3


def target() -> Target:
    """Tiles that pay for networks that are small enough for a simulation."""
    host = with_tiles().with_threads(1)
    return replace(host, own_costs=replace(host.costs, tile_start=0.0, split_word=0.0, split_sum=0.0))


def network() -> Graph:
    g = GraphBuilder("network")
    x = g.input("x", "float32", (32, 64))
    for k in range(LAYERS):
        x = g.op("Tanh", g.op("MatMul", x, np.random.default_rng(k).standard_normal((64, 64)).astype(np.float32) / 8))
    graph = g.build(x)
    names = iter(f"layer{k}" for k in range(LAYERS))
    return graph.replace(nodes=tuple(replace(n, name=next(names)) if n.op == "MatMul" else n for n in graph.nodes))


def profile(own: Build, other: Build, nodes: Sequence[str], feed: object) -> dict[str, tuple[float, float]]:
    return {n: (3.0, {"bf16": 1.0, "bf16x3": 2.0}[other.precision]) for n in nodes}


def taking(**seconds: float) -> Callable[[Mapping[str, Callable[[], object]], int], Mapping[str, float]]:
    return lambda contenders, threads: {name: seconds[name] for name in contenders}


def choose(log: MemoryDatabase, max_error: float) -> Chosen:
    feed = {"x": np.random.default_rng(9).standard_normal((32, 64)).astype(np.float32)}
    o = TuneOptions(precision="auto", target=target(), threads=1, max_error=max_error, feed=feed)
    return choose_precision(network(), log, o, taking(fp32=4, bf16=1, bf16x3=3, mixed=2), profile)


def test_what_is_too_far_off_on_one_number_takes_two(tiles: State) -> None:
    log = MemoryDatabase()
    found = choose(log, 3e-3)
    assert found.choice.implementation == MIXED
    kinds = [n.implementation for n in found.choice.nodes.values()]
    assert {*kinds} == {"bf16", "bf16x3"}
    assert all(n.seconds == {"fp32": 3.0, "bf16": 1.0, "bf16x3": 2.0} for n in found.choice.nodes.values())
    errors = found.choice.errors
    assert errors["bf16x3"] < 3e-5 < errors[MIXED] < 3e-3 < errors["bf16"]
    assert f"{kinds.count('bf16')} of 3 products on bfloat16, {kinds.count('bf16x3')} on two for each" in str(found)
    model = tilewright.compile(network(), precision="auto", database=log, target=target(), progress=False)
    text = model.explain()
    assert f"fired bfloat16 x{kinds.count('bf16')}: " in text
    assert f"fired bf16x3 x{kinds.count('bf16x3')}: " in text
    plain = tilewright.compile(network(), target=target(), progress=False)
    feed = {"x": np.random.default_rng(10).standard_normal((32, 64)).astype(np.float32)}
    assert 3e-5 < apart(plain.run(feed), model.run(feed)) < 3e-3
    tiles.require_clean()


def test_all_products_take_two_numbers_where_none_may_take_one(tiles: State) -> None:
    log = MemoryDatabase()
    found = choose(log, 5e-5)
    assert (found.precision, found.choice.implementation) == ("bf16x3", "bf16x3")
    assert {n.implementation for n in found.choice.nodes.values()} == {"bf16x3"}
    text = tilewright.compile(network(), precision="auto", database=log, target=target(), progress=False).explain()
    assert "fired bf16x3 x3: layer0, layer1, layer2" in text


def test_float32_stays_where_two_are_too_far_off(tiles: State) -> None:
    found = choose(MemoryDatabase(), 1e-7)
    assert found.precision == "fp32"
    assert {n.implementation for n in found.choice.nodes.values()} == {"fp32"}
    assert set(found.choice.seconds) == {"fp32", "bf16", "bf16x3"}
