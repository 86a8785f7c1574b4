"""Inputs to profile and compare with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.plan import Plan
from tilewright.core.random_arrays import random_array


def random_feed(plan: Plan, sizes: Mapping[str, int], seed: int) -> dict[str, np.ndarray]:
    """Inputs to profile with (:func:`random_array`). Raises InputError for symbols without a size."""
    shapes = {n: plan.slots[n].shape or () for n in plan.inputs}
    sizes = {**{r.what: r.high.const for r in plan.limits}, **sizes}
    missing = sorted({s for shape in shapes.values() for d in shape for s in d.free_vars()} - sizes.keys())
    if missing:
        raise InputError(f"sizes: expected a size for {', '.join(missing)}; give sizes={{{missing[0]!r}: 1}} or a feed")
    rng = np.random.default_rng(seed)
    return {
        name: random_array(rng, plan.slots[name].dtype, tuple(d.evaluate(sizes) for d in shape))
        for name, shape in shapes.items()
    }
