"""The second version of a model, for sizes that broadcast: built when a call needs it, and kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from tilewright.core.assumptions import Assumption, Ones
from tilewright.core.errors import BroadcastError, InputError, TilewrightError
from tilewright.core.plan import ControlStep, Plan

_MAX_KNOWN = 1024
"""Combinations of input shapes that are remembered as needing the second version."""

M = TypeVar("M")
Shapes = tuple[tuple[int, ...], ...]


class GeneralVersion(Generic[M]):
    """The version of a model whose operands broadcast where sizes that only a call tells differ.

    ``build`` makes it; the first call that needs it waits for that, calls that do not need it do not. None: there is
    no such version, and the sizes have to be equal.
    """

    def __init__(self, build: Callable[[], M] | None) -> None:
        self._build = build
        self._lock = threading.Lock()
        self._failure: TilewrightError | None = None
        self._needed: set[Shapes] = set()
        self.exists = build is not None
        self.model: M | None = None

    def known_for(self, arrays: Sequence[object]) -> M | None:
        """The model, if inputs of these shapes needed it before."""
        return self.model if self._needed and _shapes(arrays) in self._needed else None

    def serve(self, arrays: Sequence[object], error: TilewrightError) -> M:
        """The model for inputs that the first version refused with ``error``; raised if there is none for them."""
        if not self.exists:
            raise error
        if (model := self.built()) is None:
            raise InputError(f"{error} (a version that broadcasts cannot be built: {self._failure})") from self._failure
        if isinstance(error, BroadcastError):
            if len(self._needed) >= _MAX_KNOWN:
                self._needed.clear()
            self._needed.add(_shapes(arrays))
        return model

    def require_built(self) -> None:
        """Build the model if there is one. Raises what its build raises."""
        if self.exists and self.built() is None and self._failure is not None:
            raise self._failure

    def state(self) -> str:
        """A line for the account of the model."""
        if not self.exists:
            return "no version broadcasts: calls with other sizes are refused"
        if self.model is not None:
            return "a version that broadcasts is built"
        if self._failure is not None:
            return f"a version that broadcasts cannot be built: {self._failure}"
        return "a version that broadcasts is built at the first call that needs it"

    def built(self) -> M | None:
        """The model, which is built if it is not yet; None if it cannot be."""
        with self._lock:
            if self._build is not None:
                try:
                    self.model = self._build()
                except TilewrightError as e:
                    self._failure = e
                self._build = None  # and with it what only the build needs
        return self.model


def may_broadcast(plan: Plan) -> tuple[Assumption, ...]:
    """What ``plan`` and its bodies take to be equal that may also be 1 by the operators' definitions."""
    own = () if plan.broadcasts else (a for a in plan.assumptions if a.ones is not Ones.NEITHER)
    bodies = (b for s in plan.steps if isinstance(s, ControlStep) for b in s.bodies)
    return tuple(dict.fromkeys((*own, *(a for b in bodies for a in may_broadcast(b)))))


def _shapes(arrays: Sequence[object]) -> Shapes:
    return tuple([a.shape if isinstance(a, np.ndarray) else () for a in arrays])
