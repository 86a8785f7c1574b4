"""The cases through artifacts: exported, loaded without the compiler, and compared with the compiled model; or for
another machine, as programs that an emulator runs."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx

import tilewright
from tilewright.core.errors import UnsupportedError
from tilewright.deploy.loader import Artifact
from tilewright.runtime.model import CompiledModel
from tilewright.tests.conformance.cases import Case, DataSet
from tilewright.tests.conformance.runner import is_random, require_similar, short
from tilewright.tests.deploy.program import build_program

_ATOL = 1e-6
"""For other machines, which round sums of other orders: references that should be 0 are up to 2e-7."""


def run_exported(case: Case, target: str | None = None) -> str:
    """``native``, ``unsupported: what``, or ``failing: error``. ``target``: of another machine."""
    try:
        return _run(case) if target is None else _run_emulated(case, target)
    except UnsupportedError as e:
        return f"unsupported: {short(str(e))}"
    except Exception as e:  # noqa: BLE001 - whatever goes wrong in a case is its result
        return f"failing: {short(f'{type(e).__name__}: {e}')}"


def _run(case: Case) -> str:
    model, sets = case.load()
    compiled = tilewright.compile(model, threads=2, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.so"
        compiled.export(path)
        artifact = Artifact(path)
    for feed, wanted in _tensors(model, compiled, sets):
        theirs = list(artifact.run(feed).values())
        require_similar(theirs, wanted, math.inf if is_random(model) else case.rtol, case.atol)
        if not is_random(model):
            _require_same(theirs, compiled.run(None, feed))
    return "native"


def _run_emulated(case: Case, target: str) -> str:
    model, sets = case.load()
    compiled = tilewright.compile(model, target=target, threads=1, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        program = build_program(compiled, target, Path(folder), is_random=is_random(model))
        for feed, wanted in _tensors(model, compiled, sets):
            got = list(program.run(feed).values())
            require_similar(got, wanted, math.inf if is_random(model) else case.rtol, max(case.atol, _ATOL))
    return "native"


def _tensors(
    model: onnx.ModelProto, compiled: CompiledModel, sets: Sequence[DataSet]
) -> Iterator[tuple[dict[str, np.ndarray], Sequence[object]]]:
    """Inputs by name, and outputs. Raises UnsupportedError for what is no tensor."""
    names = [i.name for i in model.graph.input]
    accepted = {s.name for s in compiled.inputs}
    for given, wanted in sets:
        feed = {n: x for n, x in zip(names, given, strict=False) if n in accepted}
        odd = next((x for x in (*feed.values(), *wanted) if not isinstance(x, np.ndarray | np.generic)), None)
        if odd is not None:
            raise UnsupportedError(f"inputs or outputs that are no tensors but a {type(odd).__name__}")
        yield {n: np.asarray(x) for n, x in feed.items()}, wanted


def _require_same(theirs: list[np.ndarray], ours: list[np.ndarray]) -> None:
    for k, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        if a.tobytes() != b.tobytes():
            raise AssertionError(f"output {k}: other bytes than the compiled model gives")
