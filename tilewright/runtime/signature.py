"""What a model accepts and returns, and the checks of what it is fed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError, ResourceError
from tilewright.core.options import shown
from tilewright.core.plan import Plan, Slot

_MAX_AGREED = 64
"""Combinations of input shapes that are remembered as having passed."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output. ``shape``: integers, or the text of a symbolic dimension; None if the rank is unknown.

    ``type`` is spelled as ONNX Runtime does: ``tensor(float)``. ``type_text``: that of what is no tensor.
    """

    name: str
    dtype: DType
    shape: tuple[int | str, ...] | None
    type_text: str = ""

    @property
    def type(self) -> str:
        return self.type_text or self.dtype.onnx_text

    def to_json(self) -> dict[str, object]:
        """Name, element type and shape, as JSON has them."""
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "type": self.dtype.name, "shape": shape}

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{dims}]"

    __repr__ = __str__


def spec_of(plan: Plan, name: str) -> TensorSpec:
    """The signature entry of a slot."""
    slot = plan.slots[name]
    shape = None if slot.shape is None else tuple(v if (v := d.value()) is not None else str(d) for d in slot.shape)
    return TensorSpec(name, slot.dtype, shape)


_Expected: TypeAlias = tuple[str, np.dtype | None, tuple[int, ...] | None, int | None]


def _expected(slot: Slot) -> _Expected:
    """Of an input its name, element type (None for what is no tensor), fixed shape, and rank if it has none."""
    dtype = None if slot.dtype.onnx == 0 else slot.dtype.numpy
    if slot.shape is None:
        return slot.name, dtype, None, None
    sizes = tuple(d.const for d in slot.shape if d.is_const)
    return (
        (slot.name, dtype, sizes, None) if len(sizes) == len(slot.shape) else (slot.name, dtype, None, len(slot.shape))
    )


def _contiguous(name: str, array: np.ndarray) -> np.ndarray:
    try:
        return np.ascontiguousarray(array)
    except MemoryError as e:
        raise ResourceError(f"input {name!r}: out of memory for a contiguous copy: {e}") from e


class InputChecker:
    """Checks a feed against a plan's inputs; ``folded`` are inputs of the model file that became constants."""

    def __init__(self, plan: Plan, folded: Sequence[str] = ()) -> None:
        self._names = plan.inputs
        self._known = frozenset(plan.inputs)
        self._folded = frozenset(folded)
        self._shapes = [(n, plan.slots[n].shape) for n in plan.inputs]
        alike: dict[tuple[IntExpr, ...] | None, int] = {}
        self._numbers = [alike.setdefault(shape, len(alike)) for _, shape in self._shapes]
        self._expected = [_expected(plan.slots[n]) for n in plan.inputs]
        self._specs = {n: spec_of(plan, n) for n in plan.inputs}
        self._limits = plan.limits
        self._agreed: set[tuple[tuple[int, ...] | None, ...]] = set()

    def arrays(self, feed: Mapping[str, object]) -> list[object]:
        """The inputs in plan order, contiguous. Raises InputError for wrong names, element types, ranks or sizes."""
        if not isinstance(feed, dict) and not isinstance(feed, Mapping):
            expected = "; ".join(str(s) for s in self._specs.values())
            raise InputError(f"inputs: expected a dict of arrays by name, {expected}; got {shown(feed)}")
        if feed.keys() != self._known:
            self._refuse_names(feed)
        out: list[object] = []
        symbolic = False
        for name, dtype, static, rank in self._expected:
            value = feed[name]
            if dtype is None:
                out.append(value)
                continue
            if dtype.hasobject:
                array = np.asarray(value, dtype=object)
            else:
                array = value if type(value) is np.ndarray else self._as_array(name, value)
            if array.dtype is not dtype and array.dtype != dtype:
                raise InputError(f"input {name!r}: expected {self._specs[name]}, got element type {array.dtype}")
            if static is not None:
                if array.shape != static:
                    raise InputError(f"input {name!r}: expected {self._specs[name]}, got shape {list(array.shape)}")
            elif rank is not None:
                symbolic = True
                if array.ndim != rank:
                    raise InputError(f"input {name!r}: expected {self._specs[name]}, got shape {list(array.shape)}")
            out.append(array if array.flags.c_contiguous else _contiguous(name, array))
        if symbolic:
            shapes = tuple([a.shape if isinstance(a, np.ndarray) else None for a in out])
            if shapes not in self._agreed:
                self._check_symbolic(shapes)
                if len(self._agreed) >= _MAX_AGREED:
                    self._agreed.clear()
                self._agreed.add(shapes)
        return out

    def _as_array(self, name: str, value: object) -> np.ndarray:
        try:
            return np.asarray(value)
        except ValueError as e:  # lists of lists of different lengths
            raise InputError(f"input {name!r}: expected {self._specs[name]}, got {shown(value)}: {e}") from e

    def _refuse_names(self, feed: Mapping[str, object]) -> None:
        missing = [n for n in self._names if n not in feed]
        extra = [n for n in feed if n not in self._known]
        folded = [n for n in extra if n in self._folded]
        if folded:
            raise InputError(
                f"input {folded[0]!r}: it has an initializer in the model and was folded into the build; "
                f"expected only {', '.join(map(repr, self._names))}"
            )
        parts = [f"missing {', '.join(map(repr, missing))}"] if missing else []
        parts += [f"unknown {', '.join(map(repr, extra))}"] if extra else []
        expected = "; ".join(str(s) for s in self._specs.values())
        raise InputError(f"inputs: {' and '.join(parts)}; expected {expected}")

    def _collect(
        self, name: str, actual: Sequence[int], shape: Sequence[IntExpr], env: dict[str, tuple[int, str]]
    ) -> None:
        for axis, (size, d) in enumerate(zip(actual, shape, strict=True)):
            symbol = as_var(d)
            if symbol is not None and symbol not in env:
                env[symbol] = size, f"{name!r} axis {axis}"

    def _check_symbolic(self, shapes: Sequence[tuple[int, ...] | None]) -> None:
        first: dict[tuple[int, tuple[int, ...] | None], int] = {}
        for k, form in enumerate(zip(self._numbers, shapes, strict=True)):
            first.setdefault(form, k)
        different: list[tuple[str, tuple[IntExpr, ...], tuple[int, ...]]] = []
        for (_, actual), k in first.items():
            name, shape = self._shapes[k]
            if shape is not None and actual is not None:
                different.append((name, shape, actual))
        env: dict[str, tuple[int, str]] = {}
        for name, shape, actual in different:
            self._collect(name, actual, shape, env)
        values = {k: v for k, (v, _) in env.items()}
        for r in self._limits:
            if r.free_vars() <= values.keys() and (message := r.violation(values)) is not None:
                raise InputError(message)
        for name, shape, actual in different:
            for axis, (size, d) in enumerate(zip(actual, shape, strict=True)):
                if not d.free_vars() <= values.keys():
                    continue
                expected = d.evaluate(values)
                if size != expected:
                    where = "; ".join(f"{s}={v} from {w}" for s, (v, w) in env.items() if s in d.free_vars())
                    meant = str(expected) if d.is_const else f"{d} = {expected}"
                    raise InputError(
                        f"input {name!r} axis {axis}: expected {meant}{f' ({where})' if where else ''}, got {size}"
                    )
