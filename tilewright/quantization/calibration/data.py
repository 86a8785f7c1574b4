"""Calibration data as samples: dicts of arrays that the model takes as they are.

A file holds arrays under the names of the inputs. Where the leading dimension is a multiple of the model's own batch,
it holds several samples, cut along axis 0; a batch that the model leaves open is 1.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from onnx import helper

from tilewright.core.errors import InputError
from tilewright.core.options import shown

Feed: TypeAlias = "dict[str, np.ndarray]"
Given: TypeAlias = "str | Path | Mapping[str, np.ndarray]"
Calibration: TypeAlias = "Given | Sequence[Given]"


def read_samples(model: onnx.ModelProto, calibration: Calibration) -> list[Feed]:
    """The samples of all that is given, in its order. Raises InputError for names, types or shapes that the model does
    not take, and for none at all."""
    given = [calibration] if isinstance(calibration, str | Path | Mapping) else calibration
    if not isinstance(given, Sequence):
        raise InputError(f"calibration: expected .npz files or dicts of arrays, got {shown(calibration)}")
    weights = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    samples: list[Feed] = []
    for k, one in enumerate(given):
        who = str(one) if isinstance(one, str | Path) else f"calibration[{k}]"
        samples += _cut(who, _arrays(who, one), inputs)
    if not samples:
        raise InputError("calibration: expected at least one sample, got none")
    return samples


def _arrays(who: str, one: Given) -> Feed:
    if isinstance(one, Mapping):
        return {n: np.asarray(a) for n, a in one.items()}
    if not isinstance(one, str | Path):
        raise InputError(f"{who}: expected an .npz file or a dict of arrays, got {shown(one)}")
    try:
        with np.load(one, allow_pickle=False) as arrays:
            return {n: arrays[n] for n in arrays.files}
    except (ValueError, AttributeError, TypeError, zipfile.BadZipFile) as e:
        raise InputError(f"{who}: expected an .npz file of arrays: {e}") from e


def _cut(who: str, arrays: Feed, inputs: Sequence[onnx.ValueInfoProto]) -> list[Feed]:
    """The samples of one dict."""
    names = [i.name for i in inputs]
    if set(arrays) != set(names):
        raise InputError(f"{who}: expected arrays {names}, got {sorted(arrays)}")
    counts = {i.name: _count(who, arrays[i.name], i.type.tensor_type) for i in inputs}
    several = {n: c for n, c in counts.items() if c is not None}
    if len(set(several.values())) > 1:
        raise InputError(f"{who}: expected the same number of samples in each array, got {several}")
    total = next(iter(several.values()), 1)
    if total == 1:
        return [arrays]
    parts = {n: np.split(arrays[n], total) if n in several else [arrays[n]] * total for n in names}
    return [{n: parts[n][k] for n in names} for k in range(total)]


def _count(who: str, array: np.ndarray, declared: onnx.TypeProto.Tensor) -> int | None:
    """How many samples an array holds; None where it has no axis to cut along."""
    dtype = helper.tensor_dtype_to_np_dtype(declared.elem_type)
    dims = [d.dim_value if d.HasField("dim_value") else None for d in declared.shape.dim]
    text = f"{dtype}[{', '.join(d.dim_param or str(d.dim_value) for d in declared.shape.dim)}]"
    got = f"{array.dtype}{list(array.shape)}"
    fits = array.dtype == dtype and (
        not declared.HasField("shape")
        or (
            array.ndim == len(dims) and all(d is None or d == n for d, n in zip(dims[1:], array.shape[1:], strict=True))
        )
    )
    if not fits:
        raise InputError(f"{who}: expected {text} or several of them along axis 0, got {got}")
    if array.ndim == 0:
        return None
    batch = dims[0] if dims and dims[0] is not None else 1
    if array.size == 0 or batch == 0 or array.shape[0] % batch:
        raise InputError(f"{who}: expected {text} or several of them along axis 0, got {got}")
    return int(array.shape[0] // batch)
