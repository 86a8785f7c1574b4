"""Search strategies by name. Each is one file with ``make(space, score, rng, params)``; see :mod:`.base`.

Takes: the space of traces of a function, a score for candidates, a random generator, parameters by name.
Gives: a strategy, which proposes candidates and hears what was measured of them.
May import: autotune.base, autotune.cost_model, schedule, tensor_ir, core.
Never: a measurement, a clock, a random number that is not drawn from the given generator.
"""

from __future__ import annotations

from tilewright.autotune.search.strategies import annealing, annealing_measured, evolutionary, grid, random_search
from tilewright.autotune.search.strategies.base import Maker

STRATEGIES: dict[str, Maker] = {
    "annealing": annealing.make,
    "annealing-measured": annealing_measured.make,
    "evolutionary": evolutionary.make,
    "grid": grid.make,
    "random": random_search.make,
}
