"""Options of a session and of a run, under ONNX Runtime's names.

What an option of ONNX Runtime does here is in :data:`EFFECTS`: those with a counterpart are followed, the others are
accepted, as scripts set them, and logged once with the reason why they change nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

from tilewright.core.errors import InputError, UnsupportedError
from tilewright.core.index_ranges import OutOfRange
from tilewright.core.options import as_whole, require_choice, require_flag, require_mapping, require_whole, shown
from tilewright.core.suggestions import did_you_mean

LOGGER = logging.getLogger("tilewright")

_LEVELS = {0: "none", 1: "basic", 2: "extended", 3: "all", 99: "all"}


class GraphOptimizationLevel(IntEnum):
    """The levels of the graph passes: ``none``, ``basic``, ``extended``, ``all`` in our words.

    >>> options = tilewright.SessionOptions()
    >>> options.graph_optimization_level = tilewright.GraphOptimizationLevel.ORT_ENABLE_BASIC
    >>> options.level()
    'basic'
    """

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """How operators follow each other: here always one after the other, each on all threads.

    >>> options = tilewright.SessionOptions()
    >>> options.execution_mode = tilewright.ExecutionMode.ORT_SEQUENTIAL
    """

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order of operators: here that of the plan.

    >>> options = tilewright.SessionOptions()
    >>> options.execution_order = tilewright.ExecutionOrder.PRIORITY_BASED
    """

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


_ONE_STREAM = "a run goes through one kernel after the other, each on all threads"
_ARENA = "temporaries always lie in one arena, whose places are planned when the model is built"

EFFECTS: Mapping[str, str] = {
    "graph_optimization_level": "the level of the graph passes",
    "intra_op_num_threads": "the number of threads; 0 is the default",
    "optimized_model_filepath": "the graph after the passes, as ONNX",
    "enable_profiling": "each run adds its kernels to a trace",
    "profile_file_prefix": "how the file of that trace begins",
    "log_severity_level": "the level of the logger `tilewright`",
    "add_free_dimension_override_by_name": "a symbolic dimension becomes a number",
    "add_session_config_entry": "see the entries below",
    "inter_op_num_threads": f"none: {_ONE_STREAM}",
    "execution_mode": f"none: {_ONE_STREAM}",
    "execution_order": f"none: {_ONE_STREAM}",
    "enable_cpu_mem_arena": f"none: {_ARENA}",
    "enable_mem_pattern": f"none: {_ARENA}",
    "enable_mem_reuse": f"none: {_ARENA}",
    "use_deterministic_compute": "none: results are the same in every run and for any number of threads",
    "use_per_session_threads": "none: a session has threads of its own",
    "log_verbosity_level": "none: there is one level of messages",
    "logid": "none: messages have the name of the model",
}
"""Attributes and methods of ``SessionOptions``, and what they do here."""

CONFIG_ENTRIES: Mapping[str, str] = {
    "session.disable_prepacking": "none: weights are packed once, when the model is built",
    "session.use_env_allocators": f"none: {_ARENA}",
    "session.load_model_format": "none: models are ONNX files, artifacts are loaded with tilewright.load",
    "session.save_model_format": "none: see CompiledModel.export",
    "session.set_denormal_as_zero": "`1`: kernels take denormal numbers for zero",
    "session.disable_quant_qdq": "none: see the pass integer_products and disabled_pass",
    "session.disable_double_qdq_remover": "none: each quantization is computed",
    "session.enable_quant_qdq_cleanup": "none: each quantization is computed",
    "session.qdqisint8allowed": "none: signed and unsigned bytes are followed as they are",
    "session.inter_op.allow_spinning": f"none: {_ONE_STREAM}",
    "session.intra_op.allow_spinning": "none: see the environment variable TILEWRIGHT_SPIN_MS",
    "session.intra_op_thread_affinities": "the CPUs on which the threads that help stay, numbered from 1: `1,2;3-4`",
    "session.dynamic_block_base": "none: the schedule of a kernel says how threads share it",
    "session.use_ort_model_bytes_directly": "none: models are ONNX",
    "session.use_ort_model_bytes_for_initializers": "none: models are ONNX",
    "session.force_spinning_stop": "none: see the environment variable TILEWRIGHT_SPIN_MS",
    "session.strict_shape_type_inference": "none: inference is always strict",
    "session.model_external_initializers_file_folder_path": "none: external data lies where the model says",
    "session.use_device_allocator_for_initializers": f"none: {_ARENA}",
    "optimization.enable_gelu_approximation": "none: no approximate rule is on by an option of a session",
    "optimization.minimal_build_optimizations": "none: there is one build",
    "optimization.disable_specified_optimizers": "none: see disabled_optimizers of InferenceSession, with our names",
    "PERFORMANCE_HINT": "OpenVINO's: `LATENCY` lets calls take turns on all threads, `THROUGHPUT` runs one on each",
    "NUM_STREAMS": "OpenVINO's: how many calls run at once, each on a share of the threads",
    "mlas.enable_gemm_fastmath_arm64_bfloat16": 'none: see tilewright.compile(precision="bf16")',
}
"""Configuration entries of ONNX Runtime and what they do here."""


@dataclass(slots=True)
class SessionOptions:
    """Options of a session: those of ONNX Runtime, and ours.

    ``config_entries``: what ``add_session_config_entry`` set. ``graph_optimization_level``: 0, 1, 2, 3, 99 as in ONNX
    Runtime's enum (or the enum itself), or a level's name. ``intra_op_num_threads``: 0 for the default.
    ``optimized_model_filepath``: where to write the model as it is after the passes of that level, as ONNX.
    ``free_dimensions``: sizes by the name of a dimension, or ranges of them, ``(8, 64)``, which ONNX Runtime has not.
    ``out_of_range`` (ours): ``error`` or ``clamp``, as for :func:`tilewright.compile`.

    >>> options = tilewright.SessionOptions()
    >>> options.intra_op_num_threads = 1
    >>> options.add_free_dimension_override_by_name("batch", 4)
    >>> session = tilewright.InferenceSession("model.onnx", options)
    >>> session.get_inputs()[0].shape
    [4, 32]
    """

    graph_optimization_level: object = "all"
    intra_op_num_threads: int = 0
    optimized_model_filepath: str = ""
    enable_profiling: bool = False
    profile_file_prefix: str = "tilewright_profile"
    free_dimensions: dict[str, int | tuple[int, int]] = field(default_factory=dict)
    out_of_range: OutOfRange = "error"
    log_severity_level: int = -1
    inter_op_num_threads: int = 0
    execution_mode: object = ExecutionMode.ORT_SEQUENTIAL
    execution_order: object = ExecutionOrder.DEFAULT
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True
    log_verbosity_level: int = 0
    logid: str = ""
    config_entries: dict[str, str] = field(default_factory=dict)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give the symbolic dimension ``name`` a fixed size."""
        self.free_dimensions[name] = value

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Raises UnsupportedError: dimensions are known by their names."""
        raise UnsupportedError(
            f"add_free_dimension_override_by_denotation({denotation!r}): expected a dimension by its name; "
            "see add_free_dimension_override_by_name"
        )

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry. One without a counterpart here changes nothing and is logged with the reason, one
        that ONNX Runtime does not have either with the nearest that it has. Raises InputError for what is no text."""
        for what, text in (("key", key), ("value", value)):
            if not isinstance(text, str):
                raise InputError(f"add_session_config_entry: expected text as {what}, got {shown(text)}")
        if key in CONFIG_ENTRIES:
            LOGGER.info("session configuration %s=%s: effect %s", key, value, CONFIG_ENTRIES[key])
        else:
            near = did_you_mean(key, CONFIG_ENTRIES)
            LOGGER.warning("session configuration %s=%s: unknown, without effect%s", key, value, near)
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """What was set. Raises InputError for a key that was not."""
        if key not in self.config_entries:
            raise InputError(f"get_session_config_entry: expected one of {sorted(self.config_entries)}, got {key!r}")
        return self.config_entries[key]

    def register_custom_ops_library(self, path: str) -> None:
        """Raises UnsupportedError: kernels of another runtime's libraries cannot be called."""
        raise UnsupportedError(
            f"register_custom_ops_library({path!r}): operators of such libraries are not known here; "
            "expected a model function or operators of ONNX"
        )

    def level(self) -> str:
        """The name of the optimization level. Raises InputError for an unknown one."""
        value = getattr(self.graph_optimization_level, "value", self.graph_optimization_level)
        number = as_whole(value)
        if number is None and isinstance(value, str):
            return require_choice("graph_optimization_level", value, dict.fromkeys(_LEVELS.values()))
        if number not in _LEVELS:
            raise InputError(f"graph_optimization_level: expected one of {sorted(_LEVELS)}, got {shown(value)}")
        return _LEVELS[number]

    def threads(self) -> int | None:
        """The number of threads, None for the default. Raises InputError."""
        return require_whole("intra_op_num_threads", self.intra_op_num_threads, 0) or None

    def streams(self) -> int | None:
        """How many calls run at once, None: as they come. Raises InputError for entries that say no number of them."""
        hint, count = self.config_entries.get("PERFORMANCE_HINT"), self.config_entries.get("NUM_STREAMS")
        if count is not None:
            return require_whole("NUM_STREAMS", int(count) if count.isdigit() else count)
        if hint is None:
            return None
        return _HINTS[require_choice("PERFORMANCE_HINT", hint, _HINTS)]

    def denormals(self) -> Literal["keep", "flush"]:
        """What becomes of numbers that are nearly zero. Raises InputError."""
        entry = "session.set_denormal_as_zero"
        return "flush" if require_choice(entry, self.config_entries.get(entry, "0"), ("0", "1")) == "1" else "keep"

    def cpus(self) -> tuple[frozenset[int], ...]:
        """The CPUs of each thread, as :func:`tilewright.compile` takes them. Raises InputError."""
        entry = "session.intra_op_thread_affinities"
        text = self.config_entries.get(entry)
        if not text:
            return ()
        groups = [_processors(entry, group) for group in text.split(";")]
        threads = self.threads()
        if threads is not None and len(groups) != threads - 1:
            raise InputError(f"{entry}: expected {threads - 1} groups for {threads} threads, got {text!r}")
        return groups[0], *groups

    def sizes(self) -> dict[str, int | tuple[int, int]]:
        """Sizes of symbolic dimensions by name, or the least and the greatest. Raises InputError."""
        dims = require_mapping("free_dimensions", self.free_dimensions)
        return {name: _size(f"free_dimensions[{name!r}]", size) for name, size in dims.items()}

    def profiles(self) -> bool:
        """True if runs are traced. Raises InputError for what is no flag."""
        return require_flag("enable_profiling", self.enable_profiling)


def _size(option: str, size: object) -> int | tuple[int, int]:
    if isinstance(size, tuple | list) and len(size) == 2:
        return require_whole(option, size[0], 0), require_whole(option, size[1], 0)
    return require_whole(option, size, 0)


_HINTS: Mapping[str, int] = {"LATENCY": 1, "THROUGHPUT": 1 << 16}
"""How many calls run at once; more than there are threads count as that."""


def _processors(entry: str, group: str) -> frozenset[int]:
    """``1,3-4``, numbered from 1, as numbers from 0. Raises InputError."""
    out: set[int] = set()
    for part in group.split(","):
        low, dash, high = part.strip().partition("-")
        if not low.isdigit() or (dash and not high.isdigit()) or int(low) < 1 or int(high or low) < int(low):
            raise InputError(f"{entry}: expected processors from 1 on, like 1,2;3-4, got {group!r}")
        out.update(range(int(low) - 1, int(high or low)))
    return frozenset(out)


@dataclass(slots=True)
class RunOptions:
    """Options of one run.

    ``terminate``: True refuses runs that have not begun. ``only_execute_path_to_fetches``, ``log_severity_level``,
    ``log_verbosity_level``, ``logid``: accepted, without effect. ``config_entries``: what ``add_run_config_entry`` set,
    without effect.

    >>> options = tilewright.RunOptions()
    >>> options.terminate = True
    >>> session = tilewright.InferenceSession("model.onnx")
    >>> session.run(None, {"x": np.ones((4, 32), np.float32)}, options)
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: run: expected run options that let it begin, got terminate=True
    """

    terminate: bool = False
    only_execute_path_to_fetches: bool = False
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    config_entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keep a configuration entry; none has an effect on runs here."""
        LOGGER.info("run configuration %s=%s: without effect", key, value)
        self.config_entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """What was set. Raises InputError for a key that was not."""
        if key not in self.config_entries:
            raise InputError(f"get_run_config_entry: expected one of {sorted(self.config_entries)}, got {key!r}")
        return self.config_entries[key]
