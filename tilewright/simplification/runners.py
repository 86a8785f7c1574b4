"""What runs a model file: onnxruntime if it is installed and takes the model, else this compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import onnx

from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import TilewrightError
from tilewright.inspect.ort import is_installed, open_session, translated_errors

Runtime: TypeAlias = Literal["onnxruntime", "tilewright"]
Results: TypeAlias = "dict[str, object]"
Run: TypeAlias = Callable[[Mapping[str, object]], Results]
RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "tilewright")


def runtimes() -> tuple[Runtime, ...]:
    """Those that are there, the first one first."""
    return RUNTIMES if is_installed() else RUNTIMES[1:]


def open_runner(
    runtime: Runtime, model: Path | onnx.ModelProto, outputs: Sequence[str], threads: int | None, optimize: bool = False
) -> Run:
    """What gives ``outputs`` of a model. ``optimize``: the runtime may rewrite the graph.

    Raises TilewrightError where the runtime does not take the model; so does the function for inputs.
    """
    names = list(outputs)
    if runtime == "tilewright":
        level = "all" if optimize else "none"
        compiled = compile(model, opt_level=level, threads=threads, progress=False, cache=False)
        return lambda feed: dict(zip(names, compiled.run(names, dict(feed)), strict=True))
    session: Any = open_session(model, threads or 0, optimize, quiet=True, exact=True)
    known = {i.name for i in session.get_inputs()}

    def run(feed: Mapping[str, object]) -> Results:
        with translated_errors():
            return dict(zip(names, session.run(names, {n: x for n, x in feed.items() if n in known}), strict=True))

    return run


def first_that_runs(
    model: Path | onnx.ModelProto, outputs: Sequence[str], threads: int | None
) -> tuple[Runtime | None, Run | None, str]:
    """The first runtime that takes a model, what runs it there, and why the others do not."""
    reasons: list[str] = []
    for runtime in runtimes():
        try:
            return runtime, open_runner(runtime, model, outputs, threads), "; ".join(reasons)
        except TilewrightError as e:
            reasons.append(f"{runtime} does not take the model: {str(e).splitlines()[0][:300]}")
    return None, None, "; ".join(reasons)
