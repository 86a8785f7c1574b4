"""``InferenceSession`` in the shape of ONNX Runtime's: a thin layer on :func:`tilewright.compile`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.api.chrome_trace import ChromeTrace
from tilewright.api.io_binding import IOBinding
from tilewright.api.model_metadata import ModelMetadata, NodeArg, metadata_of
from tilewright.api.ort_value import OrtValue, plain
from tilewright.api.process import PROVIDER, level_of
from tilewright.api.session_options import LOGGER, RunOptions, SessionOptions
from tilewright.autotune.records.database import DatabaseLike
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InputError, TilewrightError
from tilewright.core.options import require_names, shown

if TYPE_CHECKING:
    import onnx

Completed = Callable[[list[Any], object, str], object]
"""Called with the results of a run, the caller's data and the message of an error, "" for none."""


class InferenceSession:
    """A compiled model with the interface of ONNX Runtime's session (docs/from-onnxruntime.md). ``model`` is the
    CompiledModel, with what that interface has no names for.

    ``path_or_bytes``: the model. ``sess_options``: a SessionOptions. A session can be pickled and copied; the copy
    compiles the model again, from the same path or bytes. Raises what :func:`tilewright.compile` raises.

    >>> session = tilewright.InferenceSession("model.onnx")
    >>> [(i.name, i.shape, i.type) for i in session.get_inputs()]
    [('x', ['batch', 32], 'tensor(float)')]
    >>> (y,) = session.run(["y"], {"x": np.ones((4, 32), np.float32)})
    >>> y.shape
    (4, 10)
    """

    def __init__(
        self,
        path_or_bytes: str | Path | bytes | onnx.ModelProto,
        sess_options: SessionOptions | None = None,
        providers: Sequence[object] | None = None,
        provider_options: Sequence[object] | None = None,
        *,
        disabled_optimizers: Sequence[str] = (),
        enable_fallback: int = 1,
        database: DatabaseLike | None = None,
    ) -> None:
        """``providers`` and their options, ``enable_fallback``: accepted as scripts give them; there is one, the CPU.

        ``disabled_optimizers``: passes and rules, by our names. ``database`` (ours): a tuning log or database, as for
        :func:`tilewright.compile`. Raises what ``compile`` raises.
        """
        options = SessionOptions() if sess_options is None else sess_options
        if not isinstance(options, SessionOptions):
            raise InputError(f"sess_options: expected tilewright.SessionOptions, got {shown(options)}")
        if options.log_severity_level != -1:
            LOGGER.setLevel(level_of(options.log_severity_level))
        self._told_providers(providers)
        if isinstance(path_or_bytes, str | Path):
            path_or_bytes = Path(path_or_bytes).absolute()  # for copies in processes that run elsewhere
        self._given = (path_or_bytes, options, providers, provider_options, tuple(disabled_optimizers), database)
        level, threads, sizes = options.level(), options.threads(), options.sizes()
        self._trace = ChromeTrace() if options.profiles() else None
        start = time.monotonic()
        self._model = compile(
            path_or_bytes, opt_level=level, threads=threads, input_shapes=dict(sizes) or None,
            out_of_range=options.out_of_range, save_optimized=options.optimized_model_filepath or None,
            disabled_pass=tuple(require_names("disabled_optimizers", disabled_optimizers)), database=database,
            streams=options.streams(), cpus=options.cpus(), denormals=options.denormals(),
        )  # fmt: skip
        if self._trace is not None:
            self._trace.add("Session", "session_initialization", start, time.monotonic() - start)

    def __reduce__(self) -> tuple[object, ...]:
        source, options, providers, provider_options, disabled, database = self._given
        if not isinstance(source, str | Path | bytes):
            source = source.SerializeToString()
        return _again, (source, options, providers, provider_options, disabled, database)

    # -- runs --------------------------------------------------------------------------------------------------------
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object],
        run_options: RunOptions | None = None, *, out: Mapping[str, object] | None = None,
    ) -> list[Any]:  # fmt: skip
        """The named outputs (all for None and for no names) in order.

        Inputs: arrays, what numpy makes an array of, tensors of other libraries by DLPack, OrtValues. ``out``: see
        :meth:`CompiledModel.run`. Raises InputError.
        """
        names = self._names(output_names)
        results = self._run(input_feed, run_options, out)
        return [results[n] for n in names]

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:  # fmt: skip
        """:meth:`run` with values for arrays, on both sides."""
        return [OrtValue(x) for x in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, object], callback: Completed,
        user_data: object, run_options: RunOptions | None = None,
    ) -> None:  # fmt: skip
        """Run in another thread, which calls ``callback(results, user_data, error)`` when it is done."""

        def work() -> None:
            try:
                results, message = self.run(output_names, input_feed, run_options), ""
            except (TilewrightError, RuntimeError, ValueError, TypeError) as e:
                results, message = [], str(e)
            callback(results, user_data, message)

        threading.Thread(target=work, name="tilewright run_async").start()

    def io_binding(self) -> IOBinding:
        """A new binding of inputs and outputs to memory."""
        return IOBinding(self._model)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run with what is bound. Raises InputError."""
        _require_going(run_options)
        iobinding.run()

    def _run(
        self, feed: Mapping[str, object], run_options: RunOptions | None, out: Mapping[str, object] | None
    ) -> dict[str, np.ndarray]:
        _require_going(run_options)
        if isinstance(feed, Mapping):
            feed = {name: plain(value) for name, value in feed.items()}
        if self._trace is None:
            return self._model.run(feed, out=out)
        start = time.monotonic()
        results, kernels = self._model.run_timed(feed, out=out)
        self._trace.add_run(start, time.monotonic() - start, kernels)
        return results

    def _names(self, output_names: Sequence[str] | None) -> Sequence[str]:
        known = self._model.output_names
        if output_names is None:
            return known
        return require_names("output_names", output_names, known, f"outputs among {', '.join(known)}") or known

    # -- what it is --------------------------------------------------------------------------------------------------
    def get_inputs(self) -> list[NodeArg]:
        """Inputs with ``.name``, ``.shape``, ``.type``."""
        return [NodeArg.of(s) for s in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Outputs with ``.name``, ``.shape``, ``.type``."""
        return [NodeArg.of(s) for s in self._model.outputs]

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: initializers are folded into the build."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the model file says of itself, read from it now. Raises ModelError if it is gone."""
        return metadata_of(self._given[0])

    def get_session_options(self) -> SessionOptions:
        """The options that the session was made with."""
        return self._given[1]

    def get_providers(self) -> list[str]:
        """The one provider, the CPU."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The provider, which has no options."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[object] | None = None, provider_options: object = None) -> None:
        """Without effect: there is one provider, the CPU."""
        self._told_providers(providers)

    def enable_fallback(self) -> None:
        """Without effect: there is one provider, the CPU."""

    def disable_fallback(self) -> None:
        """Without effect: there is one provider, the CPU."""

    @property
    def model(self) -> Any:
        """The compiled model below, with all that ONNX Runtime's names do not cover."""
        return self._model

    # -- profiles ----------------------------------------------------------------------------------------------------
    def get_profiling_start_time_ns(self) -> int:
        """When the trace begins, in nanoseconds of ``time.monotonic_ns``. Raises InputError without a trace."""
        return self._tracing("get_profiling_start_time_ns").began

    def end_profiling(self) -> str:
        """Write what ran since the session began as a Chrome trace; the name of the file. Raises InputError."""
        return self._tracing("end_profiling").write(self._given[1].profile_file_prefix)

    def _tracing(self, what: str) -> ChromeTrace:
        if self._trace is None:
            raise InputError(f"{what}: expected a session whose options have enable_profiling, got one without")
        return self._trace

    @staticmethod
    def _told_providers(providers: Sequence[object] | None) -> None:
        names = [p[0] if isinstance(p, tuple) else p for p in providers or ()]
        others = [str(n) for n in names if n != PROVIDER]
        if others:
            LOGGER.warning("providers: %s not available here, %s runs the model", ", ".join(others), PROVIDER)


def _again(
    source: str | Path | bytes, options: SessionOptions, providers: Sequence[object] | None,
    provider_options: Sequence[object] | None, disabled: Sequence[str], database: DatabaseLike | None,
) -> InferenceSession:  # fmt: skip
    return InferenceSession(
        source, options, providers, provider_options, disabled_optimizers=disabled, database=database
    )


def _require_going(options: RunOptions | None) -> None:
    if options is not None and getattr(options, "terminate", False):
        raise InputError("run: expected run options that let it begin, got terminate=True")
