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
    from tilewright.api.ablation import ablate
    from tilewright.api.io_binding import IOBinding
    from tilewright.api.model_metadata import ModelMetadata, NodeArg
    from tilewright.api.ort_value import OrtDevice, OrtValue
    from tilewright.api.process import (
        disable_telemetry_events,
        enable_telemetry_events,
        get_all_providers,
        get_available_providers,
        get_device,
        get_version_string,
        set_default_logger_severity,
        set_default_logger_verbosity,
    )
    from tilewright.api.replay import Replay
    from tilewright.api.schedule import Schedule
    from tilewright.api.session import InferenceSession
    from tilewright.api.session_options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        RunOptions,
        SessionOptions,
    )
    from tilewright.api.target import Target
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
    from tilewright.lowering.implementations.operator import Operator
    from tilewright.options import CompileOptions
    from tilewright.quantization.options import QuantizeOptions
    from tilewright.quantization.quantize import quantize
    from tilewright.runtime.model import CompiledModel
    from tilewright.schedule.rules.base import ScheduleRule
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
    "SessionOptions": "tilewright.api.session_options",
    "RunOptions": "tilewright.api.session_options",
    "GraphOptimizationLevel": "tilewright.api.session_options",
    "ExecutionMode": "tilewright.api.session_options",
    "ExecutionOrder": "tilewright.api.session_options",
    "OrtValue": "tilewright.api.ort_value",
    "OrtDevice": "tilewright.api.ort_value",
    "IOBinding": "tilewright.api.io_binding",
    "ModelMetadata": "tilewright.api.model_metadata",
    "NodeArg": "tilewright.api.model_metadata",
    "get_available_providers": "tilewright.api.process",
    "get_all_providers": "tilewright.api.process",
    "get_device": "tilewright.api.process",
    "get_version_string": "tilewright.api.process",
    "set_default_logger_severity": "tilewright.api.process",
    "set_default_logger_verbosity": "tilewright.api.process",
    "disable_telemetry_events": "tilewright.api.process",
    "enable_telemetry_events": "tilewright.api.process",
    "CompiledModel": "tilewright.runtime.model",
    "ModelGraph": "tilewright.edit.model_graph",
    "load_graph": "tilewright.edit.loading",
    "new_graph": "tilewright.edit.loading",
    "merge_graphs": "tilewright.edit.loading",
    "from_ir": "tilewright.edit.exchange",
    "to_ir": "tilewright.edit.exchange",
    "Schedule": "tilewright.api.schedule",
    "Replay": "tilewright.api.replay",
    "ablate": "tilewright.api.ablation",
    "Trace": "tilewright.schedule.trace",
    "Implementation": "tilewright.lowering.implementations.base",
    "Operator": "tilewright.lowering.implementations.operator",
    "ScheduleRule": "tilewright.schedule.rules.base",
    "Target": "tilewright.api.target",
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
    "CompileOptions", "CompiledModel", "CoverageError", "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel",
    "IOBinding", "Implementation", "InferenceSession", "InputError", "JSONDatabase", "MeasurementError",
    "MemoryDatabase", "MismatchError", "ModelError", "ModelGraph", "ModelMetadata", "NodeArg", "Operator",
    "OrtDevice", "OrtValue", "QuantizeOptions", "Replay", "ResourceError", "RuleError", "RunOptions", "Schedule",
    "ScheduleError", "ScheduleRule", "SessionOptions", "SimplifyOptions", "Target", "TargetError", "TilewrightError",
    "Trace", "TuneOptions", "UnionDatabase", "UnsupportedError", "__version__", "ablate", "compile",
    "disable_telemetry_events", "enable_telemetry_events", "export_loader", "export_package", "from_ir",
    "get_all_providers", "get_available_providers", "get_device", "get_include", "get_version_string", "load",
    "load_graph", "merge_graphs", "new_graph", "quantize", "set_default_logger_severity",
    "set_default_logger_verbosity", "simplify", "to_ir", "tune",
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
