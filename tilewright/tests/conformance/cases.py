"""The cases of ``onnx.backend.test``: models with inputs and expected outputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
DataSet = tuple[Sequence[object], Sequence[object]]


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One model with data sets of (inputs, expected outputs), both in the order of the model's graph."""

    name: str
    load: Callable[[], tuple[onnx.ModelProto, list[DataSet]]]
    rtol: float
    atol: float


def all_cases(kinds: Sequence[str] = KINDS) -> dict[str, Case]:
    """Every case of the given kinds, by ``kind/name``."""
    out: dict[str, Case] = {}
    for kind in kinds:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # the generators of some cases overflow on purpose
            found = load_model_tests(kind="real" if kind == "light" else kind)
        for c in found:
            name = f"{kind}/{c.name}"
            out[name] = Case(name, _loader(c, kind), c.rtol, c.atol)
    return out


def _loader(case: object, kind: str) -> Callable[[], tuple[onnx.ModelProto, list[DataSet]]]:
    if kind == "light":
        return lambda: _light(Path(onnx.__file__).parent.parent / case.url)
    if case.model is not None:
        sets = [(_arrays(given), _arrays(wanted)) for given, wanted in case.data_sets]
        return lambda: (case.model, sets)
    return lambda: _from_directory(Path(case.model_dir))


def _arrays(values: Sequence[object]) -> list[object]:
    return [numpy_helper.to_array(v) if isinstance(v, onnx.TensorProto) else v for v in values]


def _light(path: Path) -> tuple[onnx.ModelProto, list[DataSet]]:
    """A real network with constant weights; its input is a ramp, as in ONNX's own runner."""
    model = onnx.load(path)
    weights = {t.name for t in model.graph.initializer}
    given: list[object] = []
    for i in model.graph.input:
        shape = [d.dim_value or 1 for d in i.type.tensor_type.shape.dim]
        n = int(np.prod(shape))
        given.append(None if i.name in weights else (np.arange(n).reshape(shape) / n).astype(np.float32))
    wanted = [_read(path.with_name(f"{path.stem}_output_{k}.pb"), o.type) for k, o in enumerate(model.graph.output)]
    return model, [(given, wanted)]


def _from_directory(folder: Path) -> tuple[onnx.ModelProto, list[DataSet]]:
    model = onnx.load(folder / "model.onnx")
    sets: list[DataSet] = []
    for data in sorted(folder.glob("test_data_set*")):
        given = [_read(data / f"input_{k}.pb", i.type) for k, i in enumerate(model.graph.input)
                 if (data / f"input_{k}.pb").exists()]  # fmt: skip
        wanted = [_read(data / f"output_{k}.pb", o.type) for k, o in enumerate(model.graph.output)]
        sets.append((given, wanted))
    return model, sets


def _read(path: Path, declared: onnx.TypeProto) -> object:
    content = path.read_bytes()
    if declared.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(content))
    if declared.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(content))
    return numpy_helper.to_array(onnx.TensorProto.FromString(content))
