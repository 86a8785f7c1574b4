"""Where temporaries lie: never two at one place at one time, and as the plain form of the algorithm puts them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from tilewright.machine.memory import LINE_BYTES
from tilewright.runtime.resources.arena import Lifetime, conflicts, place


def scene(seed: int, n: int) -> tuple[dict[str, int], dict[str, Lifetime]]:
    rng = np.random.default_rng(seed)
    first = rng.integers(0, 20, n)
    last = first + rng.integers(0, 6, n)
    lives = {f"t{k}": Lifetime(int(a), int(b)) for k, (a, b) in enumerate(zip(first, last, strict=True))}
    return {name: int(rng.integers(0, 500)) for name in lives}, lives


def placed_plainly(sizes: Mapping[str, int], lives: Mapping[str, Lifetime]) -> dict[str, int]:
    """The largest first, each at the lowest place that is free during its whole life."""
    out: dict[str, int] = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], lives[n].first, n)):
        taken = [
            (at, at + max(sizes[o], 1)) for o, at in out.items()
            if lives[o].first <= lives[name].last and lives[name].first <= lives[o].last
        ]  # fmt: skip
        end = max(sizes[name], 1)
        places = sorted([0, *(-(-hi // LINE_BYTES) * LINE_BYTES for _, hi in taken)])
        out[name] = next(p for p in places if all(p + end <= lo or hi <= p for lo, hi in taken))
    return out


@pytest.mark.parametrize("seed", range(20))
def test_places(seed: int) -> None:
    sizes, lives = scene(seed, 1 + 3 * seed)
    offsets, total = place(sizes, lives, conflicts(lives))
    assert offsets == placed_plainly(sizes, lives)
    assert total >= max(at + sizes[n] for n, at in offsets.items())
    assert all(at % LINE_BYTES == 0 for at in offsets.values())


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
