"""Arrays of the caller that outputs are written into, and the checks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import shown
from tilewright.core.plan import Plan
from tilewright.runtime.loop_driver import Result
from tilewright.runtime.resources.arrays import address
from tilewright.runtime.signature import TensorSpec, spec_of


@dataclass(frozen=True, slots=True)
class GivenOutputs:
    """``arrays``: in the order of the plan's outputs, None for one that the run is to allocate."""

    specs: tuple[TensorSpec, ...]
    arrays: tuple[np.ndarray | None, ...]

    def completed(self, results: Sequence[Result]) -> list[np.ndarray]:
        """These arrays and new ones for the rest of ``results``. Raises InputError for an array of another shape."""
        out: list[np.ndarray] = []
        for k, (array, (shape, dtype, _)) in enumerate(zip(self.arrays, results, strict=True)):
            if array is not None and array.shape != shape:
                self.require_shape(k, shape)
            out.append(np.empty(shape, dtype) if array is None else array)
        return out

    def require_shape(self, k: int, shape: tuple[int, ...]) -> None:
        """Raises InputError if there is an array for output ``k``, which turned out to have ``shape``, with another."""
        array, spec = self.arrays[k], self.specs[k]
        if array is not None and array.shape != shape:
            raise InputError(
                f"output {spec.name!r}: expected an array of {spec}, here {list(shape)}, got shape {list(array.shape)}"
            )


class OutputChecker:
    """Checks arrays for the outputs of a plan, which the caller knows by ``names``."""

    def __init__(self, plan: Plan, names: Sequence[str]) -> None:
        slots = [plan.slots[o] for o in plan.outputs]
        self._specs = tuple(
            TensorSpec(n, (s := spec_of(plan, o)).dtype, s.shape) for n, o in zip(names, plan.outputs, strict=True)
        )
        self._places = {n: k for k, n in enumerate(names)}
        self._dtypes = [s.dtype.numpy if s.dtype.itemsize else None for s in slots]
        self._inputs = plan.inputs
        self._in_place = frozenset((plan.outputs.index(o), plan.inputs.index(i)) for o, i in plan.in_place)

    def given(self, out: Mapping[str, object]) -> GivenOutputs:
        """Arrays by name of an output. Raises InputError for what is no array that such an output can be written into,
        whatever its shape."""
        if not isinstance(out, Mapping):
            raise InputError(f"out: expected a dict of arrays by name, got {shown(out)}")
        arrays: list[np.ndarray | None] = [None] * len(self._specs)
        for name, array in out.items():
            if name not in self._places:
                raise InputError(f"out: unknown {name!r}; expected some of {list(self._places)}")
            k = self._places[name]
            if not isinstance(array, np.ndarray):
                raise InputError(f"output {name!r}: expected an array of {self._specs[k]}, got {shown(array)}")
            dtype = self._dtypes[k]
            if dtype is None:
                raise InputError(f"output {name!r}: expected no array of the caller, it is no tensor of numbers")
            if array.dtype is not dtype and array.dtype != dtype:
                raise InputError(f"output {name!r}: expected {self._specs[k]}, got element type {array.dtype}")
            if not array.flags.carray:
                raise InputError(
                    f"output {name!r}: expected a C-contiguous array that can be written, got {_unfit(array)}"
                )
            arrays[k] = array
        return GivenOutputs(self._specs, tuple(arrays))

    def require_apart(self, given: GivenOutputs, inputs: Sequence[object]) -> None:
        """Raises InputError where the memory of an output is also that of another or of an input (contiguous, too), but
        for an output that may be updated where it lies."""
        arrays = given.arrays
        updated = {i for o, i in self._in_place if _is_same(arrays[o], inputs[i])}  # what meets them meets the output
        others = [(~i, a) for i, a in enumerate(inputs) if i not in updated and isinstance(a, np.ndarray)]
        held = [(k, a) for k, a in enumerate(arrays) if a is not None] + others
        reach: list[tuple[int, int]] = []  # ends of what begins before, and whose memory it is
        for start, size, k in sorted([(address(a), a.nbytes, k) for k, a in held]):
            reach = [r for r in reach if r[0] > start]
            for _, other in reach:
                if size and max(k, other) >= 0:
                    self._refuse(max(k, other), min(k, other))
            reach.append((start + size, k))

    def _refuse(self, output: int, other: int) -> None:
        name = self._specs[output].name
        with_ = f"output {self._specs[other].name!r}" if other >= 0 else f"input {self._inputs[~other]!r}"
        pairs = [self._inputs[i] for o, i in sorted(self._in_place) if o == output]
        may = f", or that of input {pairs[0]!r} as a whole, which it may update in place" if pairs else ""
        raise InputError(
            f"output {name!r}: expected memory of its own{may}; got an array that shares memory with {with_}"
        )


def _is_same(output: np.ndarray | None, given: object) -> bool:
    """True if the array of an output is that of an input."""
    if output is given:
        return True
    if not isinstance(output, np.ndarray) or not isinstance(given, np.ndarray) or output.shape != given.shape:
        return False
    return address(output) == address(given)


def _unfit(array: np.ndarray) -> str:
    if not array.flags.c_contiguous:
        return f"strides {array.strides}"
    return "one that is read-only" if not array.flags.writeable else "one whose elements are not aligned"
