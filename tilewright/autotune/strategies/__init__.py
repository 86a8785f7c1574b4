"""Search strategies by name. Each is one file with ``make(space, score, rng, params)``; see :mod:`.base`."""

from __future__ import annotations

from tilewright.autotune.strategies import annealing, annealing_measured, evolutionary, grid, random_search
from tilewright.autotune.strategies.base import Maker

STRATEGIES: dict[str, Maker] = {
    "annealing": annealing.make,
    "annealing-measured": annealing_measured.make,
    "evolutionary": evolutionary.make,
    "grid": grid.make,
    "random": random_search.make,
}
