"""Where temporaries lie: never two at one place at one time, around the middles of others, and hardly more in all than
the plain form of the algorithm needs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import InputError
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.machine.memory import LINE_BYTES
from tilewright.runtime.resources.arena import Lifetime, Placement, Places, Values, conflicts, lifetimes, place


def scene(seed: int, n: int) -> tuple[dict[str, int], dict[str, Lifetime]]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 20, n)
    last = first + rng.integers(0, 6, n)
    lives = {f"t{k}": Lifetime(int(a), int(b)) for k, (a, b) in enumerate(zip(first, last, strict=True))}
    return {name: int(rng.integers(0, 500)) for name in lives}, lives


def in_lines(size: int) -> int:
    return -(-max(size, 1) // LINE_BYTES) * LINE_BYTES


def placed_plainly(sizes: Mapping[str, int], lives: Mapping[str, Lifetime], most: int) -> dict[str, int]:
    """The largest first, each around the middle of one of the first ``most`` that had to be put elsewhere, inside of
    what is in use; else at the lowest place; where it is free during its whole life."""
    out: dict[str, int] = {}
    middles: list[int] = []
    for name in sorted(sizes, key=lambda n: (-sizes[n], lives[n].first, n)):
        taken = [
            (at, at + max(sizes[o], 1)) for o, at in out.items()
            if lives[o].first <= lives[name].last and lives[name].first <= lives[o].last
        ]  # fmt: skip
        size, total = in_lines(sizes[name]), max((at + in_lines(sizes[o]) for o, at in out.items()), default=0)
        half = size // 2 // LINE_BYTES * LINE_BYTES
        inside = [m - half for m in middles if m - half >= 0 and m - half + size <= total]
        lowest = sorted([0, *(-(-hi // LINE_BYTES) * LINE_BYTES for _, hi in taken)])
        free = [p for p in [*inside, *lowest] if all(p + size <= lo or hi <= p for lo, hi in taken)]
        out[name] = free[0]
        if free[0] not in inside and len(middles) < most:
            middles.append(free[0] + half)
    return out


def require_apart(
    offsets: Mapping[str, int], sizes: Mapping[str, int], lives: Mapping[str, Lifetime], total: int
) -> None:
    for a, x in lives.items():
        assert offsets[a] + sizes[a] <= total
        for b, y in lives.items():
            if a < b and x.first <= y.last and y.first <= x.last:
                assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a], (a, b)


@pytest.mark.parametrize("seed", range(20))
def test_places(seed: int) -> None:
    sizes, lives = scene(seed, 1 + 3 * seed)
    offsets, total = place(sizes, lives, conflicts(lives))
    require_apart(offsets, sizes, lives, total)
    aligned, plain = (placed_plainly(sizes, lives, most) for most in (8, 0))
    needed, least = (max(at + in_lines(sizes[n]) for n, at in x.items()) for x in (aligned, plain))
    assert (offsets, total) == ((aligned, needed) if needed <= least + least // 8 else (plain, least))
    assert total >= max(at + sizes[n] for n, at in offsets.items())
    assert all(at % LINE_BYTES == 0 for at in offsets.values())


def test_tensors_that_follow_each_other_have_their_middles_together() -> None:
    sizes = {"a": 40 * LINE_BYTES, "b": 20 * LINE_BYTES, "c": 10 * LINE_BYTES, "d": 6 * LINE_BYTES}
    lives = {n: Lifetime(k, k + 1) for k, n in enumerate(sizes)}  # each beside the next one
    offsets, total = place(sizes, lives, conflicts(lives))
    middle = {n: at + sizes[n] // 2 for n, at in offsets.items()}
    assert middle["a"] == middle["c"]
    assert middle["b"] == middle["d"]
    assert total == sizes["a"] + sizes["b"]


def test_where_middles_would_take_much_more_all_lie_closely() -> None:
    lines = {"a": 16, "b": 8, "c": 8}  # b around the middle of a would leave four lines on either side of it
    sizes = {n: k * LINE_BYTES for n, k in lines.items()}
    lives = {"a": Lifetime(0, 0), "b": Lifetime(1, 1), "c": Lifetime(1, 1)}
    offsets, total = place(sizes, lives, conflicts(lives))
    assert offsets == placed_plainly(sizes, lives, 0) != placed_plainly(sizes, lives, 8)
    assert total == 16 * LINE_BYTES


@pytest.mark.parametrize("seed", range(20))
def test_places_beside_what_stays(seed: int) -> None:
    sizes, lives = scene(seed, 1 + 3 * seed)
    sizes = {n: max(1, s) for n, s in sizes.items()}
    before, _ = place(sizes, lives, conflicts(lives))
    stays = {n: (before[n], before[n] + sizes[n]) for k, n in enumerate(sizes) if k % 2}
    grown = {n: 2 * s for n, s in sizes.items() if n not in stays}
    offsets, total = place(grown, lives, conflicts(lives), stays)
    assert all(offsets[n] == at for n, (at, _) in stays.items())
    require_apart(offsets, sizes | grown, lives, total)


def test_values_without_a_known_size_have_no_place() -> None:
    sizes, lives = scene(3, 12)
    del sizes["t4"]
    offsets, _ = place(sizes, lives, conflicts(lives))
    assert offsets.keys() == sizes.keys()


def test_conflicts_are_mutual() -> None:
    _, lives = scene(5, 40)
    others = conflicts(lives)
    for a, x in lives.items():
        expected = {b for b, y in lives.items() if b != a and x.first <= y.last and y.first <= x.last}
        assert set(others[a]) == expected
        assert len(others[a]) == len(expected)


def sized(n: int) -> tuple[frozenset[str], Values]:
    return frozenset({"n"}), Values({"n": n})


@pytest.fixture
def placement() -> Placement:
    """Of temporaries that have to be stored: products of products."""
    b = GraphBuilder()
    x = b.input("x", "float32", ("n", 16))
    for _ in range(4):
        x = b.op("MatMul", b.op("Softmax", x), np.ones((16, 16), np.float32))
    model = tilewright.compile(b.build(x), progress=False)
    return Placement(model.plan)


def test_places_stay_while_sizes_fit(placement: Placement) -> None:
    places = [placement.place(*sized(n)) for n in range(100, 180)]
    assert 2 <= len({id(p) for p in places}) <= 10
    for n, p in zip(range(100, 180), places, strict=True):
        need = {name: n * 16 * 4 for name in p.room}
        assert need.keys() == p.offsets.keys()
        assert all(need[name] <= p.room[name] for name in need)
        assert sum(p.room.values()) <= 1.34 * sum(need.values())


def test_sizes_that_grow_leave_the_others_where_they_are() -> None:
    """Up to an arena of twice the size, then all are placed anew."""
    b = GraphBuilder()
    x, y = b.input("x", "float32", ("n", 16)), b.input("y", "float32", (64, 16))
    for _ in range(4):
        y = b.op("MatMul", b.op("Softmax", y), np.ones((16, 16), np.float32))
        x = b.op("MatMul", b.op("Softmax", b.op("Add", x, b.op("ReduceSum", y))), np.ones((16, 16), np.float32))
    plan = tilewright.compile(b.build(x), progress=False).plan
    growing, lives, met = Placement(plan), lifetimes(plan), list[Places]()
    for n in range(20, 1000, 2):
        p = growing.place(*sized(n))
        need = {name: max(1, math.prod(plan.slots[name].shape_values({"n": n}))) * 4 for name in p.offsets}
        require_apart(p.offsets, need, {name: lives[name] for name in need}, p.size)
        assert p.size <= 2.3 * Placement(plan).place(*sized(n)).size
        fixed = {name for name in need if all(d.is_const for d in plan.slots[name].shape or ())}
        assert 0 < len(fixed) < len(need)
        if not met or p is not met[-1]:
            met.append(p)
    moves = sum(any(a.offsets[name] != b.offsets[name] for name in fixed) for a, b in pairwise(met))
    assert 0 < moves <= len(met) / 3


def test_other_sizes_get_other_places(placement: Placement) -> None:
    large, small, again = (placement.place(*sized(n)) for n in (1000, 10, 1000))
    assert small.size < large.size / 50
    assert (again.size, dict(again.offsets)) == (large.size, dict(large.offsets))
    with pytest.raises(InputError, match="negative size"):
        placement.place(*sized(-1))


def test_results_do_not_depend_on_the_calls_before() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", ("n", 16))
    w = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    y = b.op("MatMul", b.op("Softmax", b.op("MatMul", b.op("Softmax", x, axis=0), w)), w)
    graph = b.build(b.op("Concat", y, x, axis=0))
    model = tilewright.compile(graph, progress=False)
    for n in (7, 8, 9, 10, 40, 41, 3, 9, 100, 101, 110, 1):
        feed = {"x": np.random.default_rng(n).standard_normal((n, 16)).astype(np.float32)}
        (want,) = tilewright.compile(graph, progress=False).run(None, feed)
        np.testing.assert_array_equal(model.run(None, feed)[0], want)
