"""Facts about immutable objects, worked out once: kept beside the objects, by identity.

The IRs are immutable trees that share what a rewrite leaves alone, so what is known of a node holds in every tree that
has it. Keys are identities, because comparing or hashing a tree by value costs as much as most of its analyses; small
expressions, which come again in other trees, are remembered by value. All of it serves one build: a process that
compiles now and then would otherwise keep the trees of its last networks.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

K = TypeVar("K")
V = TypeVar("V")
P = ParamSpec("P")
_MEMOS: weakref.WeakSet[Any] = weakref.WeakSet()
_LOCK = threading.Lock()


def _note(remembered: object) -> None:
    with _LOCK:
        _MEMOS.add(remembered)


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

        remembered.cache_clear = known.clear  # type: ignore[attr-defined]
        _note(remembered)
        return remembered

    return decorate


def by_value(limit: int) -> Callable[[Callable[P, V]], Callable[P, V]]:
    """A decorator for a function of hashable arguments, of which the last ``limit`` results are kept."""

    def decorate(function: Callable[P, V]) -> Callable[P, V]:
        remembered = functools.lru_cache(maxsize=limit)(function)
        _note(remembered)
        return remembered  # type: ignore[return-value]

    return decorate


@contextmanager
def forgotten_after() -> Iterator[None]:
    """Nothing of what was remembered is kept beyond the block."""
    try:
        yield
    finally:
        with _LOCK:
            memos = list(_MEMOS)
        for remembered in memos:
            remembered.cache_clear()
