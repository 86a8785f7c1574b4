"""Addresses of arrays, whatever the element type and however they were made."""

import ml_dtypes
import numpy as np
import pytest

from tilewright.machine.memory import LINE_BYTES
from tilewright.runtime.resources.arrays import address, aligned_array

ARRAYS = {
    "plain": np.ones((2, 3), np.float32),
    "empty": np.ones((0, 3), np.float32),
    "scalar": np.array(1.0),
    "bool": np.ones(3, bool),
    "float16": np.ones(3, np.float16),
    "no_buffer_format": np.ones(3, ml_dtypes.bfloat16),
    "part": np.arange(12.0).reshape(3, 4)[1:],
    "not_contiguous": np.arange(12.0).reshape(3, 4)[:, 1::2],
    "read_only": np.broadcast_to(np.float32(1), (4,)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_address_is_that_of_the_first_element(name: str) -> None:
    array = ARRAYS[name]
    assert address(array) == array.__array_interface__["data"][0]


def test_aligned_arrays_start_at_a_whole_line() -> None:
    assert address(aligned_array((3, 5), np.dtype(np.float32))) % LINE_BYTES == 0
