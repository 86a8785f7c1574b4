"""Where onnxruntime and the standard differ: who is right, and why. A difference without a rule here is a finding.

A rule matches one node with its input values. Each says in a sentence what onnxruntime does and what the standard
(or the reference implementation in the onnx package) says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

Inputs: TypeAlias = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Case:
    """A node with its values, what differs, and what onnxruntime gives."""

    node: onnx.NodeProto
    arrays: Inputs
    wrong: str
    ours: Mapping[str, object]
    theirs: Mapping[str, object]

    def attr(self, key: str, default: object = None) -> object:
        for a in self.node.attribute:
            if a.name == key:
                return helper.get_attribute_value(a)
        return default

    def input(self, k: int) -> np.ndarray | None:
        if k >= len(self.node.input) or not self.node.input[k]:
            return None
        x = self.arrays[self.node.input[k]]
        return x if isinstance(x, np.ndarray) else None

    def has_odd(self, k: int = 0) -> bool:
        """True if a float input has a NaN or an infinity."""
        x = self.input(k)
        return x is not None and x.dtype.kind in "fV" and not bool(np.isfinite(x.astype(np.float64)).all())

    def largest_error(self) -> float:
        """The largest difference of floats on both sides, relative to 1 + the size; infinite where NaNs differ."""
        worst = 0.0
        for name, got in self.theirs.items():
            want = self.ours.get(name)
            if not isinstance(got, np.ndarray) or not isinstance(want, np.ndarray) or got.shape != want.shape:
                return float("inf")
            with np.errstate(all="ignore"):
                a, b = got.astype(np.float64), want.astype(np.float64)
                same = (a == b) | (np.isnan(a) & np.isnan(b))
                off = np.where(same, 0.0, np.abs(a - b) / (1 + np.abs(b)))
            worst = max(worst, float(np.nan_to_num(off, nan=np.inf).max(initial=0.0)))
        return worst

    def is_empty(self, k: int = 0) -> bool:
        x = self.input(k)
        return x is not None and x.size == 0


@dataclass(frozen=True, slots=True)
class Difference:
    """``ops``: the operators it is about. ``when``: whether it explains a case. ``why``: who is right."""

    name: str
    ops: tuple[str, ...]
    when: Callable[[Case], bool]
    why: str


def _is_close(c: Case) -> bool:
    return c.largest_error() < 2e-5


_SMOOTH = tuple("Sigmoid Tanh Erf Gelu Softplus Mish Selu Elu Exp LSTM GRU RNN Swish HardSwish Celu".split())

RULES: tuple[Difference, ...] = (
    Difference("approximate_functions", _SMOOTH, _is_close,
               "onnxruntime's polynomials are off by up to 1e-5 of 1; ours and numpy's are exact to a few units"),
    Difference("power_of_mixed_types", ("Pow",), lambda c: "element type" in c.wrong,
               "the standard gives the base's type; onnxruntime computes float16 in float32 and returns that"),
    Difference("shrink_of_integers", ("Shrink",), lambda c: c.input(0).dtype.kind in "iu",  # type: ignore[union-attr]
               "onnxruntime computes in float32 and converts, which wraps at the limits"),
)  # fmt: skip


def explain_difference(
    node: onnx.NodeProto, arrays: Inputs, wrong: str, ours: Mapping[str, object], theirs: Mapping[str, object]
) -> str:
    """The name of the rule that explains why onnxruntime differs from the reference on this node, or ""."""
    case = Case(node, arrays, wrong, ours, theirs)
    return next((r.name for r in RULES if node.op_type in r.ops and r.when(case)), "")
