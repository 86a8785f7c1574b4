"""One seed from generation to verdict: compiled in several ways, run at all sizes, compared with the reference."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import numpy as np
import onnx

import tilewright
from tilewright.core import dtypes
from tilewright.core.errors import InternalError, TilewrightError, UnsupportedError, VerifyError
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import TensorType, walk_graphs
from tilewright.graph_ir.passes.merge_products import MERGE_PRODUCTS
from tilewright.lowering.precision.choose_precision import NodePrecision, split_nodes
from tilewright.lowering.table import TABLE
from tilewright.options import CompileOptions
from tilewright.simplification.options import Level
from tilewright.simplification.passes import KERNEL_RULES, ON_REQUEST
from tilewright.tests.deploy.exported import exported
from tilewright.tests.fuzz_graphs.implementations import random_implementations
from tilewright.tests.fuzz_graphs.records import random_records
from tilewright.tests.fuzz_graphs.sample import Sample, generate
from tilewright.tests.fuzz_graphs.tolerance import allowed, interpret_perturbed, mismatch
from tilewright.tests.fuzz_graphs.written import in_onnxruntime, lacks, written_model

SAMPLES = 6


@dataclass(frozen=True, slots=True)
class Build:
    """One way to compile a graph. ``records``: with records of random schedules; ``pins``: and random implementations
    of nodes; ``reduced``: with products on bfloat16, compared with the graph that has them, ``split``: with
    all that can be on two such numbers for each operand; ``exported``: and run as an
    artifact, too. ``simplified``: not compiled but simplified at that level, and the result interpreted. ``written``:
    neither, but written after the passes of the level, in ``opset`` (0: any). ``requested``: with passes and rules that
    are off by themselves."""

    level: str
    threads: int
    records: bool = False
    pins: bool = False
    reduced: bool = False
    split: bool = False
    exported: bool = False
    simplified: bool = False
    written: bool = False
    opset: int = 0
    requested: bool = False

    @property
    def enabled(self) -> tuple[str, ...]:
        """The passes and rules that it asks for."""
        if not self.requested:
            return ()
        return (
            tuple(sorted((*KERNEL_RULES, *(p.name for p in ON_REQUEST)))) if self.simplified else (MERGE_PRODUCTS.name,)
        )

    def __str__(self) -> str:
        if self.simplified:
            return f"simplify, level={self.level!r}{', with what is on request' if self.requested else ''}"
        if self.written:
            return f"written after passes of level {self.level!r}{f' in opset {self.opset}' if self.opset else ''}"
        more = (", with records" if self.records else "") + (", with pins" if self.pins else "")
        more += ", precision='bf16'" if self.reduced else ", all products of bf16x3" if self.split else ""
        more += ", with what is on request" if self.requested else ""
        return f"opt_level={self.level!r}, threads={self.threads}{more}{', exported' if self.exported else ''}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind``: ``ok``, ``empty``, ``wrong``, ``internal``, ``refused``, ``reference`` (it differs from onnxruntime),
    and from the worker ``crash`` and ``hang``."""

    kind: str
    message: str = ""
    build: Build | None = None
    operators: tuple[str, ...] = ()

    @property
    def is_fault(self) -> bool:
        return self.kind not in ("ok", "empty")


_SPREADING = (*(i.full_name for ways in TABLE.values() for i in ways if i.spreads), "matmul_chain")
"""Implementations that mix neighbours: a NaN, an infinity or a huge number of one spoils the others'. In another order
of products, infinities of both signs meet in another sum, or in none."""
_OTHERWISE_ROUNDED = (
    *(i.full_name for ways in TABLE.values() for i in ways if i.error is not None), "matmul_chain", "recognise",
)  # fmt: skip
"""What a build in bfloat16 goes without: it is compared with its own graph after its passes, whose operators should be
those of the model, as the reference rounds the factors of others (an epsilon) as ONNX stores them."""
LEVELS = ("none", "basic", "extended", "all")
_OPSETS = (7, 9, 10, 11, 12, 13, 16, 17, 18, 20, 22, 23, 24)


_WRITTEN_IN = 8
"""Of so many seeds one is written, too."""
Ways: TypeAlias = Literal["some", "every", "simplify", "write"]


def builds_of(seed: int, ways: Ways = "some") -> tuple[Build, ...]:
    """The ways in which a seed is compiled: full optimisation always, the others in turn (all of them for ``every``).
    ``simplify``: it is simplified instead, at each level; ``write``: it is written after the passes of each level, and
    once more in some opset."""
    if ways == "simplify":
        plain = (Build(level, 1, simplified=True) for level in get_args(Level))
        return (*plain, Build("extended", 1, simplified=True, requested=True))
    if ways == "write":
        other = Build(LEVELS[seed % 3], 1, written=True, opset=_OPSETS[seed % len(_OPSETS)])
        return (*(Build(level, 1, written=True) for level in LEVELS), other)
    if ways == "every":
        every = [Build(level, threads) for level in LEVELS for threads in (1, 2)]
        more = (Build("all", 2, True), Build("all", 2, pins=True), Build("all", 2, reduced=True))
        more = (*more, Build("all", 2, split=True))
        return (*every, *more, Build("all", 2, requested=True), Build("all", 2, exported=True))
    first = Build("all", 2 - seed % 2, exported=seed % 4 == 3)
    other = Build(LEVELS[seed % 3], 1 + seed // 3 % 2, requested=seed % 2 == 1)
    more = (
        Build("all", 2, True),
        Build("all", 2, reduced=True),
        Build("all", 2, pins=True),
        Build("all", 2, split=True),
    )
    last = builds_of(seed, "write")[seed // _WRITTEN_IN % 5 :][:1] if seed % _WRITTEN_IN == 0 else ()
    return first, other, *more[seed % 4 : seed % 4 + 1], *last


def check_seed(
    seed: int, ways: Ways = "some", operators: Sequence[str] = (), alone: bool = False
) -> tuple[Verdict, Sample | None]:
    """The verdict of a seed and its graph. ``alone``: without onnxruntime."""
    sample, runs = generate(seed, tuple(operators), alone)
    findings = [r for r in runs if r.finding]
    ops = tuple(r.op for r in runs)
    if findings:
        return Verdict("reference", f"{findings[0].op}: {findings[0].finding}", None, ops), sample
    if sample is None:
        return Verdict("empty"), None
    return check_sample(sample, builds_of(seed, ways), alone), sample


def check_sample(sample: Sample, builds: Sequence[Build], alone: bool = False) -> Verdict:
    """Compile in each way, run each variant, compare. ``alone``: what is written is not run in onnxruntime."""
    model = sample.model()
    ops = tuple(n.op_type for n in sample.nodes)
    try:
        graph = from_onnx(model)
        huge = sample.wild == "huge"
        wanted = [interpret_perturbed(graph, sample.feed(v), SAMPLES, huge=huge) for v in sample.variants]
    except Exception as e:  # noqa: BLE001 - whatever it raises is the finding
        return Verdict(_kind_of(e), f"import or reference: {shown_error(e)}", None, ops)
    for build in builds:
        if build.written:
            verdict = _check_written(sample, build, wanted, ops, alone)
        else:
            verdict = (_check_simplified if build.simplified else _check_build)(sample, build, wanted, ops)
        if verdict is not None:
            return verdict
    return Verdict("ok", operators=ops)


def _left_out(sample: Sample, build: Build) -> tuple[str, ...]:
    """The passes and implementations that a build goes without."""
    spreading = _SPREADING if sample.wild else ()
    return tuple(dict.fromkeys((*spreading, *_OTHERWISE_ROUNDED))) if build.reduced else spreading


def _check_build(
    sample: Sample, build: Build, wanted: Sequence[Sequence[dict[str, object]]], ops: tuple[str, ...]
) -> Verdict | None:
    try:
        model = sample.model()
        records = random_records(model, build.threads, np.random.default_rng(len(ops))) if build.records else None
        pins = random_implementations(model, build.threads, len(ops), bool(sample.wild)) if build.pins else None
        options = CompileOptions(
            opt_level=build.level,
            threads=build.threads,
            progress=False,
            database=records,
            disabled_pass=_left_out(sample, build),
            enabled_pass=build.enabled,
            implementations=pins,
            precision="bf16" if build.reduced else "fp32",
        )
        if build.split:
            plain = tilewright.compile(model, options, stop_after="passes")
            asked = {n.name: NodePrecision("bf16x3", strict=False) for g in walk_graphs(plain) for n in g.nodes}
            options = dataclasses.replace(options, precision=asked)
        compiled = tilewright.compile(model, options)
        if build.reduced or build.split:
            graph = tilewright.compile(model, options, stop_after="passes")
            narrow = any(v.dtype == dtypes.bfloat16 for v in graph.values.values() if isinstance(v.type, TensorType))
            if not (narrow if build.reduced else split_nodes(graph)):
                return None
            wanted = [
                interpret_perturbed(graph, sample.feed(v), SAMPLES, huge=sample.wild == "huge") for v in sample.variants
            ]
    except Exception as e:  # noqa: BLE001 - likewise
        return Verdict(_kind_of(e), f"compile: {shown_error(e)}", build, ops)
    for v, samples in zip(sample.variants, wanted, strict=True):
        feed = sample.feed(v)
        kept = {n: x.copy() for n, x in feed.items() if isinstance(x, np.ndarray)}
        try:
            got = compiled.run(feed)
        except Exception as e:  # noqa: BLE001 - likewise
            return Verdict(_kind_of(e), f"run, variant {v}: {shown_error(e)}", build, ops)
        for name, x in kept.items():
            if mismatch(feed[name], x, 0.0):
                return Verdict("wrong", f"variant {v}: input {name!r} was written to", build, ops)
        for name in sample.outputs:
            wrong = mismatch(got[name], samples[0][name], allowed(samples, name), sample.wild == "huge")
            if wrong:
                return Verdict("wrong", f"variant {v}, output {name!r}: {wrong}", build, ops)
        try:
            wrong = _given_outputs(compiled, feed, got)
        except Exception as e:  # noqa: BLE001 - likewise
            return Verdict("internal", f"run with out, variant {v}: {shown_error(e)}", build, ops)
        if wrong:
            return Verdict("wrong", f"variant {v}, with out: {wrong}", build, ops)
    return _check_artifact(compiled, sample, build, ops) if build.exported else None


def _check_written(
    sample: Sample, build: Build, wanted: Sequence[Sequence[dict[str, object]]], ops: tuple[str, ...], alone: bool
) -> Verdict | None:
    try:
        model = written_model(sample.model(), build.level, build.opset)
        if model is None:
            return None
        again = from_onnx(model)
    except Exception as e:  # noqa: BLE001 - likewise
        return Verdict(_kind_of(e), f"write: {shown_error(e)}", build, ops)
    for v, samples in zip(sample.variants, wanted, strict=True):
        feed = sample.feed(v)
        try:
            sides = {"read again": interpret(again, feed)}
        except Exception as e:  # noqa: BLE001 - likewise
            if "cannot reshape array of size 0" in str(e):
                continue  # what the rest of nothing is only symbols tell; graphs after passes have the same
            return Verdict(_kind_of(e), f"written and read again, variant {v}: {shown_error(e)}", build, ops)
        if not alone and (theirs := in_onnxruntime(sample.model(), model, feed, samples, sample.outputs)) is not None:
            if not isinstance(theirs, dict) and lacks(theirs):
                continue
            if not isinstance(theirs, dict):
                return Verdict("refused", f"written, in onnxruntime, variant {v}: {shown_error(theirs)}", build, ops)
            sides["in onnxruntime"] = theirs
        for side, got in sides.items():
            for name in sample.outputs:
                wrong = mismatch(got[name], samples[0][name], allowed(samples, name), sample.wild == "huge")
                if wrong:
                    return Verdict("wrong", f"written, {side}, variant {v}, output {name!r}: {wrong}", build, ops)
    return None


def _check_simplified(
    sample: Sample, build: Build, wanted: Sequence[Sequence[dict[str, object]]], ops: tuple[str, ...]
) -> Verdict | None:
    """Simplify, check the file if onnx finds no fault in the original, and interpret it."""
    try:
        model = tilewright.simplify(sample.model(), level=build.level, enabled_pass=build.enabled, check=False)  # type: ignore[arg-type]
        fault = "" if _fault_of(sample.model()) else _fault_of(model)
        graph = from_onnx(model)
        results = [interpret(graph, sample.feed(v)) for v in sample.variants]  # type: ignore[arg-type]
    except Exception as e:  # noqa: BLE001 - likewise
        return Verdict(_kind_of(e), f"simplify: {shown_error(e)}", build, ops)
    if fault:
        return Verdict("wrong", f"onnx.checker: {fault}", build, ops)
    for v, samples, got in zip(sample.variants, wanted, results, strict=True):
        for name in sample.outputs:
            wrong = mismatch(got[name], samples[0][name], allowed(samples, name), sample.wild == "huge")
            if wrong:
                return Verdict("wrong", f"variant {v}, output {name!r}: {wrong}", build, ops)
    return None


def _fault_of(model: onnx.ModelProto) -> str:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as e:
        return " ".join(str(e).split())[:300]
    return ""


def _check_artifact(
    model: tilewright.CompiledModel, sample: Sample, build: Build, ops: tuple[str, ...]
) -> Verdict | None:
    """Compare the artifact with the model, bit for bit."""
    try:
        artifact = exported(model)
    except UnsupportedError:
        return None  # strings, sequences as inputs: it says so
    except Exception as e:  # noqa: BLE001 - likewise
        return Verdict(_kind_of(e), f"export: {shown_error(e)}", build, ops)
    for v in sample.variants:
        feed = sample.feed(v)
        wanted = model.run(feed)
        try:
            got = artifact.run(feed)
        except Exception as e:  # noqa: BLE001 - likewise
            return Verdict("internal", f"artifact, variant {v}: {shown_error(e)}", build, ops)
        for name, array in wanted.items():
            if (array.shape, array.tobytes()) != (got[name].shape, got[name].tobytes()):
                return Verdict("wrong", f"artifact, variant {v}, output {name!r}: {got[name]} for {array}", build, ops)
    artifact.close()
    return None


def _given_outputs(
    model: tilewright.CompiledModel, feed: Mapping[str, object], wanted: Mapping[str, object]
) -> str | None:
    """What differs where the caller gives the arrays, some of them those of inputs."""
    feed = {n: x.copy() if isinstance(x, np.ndarray) else x for n, x in feed.items()}
    out: dict[str, np.ndarray] = {}
    for name, array in wanted.items():
        if isinstance(array, np.ndarray) and not array.dtype.hasobject:
            out[name] = np.frombuffer(bytearray(b"\x7f" * array.nbytes), array.dtype).reshape(array.shape)
            updated = feed.get(model.in_place.get(name, ""))
            if isinstance(updated, np.ndarray) and updated.shape == array.shape:
                out[name] = updated
    got = model.run(feed, out=out)
    for name, array in out.items():
        if got[name] is not array:
            return f"output {name!r} is not the array that was given"
        if array.tobytes() != np.asarray(wanted[name]).tobytes():
            return f"output {name!r} has other elements than without"
    return None


def _kind_of(e: Exception) -> str:
    if isinstance(e, TilewrightError) and not isinstance(e, (InternalError, VerifyError)):
        return "refused"
    return "internal"


def shown_error(e: Exception) -> str:
    """An error on one line, with where it was raised if that is not its own message's business."""
    text = " ".join(str(e).split())
    if isinstance(e, UnsupportedError) or (isinstance(e, TilewrightError) and _kind_of(e) == "refused"):
        return f"{type(e).__name__}: {text[:600]}"
    frames = traceback.extract_tb(e.__traceback__)[-3:]
    where = " < ".join(f"{f.filename.rsplit('/', 1)[-1]}:{f.lineno}" for f in reversed(frames))
    return f"{type(e).__name__}: {text[:600]} [{where}]"
