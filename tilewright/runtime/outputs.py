"""Arrays of the caller that outputs are written into, and the checks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import shown
from tilewright.core.plan import Plan
from tilewright.runtime.resources.arrays import address
from tilewright.runtime.signature import TensorSpec, spec_of


@dataclass(frozen=True, slots=True)
class GivenOutputs:
    """``arrays``: in the order of the plan's outputs, None for one that the run is to allocate."""

    specs: tuple[TensorSpec, ...]
    arrays: tuple[np.ndarray | None, ...]

    def take(self, k: int, shape: tuple[int, ...]) -> np.ndarray | None:
        """The array of output ``k``, which turned out to have ``shape``. Raises InputError for another one."""
        array = self.arrays[k]
        if array is not None and array.shape != shape:
            spec = self.specs[k]
            raise InputError(
                f"output {spec.name!r}: expected an array of {spec}, here {list(shape)}, got shape {list(array.shape)}"
            )
        return array


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
            if self._dtypes[k] is None:
                raise InputError(f"output {name!r}: expected no array of the caller, it is no tensor of numbers")
            if array.dtype != self._dtypes[k]:
                raise InputError(f"output {name!r}: expected {self._specs[k]}, got element type {array.dtype}")
            if not array.flags.c_contiguous or not array.flags.writeable:
                got = "one that is read-only" if array.flags.c_contiguous else f"strides {array.strides}"
                raise InputError(f"output {name!r}: expected a C-contiguous array that can be written, got {got}")
            arrays[k] = array
        return GivenOutputs(self._specs, tuple(arrays))

    def require_apart(self, given: GivenOutputs, inputs: Sequence[object]) -> None:
        """Raises InputError where the memory of an output is also that of another or of an input (contiguous, too), but
        for an output that may be updated where it lies."""
        spans = [(k, a) for k, a in enumerate(given.arrays) if a is not None]
        spans += [(~i, a) for i, a in enumerate(inputs) if isinstance(a, np.ndarray)]
        starts = sorted((start := address(a), start + a.nbytes, k) for k, a in spans if a.nbytes)
        reach: list[tuple[int, int, int]] = []
        for span in starts:
            reach = [r for r in reach if r[1] > span[0]]
            for other in reach:
                first, second = sorted((other[2], span[2]), reverse=True)
                if first >= 0 and not self._may_share(first, second, given, inputs):
                    self._refuse(first, second)
            reach.append(span)

    def _may_share(self, output: int, other: int, given: GivenOutputs, inputs: Sequence[object]) -> bool:
        """True if ``other`` is an input (~ its position) that may be, and is, the array of ``output``, whose memory
        overlaps."""
        if (output, ~other) not in self._in_place:
            return False
        pair = given.arrays[output], inputs[~other]
        a, b = (x for x in pair if isinstance(x, np.ndarray))
        return a.shape == b.shape and address(a) == address(b)

    def _refuse(self, output: int, other: int) -> None:
        name = self._specs[output].name
        with_ = f"output {self._specs[other].name!r}" if other >= 0 else f"input {self._inputs[~other]!r}"
        pairs = [self._inputs[i] for o, i in sorted(self._in_place) if o == output]
        may = f", or that of input {pairs[0]!r} as a whole, which it may update in place" if pairs else ""
        raise InputError(
            f"output {name!r}: expected memory of its own{may}; got an array that shares memory with {with_}"
        )
