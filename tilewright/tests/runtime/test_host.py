"""Host steps keep what they return apart from the arena."""

from __future__ import annotations

import numpy as np

from tilewright.core.plan import HostStep
from tilewright.runtime.host import run_host_step


def _step(op: str, inputs: int) -> HostStep:
    return HostStep(op, "", (), tuple(f"x{i}" for i in range(inputs)), ("y",), "node", "a container of tensors")


def test_elements_of_a_sequence_are_not_views_of_the_arena() -> None:
    arena = np.zeros(64, np.uint8)
    value = arena[:8].view(np.float32)
    (sequence,) = run_host_step(_step("SequenceConstruct", 1), [value])
    arena[:] = 255
    assert isinstance(sequence, list)
    np.testing.assert_array_equal(sequence[0], np.zeros(2, np.float32))


def test_scalars_keep_their_rank() -> None:
    (length,) = run_host_step(_step("SequenceLength", 1), [[np.zeros(2)]])
    assert isinstance(length, np.ndarray)
    assert length.shape == ()
