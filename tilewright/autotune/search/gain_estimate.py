"""What further trials of a task are expected to bring, from the trials so far.

The best time found falls about as a power of the number of trials; its exponent is read off the second half of the
curve and mixed with a prior that fades as trials accumulate. The prior follows the spread of the times measured: where
all schedules are equally fast, there is nothing to find. Deterministic: only measured values go in, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

PRIOR_SLOPE = 0.15
"""Exponent assumed of a task without trials: each doubling of the trials then gains a tenth."""
_PRIOR_TRIALS = 16.0
_SPREAD_TRIALS = 4.0
_SLOPE_OF_SPREAD = 0.3
_STEEPEST = 0.3
_FIRST = 4.0
"""Trials that a task without any counts as, so that the first ones are not worth infinitely much."""


def power_slope(bests: Sequence[float], spread: float = PRIOR_SLOPE / _SLOPE_OF_SPREAD) -> float:
    """The exponent. ``bests``: the best time after each trial (inf while none succeeded); ``spread``: standard
    deviation of the logarithms of the times."""
    count = len(bests)
    seen = min(_STEEPEST, _SLOPE_OF_SPREAD * spread)
    prior = (_SPREAD_TRIALS * PRIOR_SLOPE + count * seen) / (_SPREAD_TRIALS + count)
    weight = count / (count + _PRIOR_TRIALS)
    half, last = bests[count // 2] if count else math.inf, bests[-1] if count else math.inf
    if not math.isfinite(last):
        return prior
    measured = math.log(half / last) / math.log(2.0) if math.isfinite(half) else prior
    return (1.0 - weight) * prior + weight * min(measured, 1.0)


def expected_gain(bests: Sequence[float], more: int, spread: float = PRIOR_SLOPE / _SLOPE_OF_SPREAD) -> float:
    """The share of the present best time (0 to 1) that ``more`` trials are expected to save."""
    if more <= 0:
        return 0.0
    done = max(float(len(bests)), _FIRST)
    return 1.0 - math.exp(-power_slope(bests, spread) * math.log((done + more) / done))
