"""What users ask of the simplifier, as one frozen value that is checked when it is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypedDict, get_args

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import (
    require_choice,
    require_flag,
    require_mapping,
    require_names,
    require_number,
    require_whole,
    shown,
    with_keywords,
)

Level: TypeAlias = Literal["basic", "extended"]
Shapes: TypeAlias = "Mapping[str, Sequence[int | str] | int]"
Sizes: TypeAlias = "Mapping[str, Sequence[int] | int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplifyOptions:
    """What :func:`tilewright.simplify` takes beside the model.

    ``level``: ``basic`` removes what does nothing, folds constants and shares what is computed twice; ``extended`` also
    folds scales into weights and joins chains of nodes into operators that the opset has. ``opset``: the version of
    ONNX's operators to write; None keeps that of the file. ``disabled_pass``, ``enabled_pass``: names of passes or
    rules; approximate rules run only if they are enabled.

    ``growth_bytes``: how much larger a folded constant may be than what it replaces; None: a thousandth of the model's
    constants, at least 1 KB. Shape arithmetic always folds.
    ``input_shapes``: shapes by input, and sizes by dimension, that the model is made for. ``outputs``: names of those
    to keep, by default all. ``drop_outputs``: names of those to leave out. ``drop_inputs``: leave out inputs that
    nothing reads. ``value_infos``: whether the result says the types of values between nodes; None: if the file does.
    Runtimes find them by themselves, and take some decisions by those that are said.

    ``check``: run both models on random inputs and compare. ``check_sizes``: sizes of dimensions, or shapes of inputs,
    to do that with, once for each; by default two bindings that the model takes are looked for. ``check_inputs``:
    arrays by input to compare with instead. ``seed``: of the random inputs. ``tolerance``: the largest difference, as a
    share of the root mean square of an output; None: one for each element type. ``threads``: of these runs; None for
    what the machine allows.

    >>> options = tilewright.SimplifyOptions(level="basic", check_sizes=[{"batch": 3}])
    >>> len(tilewright.simplify("model.onnx", options).graph.node)
    4
    """

    level: Level = "extended"
    opset: int | None = None
    disabled_pass: str | Sequence[str] = ()
    enabled_pass: str | Sequence[str] = ()
    growth_bytes: int | None = None
    input_shapes: Shapes | None = None
    outputs: str | Sequence[str] | None = None
    drop_outputs: str | Sequence[str] = ()
    drop_inputs: bool = False
    value_infos: bool | None = None
    check: bool = True
    check_sizes: Sequence[Sizes] = ()
    check_inputs: Mapping[str, np.ndarray] | None = None
    seed: int = 0
    tolerance: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        require_choice("level", self.level, get_args(Level))
        plain: dict[str, object] = {
            "disabled_pass": require_names("disabled_pass", self.disabled_pass),
            "enabled_pass": require_names("enabled_pass", self.enabled_pass),
            "drop_outputs": require_names("drop_outputs", self.drop_outputs),
            "drop_inputs": require_flag("drop_inputs", self.drop_inputs),
            "check": require_flag("check", self.check),
            "seed": require_whole("seed", self.seed, 0),
            "check_sizes": self._sizes(),
        }
        if self.value_infos is not None:
            plain["value_infos"] = require_flag("value_infos", self.value_infos)
        if self.growth_bytes is not None:
            plain["growth_bytes"] = require_whole("growth_bytes", self.growth_bytes, 0)
        if self.outputs is not None:
            plain["outputs"] = require_names("outputs", self.outputs)
        if self.check_inputs is not None:
            arrays = require_mapping("check_inputs", self.check_inputs)
            plain["check_inputs"] = {n: np.asarray(a) for n, a in arrays.items()}
        if self.tolerance is not None:
            plain["tolerance"] = require_number("tolerance", self.tolerance)
        if self.threads is not None:
            plain["threads"] = require_whole("threads", self.threads)
        for name, value in plain.items():
            object.__setattr__(self, name, value)

    def _sizes(self) -> tuple[Sizes, ...]:
        given = (self.check_sizes,) if isinstance(self.check_sizes, Mapping) else self.check_sizes
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise InputError(f"check_sizes: expected dicts of sizes, got {shown(self.check_sizes)}")
        for one in given:
            require_mapping("check_sizes", one)
        return tuple(given)

    @classmethod
    def of(cls, who: str, options: SimplifyOptions | None, more: Mapping[str, Any]) -> SimplifyOptions:
        """``options`` (by default those of the class) with ``more`` in their places. Raises InputError."""
        return with_keywords(cls, who, options, more)


class SimplifyKeywords(TypedDict, total=False):
    """:class:`SimplifyOptions`, for type checkers."""

    level: Level
    opset: int | None
    disabled_pass: str | Sequence[str]
    enabled_pass: str | Sequence[str]
    growth_bytes: int | None
    input_shapes: Shapes | None
    outputs: str | Sequence[str] | None
    drop_outputs: str | Sequence[str]
    drop_inputs: bool
    value_infos: bool | None
    check: bool
    check_sizes: Sequence[Sizes]
    check_inputs: Mapping[str, np.ndarray] | None
    seed: int
    tolerance: float | None
    threads: int | None
