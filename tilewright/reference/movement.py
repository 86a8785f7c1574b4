"""Movement of elements where onnx.reference fails on some element types or modes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Attrs = Mapping[str, Any]


def _identity(_: Attrs, inputs: Sequence[Any], __: int) -> list[object]:
    return [inputs[0]]


DEFINITIONS: Mapping[str, Callable[[Attrs, Sequence[Any], int], list[object]]] = {"Identity": _identity}
