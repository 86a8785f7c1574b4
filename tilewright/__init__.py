"""tilewright: a multi-level ML compiler with schedule autotuning. ONNX in, tuned CPU machine code out.

>>> import tilewright
>>> model = tilewright.compile("resnet50.onnx")     # doctest: +SKIP
>>> model.run({"input": image})                      # doctest: +SKIP
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.core.collector import paused_collector

if TYPE_CHECKING:
    from tilewright.api.schedule import Schedule
    from tilewright.api.session import InferenceSession, SessionOptions
    from tilewright.autotune.network.options import TuneOptions
    from tilewright.autotune.network.tune_network import tune
    from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase, UnionDatabase
    from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
    from tilewright.core.errors import (
        CoverageError,
        InputError,
        MeasurementError,
        MismatchError,
        ModelError,
        ResourceError,
        RuleError,
        ScheduleError,
        TargetError,
        TilewrightError,
        UnsupportedError,
    )
    from tilewright.deploy.include import get_include
    from tilewright.deploy.loader import load
    from tilewright.deploy.opener import export_loader
    from tilewright.deploy.pack import export_package
    from tilewright.edit.exchange import from_ir, to_ir
    from tilewright.edit.loading import load_graph, merge_graphs, new_graph
    from tilewright.edit.model_graph import ModelGraph
    from tilewright.lowering.implementations.base import Implementation
    from tilewright.machine.target import Target
    from tilewright.options import CompileOptions
    from tilewright.quantization.options import QuantizeOptions
    from tilewright.quantization.quantize import quantize
    from tilewright.runtime.model import CompiledModel
    from tilewright.schedule.trace import Trace
    from tilewright.simplification.options import SimplifyOptions
    from tilewright.simplification.simplify import simplify

__version__ = "0.1.0"

_HOMES = {
    "compile": "tilewright.compile",
    "CompileOptions": "tilewright.options",
    "TuneOptions": "tilewright.autotune.network.options",
    "load": "tilewright.deploy.loader",
    "get_include": "tilewright.deploy.include",
    "export_loader": "tilewright.deploy.opener",
    "export_package": "tilewright.deploy.pack",
    "tune": "tilewright.autotune.network.tune_network",
    "quantize": "tilewright.quantization.quantize",
    "QuantizeOptions": "tilewright.quantization.options",
    "simplify": "tilewright.simplification.simplify",
    "SimplifyOptions": "tilewright.simplification.options",
    "JSONDatabase": "tilewright.autotune.records.database",
    "MemoryDatabase": "tilewright.autotune.records.database",
    "UnionDatabase": "tilewright.autotune.records.database",
    "InferenceSession": "tilewright.api.session",
    "SessionOptions": "tilewright.api.session",
    "CompiledModel": "tilewright.runtime.model",
    "ModelGraph": "tilewright.edit.model_graph",
    "load_graph": "tilewright.edit.loading",
    "new_graph": "tilewright.edit.loading",
    "merge_graphs": "tilewright.edit.loading",
    "from_ir": "tilewright.edit.exchange",
    "to_ir": "tilewright.edit.exchange",
    "Schedule": "tilewright.api.schedule",
    "Trace": "tilewright.schedule.trace",
    "Implementation": "tilewright.lowering.implementations.base",
    "Target": "tilewright.machine.target",
    "TilewrightError": "tilewright.core.errors",
    "ModelError": "tilewright.core.errors",
    "UnsupportedError": "tilewright.core.errors",
    "CoverageError": "tilewright.core.errors",
    "InputError": "tilewright.core.errors",
    "MeasurementError": "tilewright.core.errors",
    "MismatchError": "tilewright.core.errors",
    "ResourceError": "tilewright.core.errors",
    "RuleError": "tilewright.core.errors",
    "ScheduleError": "tilewright.core.errors",
    "TargetError": "tilewright.core.errors",
}

__all__ = [
    "CompileOptions", "CompiledModel", "CoverageError", "Implementation", "InferenceSession", "InputError",
    "JSONDatabase", "MeasurementError", "MemoryDatabase", "MismatchError", "ModelError", "ModelGraph",
    "QuantizeOptions", "ResourceError", "RuleError", "Schedule", "ScheduleError", "SessionOptions", "SimplifyOptions",
    "Target", "TargetError", "TilewrightError", "Trace", "TuneOptions", "UnionDatabase", "UnsupportedError",
    "__version__", "compile", "export_loader", "export_package", "from_ir", "get_include", "load", "load_graph",
    "merge_graphs", "new_graph", "quantize", "simplify", "to_ir", "tune",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Public names load their room when first used: importing the package costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    with paused_collector():  # what a module defines lives on
        value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


class _Package(ModuleType):
    """This package, whose ``compile`` is the function: importing the submodule of that name binds its function here."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "compile" and isinstance(value, ModuleType):
            value = value.compile
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
