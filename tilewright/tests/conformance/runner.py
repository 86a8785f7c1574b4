"""Runs one case: compile, run on its data, compare as ONNX's own runner does."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np
import onnx

import tilewright
from tilewright.core.errors import UnsupportedError
from tilewright.core.plan import SIZES_DOMAIN, ControlStep, HostStep, Plan
from tilewright.graph_ir.ops import OPS
from tilewright.lowering.backend import SIZED_BY_DATA
from tilewright.tests.conformance.cases import Case, DataSet

STATUSES = ("native", "host", "unsupported", "failing")  # from best to worst
_REASON_LENGTH = 240
_RANDOM = frozenset(("Bernoulli", "RandomNormalLike", "RandomUniformLike"))  # the standard fixes no generator
_SIZED = ", whose size depends on data"

# Operators that may run on the host: no arithmetic of any weight, or a result whose size depends on the data.
HOST_OPERATORS = frozenset(
    """
    SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength SequenceMap SplitToSequence
    ConcatFromSequence Optional OptionalGetElement OptionalHasElement StringConcat StringNormalizer StringSplit
    RegexFullMatch TfIdfVectorizer LabelEncoder ImageDecoder Compress NonZero Unique NonMaxSuppression TopK
    Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike Dropout MelWeightMatrix
    """.split()
)
# Operators that only move elements: on the host they are fine where the elements are strings or sizes depend on data.
_MOVES = frozenset(
    """Identity Cast CastLike Concat Reshape Gather Expand Squeeze Unsqueeze Shape Size Slice Split Equal Constant Where
    Tile Transpose Flatten Pad MaxUnpool OneHot TensorScatter ScatterND""".split()
)


def run_case(case: Case) -> str:
    """``native``, ``host: operators``, ``unsupported: what``, or ``failing: error``."""
    try:
        return _run(case)
    except UnsupportedError as e:
        return f"unsupported: {short(str(e))}"
    except Exception as e:  # noqa: BLE001 - whatever goes wrong in a case is its result
        return f"failing: {short(f'{type(e).__name__}: {e}')}"


def short(text: str) -> str:
    line = " ".join(text.split())
    line = re.sub(r"^not supported \(\d+ findings?\): ", "", line)
    return line if len(line) <= _REASON_LENGTH else line[: _REASON_LENGTH - 3] + "..."


def _run(case: Case) -> str:
    model, sets = case.load()
    return run_model(case, model, sets, [i.name for i in model.graph.input])


def run_model(case: Case, model: onnx.ModelProto, sets: Sequence[DataSet], names: Sequence[str]) -> str:
    """``native`` or ``host: operators`` for a model that stands for that of ``case``, with inputs of these ``names``;
    raises what goes wrong."""
    compiled = tilewright.compile(model, threads=2, progress=False)
    accepted = {s.name for s in compiled.inputs}
    random = is_random(model)
    for given, wanted in sets:
        feed = {n: x for n, x in zip(names, given, strict=False) if n in accepted}
        got = compiled.run(None, feed)
        require_similar(got, wanted, math.inf if random else case.rtol, case.atol)
    hosts = sorted(set(host_operators(compiled.plan)))
    light = HOST_OPERATORS | _MOVES
    heavy = [h for h in hosts if h not in light and not h.startswith("sizes of ") and not h.endswith(_SIZED)]
    if heavy:
        return f"failing: arithmetic on the host: {', '.join(heavy)}"
    note = " (random: values are not compared)" if random else ""
    return f"host: {', '.join(hosts)}{note}" if hosts else "native"


def is_random(model: onnx.ModelProto) -> bool:
    """True for results that no standard fixes."""
    return any(n.op_type in _RANDOM for n in model.graph.node)


def host_operators(plan: Plan) -> Iterator[str]:
    """The operators that run on the host, in the plan and the bodies of its control steps."""
    for step in plan.steps:
        if isinstance(step, HostStep):
            if step.domain == SIZES_DOMAIN or step.once is not None:
                yield f"sizes of {step.op}"
            else:
                heavy = OPS[step.op].arithmetic and step.reason.startswith(SIZED_BY_DATA)
                yield step.op + (_SIZED if heavy else "")
        elif isinstance(step, ControlStep):
            for body in step.bodies:
                yield from host_operators(body)


def require_similar(got: object, wanted: object, rtol: float, atol: float, where: str = "output") -> None:
    """Raise AssertionError unless values are equal in structure, element type, shape, and closely in value."""
    if isinstance(wanted, (list, tuple)):
        if not isinstance(got, (list, tuple)) or len(got) != len(wanted):
            raise AssertionError(f"{where}: expected {len(wanted)} values, got {type(got).__name__} {_size(got)}")
        for k, (g, w) in enumerate(zip(got, wanted, strict=True)):
            require_similar(g, w, rtol, atol, f"{where} {k}")
        return
    if wanted is None or got is None:
        if got is not wanted:
            raise AssertionError(f"{where}: expected {type(wanted).__name__}, got {type(got).__name__}")
        return
    g, w = np.asarray(got), np.asarray(wanted)
    if g.shape != w.shape:
        raise AssertionError(f"{where}: expected shape {w.shape}, got {g.shape}")
    if w.dtype.kind in "OSU":
        if g.astype(str).tolist() != w.astype(str).tolist():
            raise AssertionError(f"{where}: strings differ")
        return
    if g.dtype != w.dtype:
        raise AssertionError(f"{where}: expected element type {w.dtype}, got {g.dtype}")
    if rtol != math.inf:
        _require_close(g, w, rtol, atol, where)


def _size(x: object) -> str:
    return f"of length {len(x)}" if isinstance(x, Sequence) else ""


def _require_close(g: np.ndarray, w: np.ndarray, rtol: float, atol: float, where: str) -> None:
    if w.dtype.name == "bfloat16":
        rtol = max(rtol, 2**-6)  # two units in the last place
    if w.dtype.kind in "iub":
        wide = object if w.dtype.itemsize == 8 else np.int64
        bad = np.abs(g.astype(wide) - w.astype(wide)) > atol + rtol * np.abs(w.astype(wide)) if g.size else g != w
        close = ~np.asarray(bad, bool)
    else:
        kind = np.complex128 if w.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            close = np.isclose(g.astype(kind), w.astype(kind), rtol=rtol, atol=atol, equal_nan=True)
    if not close.all():
        at = tuple(int(k) for k in np.argwhere(~close)[0])
        n = int((~close).sum())
        raise AssertionError(f"{where}: {n} of {close.size} differ, first at {at}: expected {w[at]}, got {g[at]}")
