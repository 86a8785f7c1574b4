"""``evaluate``: one operator on arrays, by our own definition where there is one, else by ``onnx.reference``.

Floats below 32 bits are widened, computed in float32 and rounded at the end, which is also what compiled code does.
Attributes are plain Python values; a tensor attribute is an array or has one as ``array``; an element type is a
``DType`` or its ONNX number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import UnsupportedError
from tilewright.core.plan import SIZES_DOMAIN
from tilewright.reference import (
    broadcasting,
    elementwise,
    matrix,
    movement,
    quantize,
    recurrent,
    reduction,
    selection,
    sequences,
    signal,
    slicing,
)
from tilewright.reference.onnx_ops import evaluate_onnx
from tilewright.reference.sizes import result_sizes
from tilewright.reference.spatial import conv_pool, deform_conv, grid_sample, regions, resize

Attrs = Mapping[str, object]
Definition = Callable[[Attrs, Sequence[object], int], list[object]]

OWN: Mapping[str, Definition] = {
    **conv_pool.DEFINITIONS,
    **deform_conv.DEFINITIONS,
    **grid_sample.DEFINITIONS,
    **matrix.DEFINITIONS,
    **movement.DEFINITIONS,
    **quantize.DEFINITIONS,
    **elementwise.DEFINITIONS,
    **broadcasting.DEFINITIONS,
    **resize.DEFINITIONS,
    **selection.DEFINITIONS,
    **sequences.DEFINITIONS,
    **slicing.DEFINITIONS,
    **recurrent.DEFINITIONS,
    **reduction.DEFINITIONS,
    **regions.DEFINITIONS,
    **signal.DEFINITIONS,
}

# operators whose result type does not follow their (narrow float) inputs, or which only move elements, or see to it
NOT_WIDENED = frozenset(
    {
        "BitCast", "BroadcastTo", "Cast", "CastLike", "CommonSizes", "Compress", "Concat", "ConcatFromSequence",
        "ConstantOfShape", "DepthToSpace", "DequantizeLinear", "Expand", "EyeLike", "Flatten", "Gather",
        "GatherElements", "GatherND", "Identity", "LookUp", "OneHot", "Optional", "OptionalGetElement",
        "OptionalHasElement", "Pow", "QLinearMatMul", "QuantizeLinear", "Reshape",
        "ReverseSequence", "SequenceAt", "SequenceConstruct", "SequenceErase", "SequenceInsert", "SequenceLength",
        "Shape", "Size", "Slice", "SpaceToDepth", "Split", "SplitToSequence", "Squeeze", "Tile", "Transpose", "Trilu",
        "Unsqueeze", "Where",
    }
)  # fmt: skip
COMPUTED_HOW = ("flush", "implementation", "halo", "host", "in_place", "runs", "sizes", "begin", "split_operands")
"""Attributes that say how a node is computed, not what it gives."""

_STATISTICS = {"LayerNormalization": 1}  # outputs from here on are float32


def evaluate(
    op: str, domain: str, attrs: Mapping[str, object], inputs: Sequence[object], n_outputs: int,
    definition: Definition | None = None,
) -> list[object]:  # fmt: skip
    """Outputs of one operator application, ``n_outputs`` of them. Raises UnsupportedError for an unknown operator.
    ``definition``: of an operator that is not ours.

    In the domain ``sizes`` the outputs are the shapes of the operator's results.
    """
    if domain == SIZES_DOMAIN:
        return [*result_sizes(op, attrs, inputs)[:n_outputs]]
    if domain not in ("", "ai.onnx"):
        raise UnsupportedError(f"{domain}.{op}: no reference definition of this domain")
    plain = {k: _plain(v) for k, v in attrs.items() if v is not None}
    arrays = [_as_array(x) for x in inputs]
    for how in COMPUTED_HOW:
        plain.pop(how, None)
    if plain.pop("data_layout", "NCHW") == "NHWC":
        first = arrays[0]
        if not isinstance(first, np.ndarray):
            raise TypeError(f"{op}: expected an array as input 0, got {type(first).__name__}")
        arrays[0] = np.ascontiguousarray(np.moveaxis(first, -1, 1))
        out = _typed(op, plain, arrays, n_outputs, definition)
        return [np.ascontiguousarray(np.moveaxis(o, 1, -1)) if isinstance(o, np.ndarray) else o for o in out]
    return _typed(op, plain, arrays, n_outputs, definition)


def _plain(v: object) -> object:
    if isinstance(v, DType):
        return v.onnx
    return getattr(v, "array", v)


def _as_array(x: object) -> object:
    return np.asarray(x) if isinstance(x, np.generic) else x


def _is_narrow(x: object) -> bool:
    if not isinstance(x, np.ndarray) or x.dtype == object or x.dtype.kind in "iubSUc":
        return False
    return dtypes.from_numpy(x.dtype).is_narrow_float


def _typed(
    op: str, attrs: Attrs, inputs: Sequence[object], n_outputs: int, definition: Definition | None
) -> list[object]:
    if op in NOT_WIDENED or not any(map(_is_narrow, inputs)):
        outputs = _dispatch(op, attrs, inputs, n_outputs, definition)
        first = _STATISTICS.get(op, len(outputs))
        return [o.astype(np.float32) if i >= first and isinstance(o, np.ndarray) else o for i, o in enumerate(outputs)]
    if (to := attrs.get("output_dtype")) is not None:  # sums of narrow operands that are not rounded to their type
        attrs = {k: v for k, v in attrs.items() if k != "output_dtype"}
        exact = [x.astype(np.float32) if isinstance(x, np.ndarray) and _is_narrow(x) else x for x in inputs]
        result = dtypes.from_onnx(int(to)).numpy  # type: ignore[call-overload]
        summed = _dispatch(op, attrs, exact, n_outputs, definition)
        return [o.astype(result) if isinstance(o, np.ndarray) else o for o in summed]
    narrow = next(x.dtype for x in inputs if isinstance(x, np.ndarray) and _is_narrow(x))
    wide = [x.astype(np.float32) if isinstance(x, np.ndarray) and _is_narrow(x) else x for x in inputs]
    out = _dispatch(op, attrs, wide, n_outputs, definition)
    stop = _STATISTICS.get(op, len(out))
    if "dtype" in attrs:
        return out
    with np.errstate(over="ignore"):
        return [
            o.astype(narrow) if i < stop and isinstance(o, np.ndarray) and o.dtype == np.float32 else o
            for i, o in enumerate(out)
        ]


def _dispatch(
    op: str, attrs: Attrs, inputs: Sequence[object], n_outputs: int, definition: Definition | None
) -> list[object]:
    own = OWN.get(op) if definition is None else definition
    with np.errstate(all="ignore"):
        out = own(attrs, inputs, n_outputs) if own is not None else evaluate_onnx(op, attrs, inputs, n_outputs)
    return [_as_array(o) for o in out]
