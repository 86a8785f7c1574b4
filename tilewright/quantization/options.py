"""What users ask of a quantization, as one frozen value that is checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict, get_args

from tilewright.core.errors import InputError
from tilewright.core.options import (
    require_choice,
    require_flag,
    require_names,
    require_number,
    require_whole,
    with_keywords,
)

Calibrator: TypeAlias = Literal["minmax", "percentile", "entropy", "mse"]
WeightOnly: TypeAlias = Literal["int8", "int4"]
Runtime: TypeAlias = Literal["onnxruntime", "tilewright"]

_STATIC = ("per_tensor", "bias_correction", "equalize", "smooth", "skip_worse_than", "budget")
"""What means nothing when only weights are quantized."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeOptions:
    """What :func:`tilewright.quantize` takes beside the model and its calibration data.

    ``calibrator``: how an activation's range is found: ``minmax``, ``percentile``, ``entropy`` (least Kullback-Leibler
    divergence) or ``mse`` (least mean square error). ``percentile``: how many percent of the elements are inside, for
    the calibrator of that name.
    ``per_tensor``: one scale a weight instead of one an output channel.

    ``smooth``: SmoothQuant's alpha, 0 to 1, None for none. ``equalize``: cross-layer equalization of convolutions.
    ``bias_correction``: biases make up for the mean of what rounding the weights does.

    ``skip``: names of nodes that stay in float32. ``skip_worse_than``: so do layers which, quantized alone, leave the
    model's results with a lower signal-to-noise ratio, in dB. ``budget``: how far results may be off in this compiler,
    the root mean square of the difference as a share of that of the result: then those layers are quantized that gain
    most time under it, measured on this machine.

    ``weight_only``: ``int8`` or ``int4`` weights of products, and all arithmetic in float32. ``block``: elements along
    the sum that share a scale. ``gptq``: rounding errors are made up for by the weights not rounded yet.

    ``runtime``: what runs the model; None for onnxruntime if it is installed, else this compiler. ``threads``: of these
    runs; None for what the machine allows.

    >>> options = tilewright.QuantizeOptions(weight_only="int8", block=32)
    >>> small = tilewright.quantize("model.onnx", options=options)
    """

    calibrator: Calibrator = "minmax"
    percentile: float = 99.99
    per_tensor: bool = False
    smooth: float | None = None
    equalize: bool = False
    bias_correction: bool = False
    skip: str | Sequence[str] = ()
    skip_worse_than: float | None = None
    budget: float | None = None
    weight_only: WeightOnly | None = None
    block: int = 32
    gptq: bool = False
    runtime: Runtime | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        require_choice("calibrator", self.calibrator, get_args(Calibrator))
        require_choice("weight_only", self.weight_only, (None, *get_args(WeightOnly)))
        require_choice("runtime", self.runtime, (None, *get_args(Runtime)))
        plain: dict[str, object] = {
            "percentile": require_number("percentile", self.percentile, 50.0, 100.0),
            "skip": require_names("skip", self.skip),
            "block": require_whole("block", self.block, 2),
        }
        for name in ("per_tensor", "equalize", "bias_correction", "gptq"):
            plain[name] = require_flag(name, getattr(self, name))
        if self.smooth is not None:
            plain["smooth"] = require_number("smooth", self.smooth, 0.0, 1.0)
        if self.skip_worse_than is not None:
            plain["skip_worse_than"] = require_number("skip_worse_than", self.skip_worse_than)
        if self.budget is not None:
            plain["budget"] = require_number("budget", self.budget)
        if self.threads is not None:
            plain["threads"] = require_whole("threads", self.threads)
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        self._require_one_kind()

    def _require_one_kind(self) -> None:
        if self.weight_only is None and self.gptq:
            raise InputError("gptq: expected with weight_only, got it without")
        static = [n for n in _STATIC if getattr(self, n) not in (None, False)]
        if self.weight_only is not None and static:
            raise InputError(f"weight_only: expected without {', '.join(static)}, which are about activations")
        if self.budget is not None and self.skip_worse_than is not None:
            raise InputError("budget: expected without skip_worse_than, which leaves layers out by another rule")

    @property
    def needs_calibration(self) -> bool:
        """Whether samples are needed."""
        return self.weight_only is None or self.gptq

    @classmethod
    def of(cls, who: str, options: QuantizeOptions | None, more: Mapping[str, Any]) -> QuantizeOptions:
        """``options`` (by default those of the class) with ``more`` in their places. Raises InputError."""
        return with_keywords(cls, who, options, more)


class QuantizeKeywords(TypedDict, total=False):
    """:class:`QuantizeOptions`, for type checkers."""

    calibrator: Calibrator
    percentile: float
    per_tensor: bool
    smooth: float | None
    equalize: bool
    bias_correction: bool
    skip: str | Sequence[str]
    skip_worse_than: float | None
    budget: float | None
    weight_only: WeightOnly | None
    block: int
    gptq: bool
    runtime: Runtime | None
    threads: int | None
