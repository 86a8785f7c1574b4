"""Facts about immutable objects, worked out once: kept beside the objects, by identity.

The IRs are immutable trees that share what a rewrite leaves alone, so what is known of a node holds in every tree that
has it. Keys are identities, because comparing or hashing a tree by value costs as much as most of its analyses.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def by_identity(limit: int) -> Callable[[Callable[[K], V]], Callable[[K], V]]:
    """A decorator for a function of one immutable object whose result nobody changes. At most ``limit`` results are
    kept (with their objects, since an identity means something only while its object lives), then dropped as a whole.
    """

    def decorate(function: Callable[[K], V]) -> Callable[[K], V]:
        known: dict[int, tuple[K, V]] = {}

        @functools.wraps(function)
        def remembered(node: K) -> V:
            found = known.get(id(node))
            if found is None:
                found = (node, function(node))
                if len(known) >= limit:
                    known.clear()
                known[id(node)] = found
            return found[1]

        return remembered

    return decorate
