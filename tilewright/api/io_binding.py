"""Inputs and outputs that are bound before runs, as ONNX Runtime's ``IOBinding``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.api.ort_value import CPU, OrtValue, at_address, plain, require_cpu
from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.runtime.signature import TensorSpec


class Runs(Protocol):
    """What a binding belongs to."""

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    def run(self, feed: Mapping[str, object], /, *, out: Mapping[str, object] | None = None) -> dict[str, np.ndarray]:
        """Results by name, written into the arrays of ``out``."""


class IOBinding:
    """Where the inputs of a session's runs lie, and where outputs are written. ``session.io_binding()`` makes one.

    An output that is bound to memory is written there by the kernels, without a copy; one that is bound to a device
    alone gets a new array in each run. Outputs that are not bound are not given.

    >>> session = tilewright.InferenceSession("model.onnx")
    >>> binding = session.io_binding()
    >>> binding.bind_cpu_input("x", np.ones((4, 32), np.float32))
    >>> binding.bind_output("y")
    >>> session.run_with_iobinding(binding)
    >>> binding.copy_outputs_to_cpu()[0].shape
    (4, 10)
    """

    def __init__(self, model: Runs) -> None:
        self._model = model
        self._inputs: dict[str, object] = {}
        self._outputs: dict[str, np.ndarray | None] = {}
        self._results: list[object] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: object) -> None:
        """Bind an array. It is read at each run, so its elements may change in between."""
        _require_known("input", name, self._model.inputs)
        self._inputs[name] = plain(arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: object, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind the tensor at an address."""
        require_cpu(device_type, f"bind_input({name!r})")
        self.bind_cpu_input(name, at_address(buffer_ptr, element_type, shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value."""
        self.bind_cpu_input(name, ortvalue)

    def bind_output(
        self, name: str, device_type: str = CPU, device_id: int = 0, element_type: object = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Ask for an output: a new array each run, or written at an address. Raises InputError where an address comes
        without ``element_type`` and ``shape``."""
        _require_known("output", name, self._model.outputs)
        require_cpu(device_type, f"bind_output({name!r})")
        if buffer_ptr is None:
            self._outputs[name] = None
            return
        if element_type is None or shape is None:
            raise InputError(f"bind_output({name!r}): expected element_type and shape with buffer_ptr, got None")
        self._outputs[name] = at_address(buffer_ptr, element_type, shape)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into a value."""
        _require_known("output", name, self._model.outputs)
        array = ortvalue.numpy()
        if not isinstance(array, np.ndarray):
            raise InputError(f"bind_ortvalue_output({name!r}): expected a tensor, got a sequence")
        self._outputs[name] = array

    def clear_binding_inputs(self) -> None:
        """Unbind all inputs."""
        self._inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Unbind all outputs, and forget what the last run gave."""
        self._outputs.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: inputs are in memory."""

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """What the last run gave, in the order in which outputs were bound."""
        return [OrtValue(x) for x in self._results]  # type: ignore[arg-type]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same as :meth:`get_outputs`."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """What the last run gave, as arrays: those that were bound, or that the run made."""
        return list(self._results)

    def run(self) -> None:
        """Run once. Raises InputError for inputs that are not bound or do not fit."""
        given = {name: array for name, array in self._outputs.items() if array is not None}
        results = self._model.run(self._inputs, out=given or None)
        self._results = [results[name] for name in self._outputs]


def _require_known(what: str, name: str, specs: Sequence[TensorSpec]) -> None:
    known = [s.name for s in specs]
    if name not in known:
        near = did_you_mean(name, known) if isinstance(name, str) else ""
        raise InputError(f"{what}: expected one of {', '.join(map(repr, known))}, got {name!r}{near}")
