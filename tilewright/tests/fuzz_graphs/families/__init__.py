"""The generators: operator -> a function that appends a valid node with that operator to a draft.

A generator picks operands by ``Draft.tensor``, ``new``, ``broadcastable``, draws attributes over all that the standard
allows, and calls ``emit``; what it cannot build it gives up by raising Rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TypeAlias

import numpy as np

from tilewright.tests.fuzz_graphs.draft import Draft
from tilewright.tests.fuzz_graphs.families import (
    cells,
    control,
    elementwise,
    images,
    indexing,
    linear,
    movement,
    quantized,
    reduction,
    rewritten,
    spectral,
    transformers,
    windows,
)

Generator: TypeAlias = Callable[[Draft], object]

MODULES: tuple[ModuleType, ...] = (
    elementwise, movement, indexing, reduction, linear, windows, images, control, quantized, spectral, transformers,
    rewritten, cells,
)  # fmt: skip

FAMILIES: Mapping[str, Generator] = {op: g for m in MODULES for op, g in m.GENERATORS.items()}
_LISTS = [list(m.GENERATORS.values()) for m in MODULES]
_SHARES = np.array([m.SHARE for m in MODULES], float)


def pick_generator(rng: np.random.Generator) -> Generator:
    """A family by its share, then one of its operators."""
    family = _LISTS[int(rng.choice(len(_LISTS), p=_SHARES / _SHARES.sum()))]
    return family[int(rng.integers(0, len(family)))]
