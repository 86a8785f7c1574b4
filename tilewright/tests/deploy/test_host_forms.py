"""Operators on the host in native form: the bytes that the compiled model gives, and its refusals."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import TilewrightError
from tilewright.core.plan import SIZES_DOMAIN, ControlStep, HostStep, Plan
from tilewright.deploy.loader import Artifact, ArtifactInputError
from tilewright.deploy.source.host_calls import FORMS
from tilewright.runtime.model import CompiledModel
from tilewright.tests.api.standard import Feed, read_model
from tilewright.tests.deploy import host_cases as cases
from tilewright.tests.deploy.exported import assert_same, exported, needs_compiler
from tilewright.tests.deploy.host_cases import FLOATS, TYPES, elements, i64

pytestmark = needs_compiler


def host_keys(plan: Plan) -> Iterator[tuple[str, str]]:
    for step in plan.steps:
        if isinstance(step, HostStep):
            yield step.domain, step.op
        elif isinstance(step, ControlStep):
            for body in step.bodies:
                yield from host_keys(body)


@functools.cache
def compiled(text: str) -> CompiledModel:
    return tilewright.compile(read_model(text, 22), progress=False)


def built(text: str) -> tuple[CompiledModel, Artifact]:
    return compiled(text), exported(compiled(text))


def agree(model: CompiledModel, artifact: Artifact, feed: Feed) -> bool:
    """Both give the same; or both refuse it, and that is False."""
    try:
        model.run(feed)
    except TilewrightError:
        with pytest.raises(ArtifactInputError, match=r"^node '\w+'|^tensor '\w+': "):
            artifact.run(feed)
        return False
    assert_same(model, artifact, feed)
    return True


def test_every_form_is_called() -> None:
    called = {key for text in cases.texts() for key in host_keys(compiled(text).plan)}
    assert FORMS.keys() <= called


@pytest.mark.parametrize("name", cases.OF_ANY_RANK)
def test_operands_of_any_rank(name: str) -> None:
    model, artifact = built(cases.of_any_rank(name))
    rng = np.random.default_rng(1)
    same = []
    for shape in cases.SHAPES:
        for feed in cases.OF_ANY_RANK[name][1] or ({},):
            x = elements("float", int(np.prod(shape)), rng)
            same.append(agree(model, artifact, {"x": x, "s": i64(*shape), **feed}))
    assert any(same)


@pytest.mark.parametrize("kind", TYPES)
def test_types_of_elements(kind: str) -> None:
    model, artifact = built(cases.types_of_elements(kind))
    rng = np.random.default_rng(7)
    for shape in ((12,), (2, 6), (3, 1, 4)):
        feed = {"x": elements(kind, 12, rng), "s": i64(*shape), "u": elements(kind, shape[-1], rng)}
        assert agree(model, artifact, feed)


@pytest.mark.parametrize("kind", [k for k in TYPES if k != "bool"])
def test_arithmetic(kind: str) -> None:
    model, artifact = built(cases.arithmetic(kind))
    rng = np.random.default_rng(3)
    for shape in ((60,), (5, 12), (0, 4)):
        x, u = elements(kind, int(np.prod(shape)), rng), elements(kind, shape[-1], rng)
        low, high = np.array(1, u.dtype), np.array(4, u.dtype)
        assert agree(model, artifact, {"x": x, "s": i64(*shape), "u": u, "low": low, "high": high})


def test_truth() -> None:
    model, artifact = built(cases.TRUTH)
    x, u = np.array([1, 0, 1, 0], bool), np.array([1, 1, 0, 0], bool)
    assert agree(model, artifact, {"x": x, "s": i64(4), "u": u})
    assert agree(model, artifact, {"x": x, "s": i64(4, 1), "u": u})
    assert not agree(model, artifact, {"x": x, "s": i64(4), "u": u[:3]})


def test_powers_and_logarithms() -> None:
    """Within the accuracy of the mathematical library."""
    model, artifact = built(cases.POWERS)
    feed = {"x": np.linspace(-2, 9, 50).astype(np.float32), "s": i64(5, 10), "p": np.array(2.5, np.float32)}
    ours, theirs = model.run(feed), artifact.run(feed)
    for name, a in ours.items():
        np.testing.assert_allclose(theirs[name], a, rtol=1e-6)


UNSIGNED = tuple(t for t in TYPES if t.startswith("u"))
RESULTS = {"floats": FLOATS, "unsigned": UNSIGNED, "others": tuple(t for t in TYPES if t not in (*FLOATS, *UNSIGNED))}
"""Types that are given the same numbers."""


@pytest.mark.parametrize("to", RESULTS)
@pytest.mark.parametrize("kind", ["float", "bfloat16", "int64", "uint64", "int8", "bool", "double", "float16"])
def test_conversions(kind: str, to: str) -> None:
    model, artifact = built(cases.conversions(kind, RESULTS[to]))
    assert len(model.outputs) == len(RESULTS[to])
    dtype = np.dtype(TYPES[kind])
    numbers = [0, 1, 2.5, 3.5, 100.75]
    if to == "floats" and kind in FLOATS:  # beyond what a type holds, no conversion to integers is defined
        numbers += [2048.5, 65504, 65519, 65520, 6e-8, 1e-5, 5.96e-8, 3.4e30, 16777217]
    if to != "unsigned" and kind not in UNSIGNED:
        numbers += [-v for v in numbers]
    with np.errstate(all="ignore"):
        x = np.array(numbers).astype(dtype)
    if dtype.kind in "iu":
        x = np.append(x, np.array([np.iinfo(dtype).max, np.iinfo(dtype).max // 3], dtype))
    if to == "floats" and kind in FLOATS:
        x = np.concatenate([x, np.array([np.inf, -np.inf, np.nan], dtype)])
    assert agree(model, artifact, {"x": x, "s": i64(x.size)})
    assert agree(model, artifact, {"x": x, "s": i64(x.size, 1)})


@pytest.mark.parametrize("name", cases.GENERATED)
def test_made_from_numbers(name: str) -> None:
    model, artifact = built(cases.made_from_numbers(name))
    feeds = cases.GENERATED[name][2]
    assert any([agree(model, artifact, {k: np.asarray(v) for k, v in f.items()}) for f in feeds])


def test_boxes_that_overlap() -> None:
    model, artifact = built(cases.BOXES)
    rng = np.random.default_rng(5)
    for images, classes, n in ((2, 3, 40), (1, 1, 300), (1, 2, 0), (0, 1, 5), (1, 2, 1)):
        boxes = rng.random((images, n, 4)).astype(np.float32)
        scores = (rng.integers(-3, 8, (images, classes, n)) / 8).astype(np.float32)
        scores[scores == -0.375] = np.nan
        for most, limit, least in (
            (9, 0.3, 0.0),
            (1 << 40, 0.0, -9),
            (0, 0.5, 0),
            (-3, 0.5, 0),
            (200, 1.0, np.nan),
            (9, -1, 0.1),
        ):
            given = {"most": np.int64(most), "limit": np.float32(limit), "least": np.float32(least)}
            assert agree(model, artifact, {"b": boxes, "s": scores, **{k: np.asarray(v) for k, v in given.items()}})


@pytest.mark.parametrize("clamps", [False, True])
def test_indices_out_of_range(clamps: bool) -> None:
    mode = "clamp" if clamps else "error"
    model = tilewright.compile(read_model(cases.INDICES, 22), progress=False, out_of_range=mode)
    artifact = exported(model)
    x, s = np.arange(6, dtype=np.float32), i64(2, 3)
    for i, j, k in ((1, 2, 0), (-3, -2, -2), (3, 0, 0), (0, 7, 1), (0, -9, 1), (0, 0, 5), (-99, -99, -99)):
        inside = -3 <= i < 3 and -2 <= j < 2 and -2 <= k < 2
        j = i64(0, 0, min(j, 1) if inside else j, 0).reshape(2, 2)
        assert agree(model, artifact, {"x": x, "s": s, "i": i64(i, 0), "j": j, "k": np.asarray(k)}) == (
            inside or clamps
        )


def test_messages_name_the_node() -> None:
    model, artifact = built("g (float[n] x, int64[3] s) => (y) { y = Reshape(x, s) }")
    with pytest.raises(ArtifactInputError, match=r"node 'Reshape' \(Reshape\): expected a shape for 6 elements"):
        artifact.run({"x": np.zeros(6, np.float32), "s": i64(2, 2, 2)})
    assert_same(model, artifact, {"x": np.zeros(6, np.float32), "s": i64(1, -1, 2)})


def test_sequences_that_loops_make() -> None:
    model, artifact = built(cases.LOOP)
    for n, trips in ((4, 3), (1, 9), (5, 1), (2, 5)):
        assert agree(model, artifact, {"x": np.ones(n, np.float32), "trips": np.asarray(trips)})
    assert not agree(model, artifact, {"x": np.ones(3, np.float32), "trips": np.asarray(0)})


@pytest.mark.parametrize("name", cases.SIZED)
def test_sizes(name: str) -> None:
    _, x, small = cases.SIZED[name]
    model, artifact = built(cases.sized(name))
    assert {domain for domain, _ in host_keys(model.plan)} == {SIZES_DOMAIN}
    rng = np.random.default_rng(11)
    same = 0
    for k in range(60):
        names = x[x.index("[") + 1 : x.index("]")].split(", ")
        shape = [int(rng.integers(0, 5)) if d in ("n", "m") else int(d) for d in names]
        feed = {n: rng.integers(-3 if k % 3 == 0 else 0, 5, s) for n, s in small.items()}
        same += agree(model, artifact, {"x": elements("float", int(np.prod(shape)), rng).reshape(shape), **feed})
    assert same > 3


def test_random_numbers_of_a_seed() -> None:
    model, artifact = built(cases.RANDOM)
    for n in (0, 1, 700):
        x = np.linspace(-5, 5, n).astype(np.float32)
        for ratio, go in ((0.3, True), (0.0, True), (0.5, False)):
            feed = {"x": x, "p": np.linspace(0, 1, n), "r": np.array(ratio, np.float32), "go": np.array(go)}
            assert agree(model, artifact, feed)
    assert not agree(model, artifact, feed | {"p": np.full(700, 1.5)})


def test_random_numbers_without_a_seed() -> None:
    _, artifact = built(cases.UNSEEDED)
    x = np.zeros(5000, np.float32)
    first, second = artifact.run({"x": x}), artifact.run({"x": x})
    assert not np.array_equal(first["a"], second["a"])
    assert not np.array_equal(first["b"], second["b"])
    assert 2 <= first["a"].min() < 2.01
    assert 2.99 < first["a"].max() <= 3
    assert abs(first["b"].mean()) < 0.1
    assert abs(first["b"].std() - 1) < 0.1


def test_features_of_sounds() -> None:
    model, artifact = built(cases.SOUND)
    sizes = ((8, 16, 8192, 0, 4096), (40, 400, 16000, 20, 7600), (0, 16, 8000, 0, 100), (5, 16, 8000, 0, 99999))
    for bins, length, rate, low, high in sizes:
        numbers = {
            "bins": bins,
            "length": length,
            "rate": rate,
            "low": np.float32(low),
            "high": np.float32(high),
        }
        feed = numbers | {"low2": float(low), "high2": float(high)}
        assert agree(model, artifact, {k: np.asarray(v) for k, v in feed.items()}) == (high < rate)


_WEIGHTS = ", weights = [0.1, 2.0, 3.3, -1.0, 7.0]"


@pytest.mark.parametrize(("mode", "weights"), [("TF", ""), ("TF", _WEIGHTS), ("IDF", _WEIGHTS), ("TFIDF", _WEIGHTS)])
def test_grams(mode: str, weights: str) -> None:
    model, artifact = built(cases.grams(mode, weights))
    rng = np.random.default_rng(2)
    for n, k in ((12, 3), (1, 1), (0, 2), (30, 2), (4, 0)):
        feed = {"x": rng.integers(2, 6, n).astype(np.int32), "m": rng.integers(2, 6, (k, n))}
        assert agree(model, artifact, feed) == (k > 0)
