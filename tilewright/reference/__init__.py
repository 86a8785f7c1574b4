"""The reference room: what every graph operator means, on numpy arrays. Slow and obvious; the oracle of all tests.

Takes: an operator's name, attributes and input arrays (lists for sequences, None for absent). Gives: its output arrays.
May import: core (and onnx, scipy inside functions, when first needed). Never: an IR, a kernel, anything it is to check.
"""

from __future__ import annotations

from tilewright.reference.evaluate import evaluate

__all__ = ["evaluate"]
