"""``InferenceSession`` in the shape of ONNX Runtime's: a thin layer on :func:`tilewright.compile`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InputError
from tilewright.core.index_ranges import OutOfRange
from tilewright.core.io.files import create_file
from tilewright.core.options import as_whole, require_choice, require_flag, require_mapping, require_whole, shown
from tilewright.runtime.signature import TensorSpec

if TYPE_CHECKING:
    import onnx

_LEVELS = {0: "none", 1: "basic", 2: "extended", 99: "all"}


@dataclass(slots=True)
class SessionOptions:
    """The options of ONNX Runtime that have a counterpart here.

    ``graph_optimization_level``: 0, 1, 2, 99 as in ONNX Runtime's enum (or the enum itself), or a level's name.
    ``intra_op_num_threads``: 0 for the default. ``optimized_model_filepath``: where to write the model as it is after
    the passes of that level, as ONNX.
    ``out_of_range`` (ours): ``error`` or ``clamp``, as for :func:`tilewright.compile`.
    """

    graph_optimization_level: object = "all"
    intra_op_num_threads: int = 0
    optimized_model_filepath: str = ""
    enable_profiling: bool = False
    profile_file_prefix: str = "tilewright_profile"
    free_dimensions: dict[str, int] = field(default_factory=dict)
    out_of_range: OutOfRange = "error"

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give the symbolic dimension ``name`` a fixed size."""
        self.free_dimensions[name] = value

    def level(self) -> str:
        """The name of the optimization level. Raises InputError for an unknown one."""
        value = getattr(self.graph_optimization_level, "value", self.graph_optimization_level)
        number = as_whole(value)
        if number is None and isinstance(value, str):
            return require_choice("graph_optimization_level", value, _LEVELS.values())
        if number not in _LEVELS:
            raise InputError(f"graph_optimization_level: expected one of {sorted(_LEVELS)}, got {shown(value)}")
        return _LEVELS[number]

    def threads(self) -> int | None:
        """The number of threads, None for the default. Raises InputError."""
        return require_whole("intra_op_num_threads", self.intra_op_num_threads, 0) or None


class InferenceSession:
    """``InferenceSession(path).run(output_names, feed)``."""

    def __init__(
        self,
        path_or_bytes: str | Path | bytes | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[object] | None = None,
    ) -> None:
        """``providers`` is accepted for compatibility: there is one, the CPU. Raises what ``compile`` raises."""
        options = SessionOptions() if sess_options is None else sess_options
        if not isinstance(options, SessionOptions):
            raise InputError(f"sess_options: expected tilewright.SessionOptions, got {shown(options)}")
        self._options = options
        level, threads = options.level(), options.threads()
        dims = require_mapping("free_dimensions", options.free_dimensions)
        shapes: dict[str, Sequence[int | str] | int] = {
            name: require_whole(f"free_dimensions[{name!r}]", size, 0) for name, size in dims.items()
        }
        require_flag("enable_profiling", options.enable_profiling)
        self._model = compile(
            path_or_bytes, opt_level=level, threads=threads, input_shapes=shapes or None,
            out_of_range=options.out_of_range, save_optimized=options.optimized_model_filepath or None,
        )  # fmt: skip
        self._last_feed: Mapping[str, object] | None = None

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], run_options: object = None, *,
        out: Mapping[str, object] | None = None,
    ) -> list[np.ndarray]:  # fmt: skip
        """The named outputs (all for None) in order. ``out``: see :meth:`CompiledModel.run`. Raises InputError."""
        if self._options.enable_profiling:
            self._last_feed = input_feed
        return self._model.run(output_names, input_feed, out=out)

    def get_inputs(self) -> list[TensorSpec]:
        """Inputs with ``.name``, ``.shape``, ``.type``."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[TensorSpec]:
        """Outputs with ``.name``, ``.shape``, ``.type``."""
        return list(self._model.outputs)

    def get_providers(self) -> list[str]:
        return ["CPUExecutionProvider"]

    def end_profiling(self) -> str:
        """Profile the last feed and write the kernel times as JSON; returns the file's name."""
        if self._last_feed is None:
            raise InputError("end_profiling: expected enable_profiling and at least one run before it")
        profile = self._model.profile(self._last_feed)
        path = Path(f"{self._options.profile_file_prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        rows = [
            {"name": k.kernel, "nodes": list(k.nodes), "dur_us": k.seconds * 1e6, "flops": k.flops, "bytes": k.bytes}
            for k in profile.kernels
        ]
        return str(create_file(path, json.dumps(rows, indent=1).encode()))
