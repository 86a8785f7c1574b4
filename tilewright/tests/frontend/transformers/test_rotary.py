"""RotaryEmbedding, onnxruntime's and ONNX's, against a reference in numpy, and against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError, UnsupportedError
from tilewright.core.plan import KernelStep
from tilewright.frontend import from_onnx
from tilewright.inspect.ort import is_installed, open_session
from tilewright.tests.frontend.against_ort import dtype_code, node_model
from tilewright.tests.frontend.transformers.references import Arrays, rotate

B, S, N, SIZE, PLACES = 3, 5, 4, 16, 11
RNG = np.random.default_rng(0)
ANGLES = RNG.uniform(-3, 3, (PLACES, SIZE // 2))


def real(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RNG.standard_normal(shape).astype(dtype)


def caches(columns: int, dtype: Any = np.float32) -> Arrays:
    return {"c": np.cos(ANGLES[:, :columns]).astype(dtype), "s": np.sin(ANGLES[:, :columns]).astype(dtype)}


def by_head(x: np.ndarray, heads: int) -> np.ndarray:
    """[batch, rows, heads, size] of an operand of rank 3 or 4."""
    return x.reshape(*x.shape[:2], heads, -1) if x.ndim == 3 else x.transpose(0, 2, 1, 3)


def check(feed: Arrays, constants: Arrays, at: np.ndarray, domain: str, tolerance: float = 1e-5, **attrs: Any) -> None:
    """``at``: places [batch, rows]."""
    x = feed["x"]
    symbolic = ["b", "s", x.shape[2]] if x.ndim == 3 else ["b", N, "s", x.shape[3]]
    shapes: dict[str, Any] = {"x": symbolic}
    if "p" in feed and feed["p"].ndim == 2:
        shapes["p"] = ["b", "s"]
    order = ["x", "p", "c", "s"] if domain else ["x", "c", "s", "p"]
    model = node_model("RotaryEmbedding", feed, constants, order, dtype_code(x), shapes=shapes, version=23,
                       domain=domain, **attrs)  # fmt: skip
    cos, sin = (constants[k].astype(np.float64)[at][:, :, None] for k in "cs")
    turned = rotate(by_head(x, N), cos, sin, bool(attrs.get("interleaved")))
    wanted = turned.reshape(x.shape) if x.ndim == 3 else turned.transpose(0, 2, 1, 3)
    ours = tilewright.compile(model).run(feed)["y0"]
    assert ours.dtype == x.dtype
    np.testing.assert_allclose(ours, wanted, tolerance, tolerance)
    session = open_session(model, 1)
    if session is not None:
        np.testing.assert_allclose(session.run(None, feed)[0], wanted, tolerance, tolerance)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(B, S, N * SIZE), (B, N, S, SIZE)])
def test_places_of_rows(shape: tuple[int, ...], interleaved: int) -> None:
    feed = {"x": real(*shape), "p": RNG.integers(0, PLACES, (B, S))}
    check(feed, caches(SIZE // 2), feed["p"], "com.microsoft", interleaved=interleaved, scale=0.5)


@pytest.mark.parametrize("shape", [(B, S, N * SIZE), (B, N, S, SIZE)])
def test_the_place_of_the_first_row(shape: tuple[int, ...]) -> None:
    feed = {"x": real(*shape), "p": np.array([3])}
    at = np.broadcast_to(3 + np.arange(S), (B, S))
    check(feed, caches(SIZE // 2), at, "com.microsoft")


@pytest.mark.parametrize("interleaved", [0, 1])
def test_only_the_first_elements_of_a_head(interleaved: int) -> None:
    feed = {"x": real(B, S, N * 24), "p": RNG.integers(0, PLACES, (B, S))}
    attrs = {"num_heads": N, "rotary_embedding_dim": SIZE, "interleaved": interleaved}
    check(feed, caches(SIZE // 2), feed["p"], "com.microsoft", is_packed_batching=1, **attrs)
    check(feed, caches(SIZE // 2), feed["p"], "", **attrs)


def test_float16() -> None:
    feed = {"x": real(B, S, N * SIZE, dtype=np.float16), "p": RNG.integers(0, PLACES, (B, S))}
    check(feed, caches(SIZE // 2, np.float16), feed["p"], "com.microsoft", tolerance=4e-3)


@pytest.mark.parametrize("shape", [(B, S, N * SIZE), (B, N, S, SIZE)])
def test_of_onnx(shape: tuple[int, ...]) -> None:
    feed = {"x": real(*shape), "p": RNG.integers(0, PLACES, (B, S))}
    check(feed, caches(SIZE // 2), feed["p"], "", num_heads=N)


def test_of_onnx_with_the_angles_of_the_rows() -> None:
    x, at = real(B, N, S, SIZE), RNG.integers(0, PLACES, (B, S))
    rows = {k: v[at] for k, v in caches(SIZE // 2).items()}
    feed = {"x": x, **rows}
    model = node_model("RotaryEmbedding", feed, {}, ["x", "c", "s"], 1, version=23, domain="")
    ours = tilewright.compile(model).run(feed)["y0"]
    wanted = rotate(x.transpose(0, 2, 1, 3), rows["c"][:, :, None], rows["s"][:, :, None], False)
    np.testing.assert_allclose(ours, wanted.transpose(0, 2, 1, 3), 1e-5, 1e-5)
    if is_installed():
        session = open_session(model, 1)
        assert session is not None
        np.testing.assert_allclose(session.run(None, feed)[0], wanted.transpose(0, 2, 1, 3), 1e-5, 1e-5)


def test_heads_are_turned_in_one_kernel() -> None:
    feed = {"x": real(B, S, N * SIZE), "p": RNG.integers(0, PLACES, (B, S))}
    model = node_model("RotaryEmbedding", feed, caches(SIZE // 2), ["x", "p", "c", "s"], 1)
    steps = tilewright.compile(model).plan.steps
    assert sum(isinstance(s, KernelStep) for s in steps) <= 3  # rows of two tables, and all the rest


def test_a_place_that_the_tables_do_not_have_is_an_error_of_the_call() -> None:
    feed = {"x": real(1, 2, N * SIZE), "p": np.array([[0, PLACES]])}
    model = node_model("RotaryEmbedding", feed, caches(SIZE // 2), ["x", "p", "c", "s"], 1)
    with pytest.raises(InputError, match=f"{PLACES}"):
        tilewright.compile(model).run(feed)


@pytest.mark.parametrize(("shape", "ids", "attrs", "told"), [
    ((2, N * SIZE), (1, 2), {}, "expected an input 0 of rank 3 or 4, got rank 2"),
    ((1, 2, N * SIZE), (1, 2, 1), {}, "expected position_ids of rank 1 or 2, got rank 3"),
    ((1, 2, N * SIZE), (1, 2), {"num_heads": 2},
     "expected heads of 16 elements, twice the columns of the cosines, got 32"),
    ((1, 2, N * SIZE), (1, 2), {"rotary_embedding_dim": 16}, "expected an attribute num_heads >= 1, got 0"),
    ((1, 2, N * SIZE), (1, 2), {"rotary_embedding_dim": 8, "num_heads": N},
     "expected an attribute rotary_embedding_dim of twice the 8 columns of the cosines, got 8"),
])  # fmt: skip
def test_nodes_that_are_none(shape: tuple[int, ...], ids: tuple[int, ...], attrs: dict[str, int], told: str) -> None:
    feed = {"x": real(*shape), "p": np.zeros(ids, np.int64)}
    model = node_model("RotaryEmbedding", feed, caches(SIZE // 2), ["x", "p", "c", "s"], 1, **attrs)
    with pytest.raises(ModelError, match=rf"node 'node' \(RotaryEmbedding\): {told}"):
        from_onnx(model)


def test_tables_of_an_unknown_width() -> None:
    feed = {"x": real(1, 2, N * SIZE), "p": np.zeros((1, 2), np.int64), **caches(SIZE // 2)}
    shapes: dict[str, Any] = {"c": ["places", "half"], "s": ["places", "half"]}
    model = node_model("RotaryEmbedding", feed, {}, ["x", "p", "c", "s"], 1, shapes=shapes)
    with pytest.raises(UnsupportedError, match="a cache of cosines of an unknown number of columns"):
        from_onnx(model)
