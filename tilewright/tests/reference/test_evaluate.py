"""``evaluate``: our own operators, narrow floats, refusals."""

from __future__ import annotations

import importlib
import pkgutil

import ml_dtypes
import numpy as np
import pytest

from tilewright import reference
from tilewright.core import dtypes
from tilewright.core.errors import UnsupportedError
from tilewright.reference import evaluate


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, mask: np.ndarray) -> np.ndarray:
    s = np.einsum("...sd,...td->...st", q, k) * scale + mask
    p = np.exp(s)
    return np.einsum("...st,...td->...sd", p / p.sum(-1, keepdims=True), v)


def test_fused_attention() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=s) for s in ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)))
    mask = rng.normal(size=(5, 7))
    (y,) = evaluate("FusedAttention", "", {"scale": 0.25}, [q, k, v, mask], 1)
    np.testing.assert_allclose(y, _attention(q, k, v, 0.25, mask))  # type: ignore[arg-type]


def test_fused_attention_causal_lines_up_the_last_query_with_the_last_key() -> None:
    rng = np.random.default_rng(0)
    q, k, v = rng.normal(size=(2, 4)), rng.normal(size=(3, 4)), rng.normal(size=(3, 4))
    hidden = np.array([[0, 0, -np.inf], [0, 0, 0]])
    (y,) = evaluate("FusedAttention", "", {"scale": 1.0, "causal": 1}, [q, k, v], 1)
    np.testing.assert_allclose(y, _attention(q, k, v, 1.0, hidden))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_narrow_floats_are_rounded_once(dtype: type) -> None:
    x = np.full((1, 3000), 1.0, dtype)
    (y,) = evaluate("ReduceSum", "", {}, [x, np.array([1])], 1)
    assert isinstance(y, np.ndarray)
    assert y.dtype == dtype
    assert y.item() == np.array(3000.0, dtype).item()


def test_element_type_attributes() -> None:
    for to in (dtypes.int8, 3):
        (y,) = evaluate("Cast", "", {"to": to}, [np.array([1.5, -2.5], np.float32)], 1)
        assert isinstance(y, np.ndarray)
        assert y.dtype == np.int8


def test_optional_inputs() -> None:
    (y,) = evaluate("Clip", "", {}, [np.array([1.0, 3.0], np.float32), None, np.array(2.0, np.float32)], 1)
    np.testing.assert_array_equal(y, [1, 2])  # type: ignore[arg-type]


def test_a_bound_that_is_not_a_number_bounds_nothing() -> None:
    x, nan = np.array([-1.0, 3.0, np.nan], np.float32), np.array(np.nan, np.float32)
    for bounds in ((nan,), (None, nan), (nan, nan)):
        (y,) = evaluate("Clip", "", {}, [x, *bounds], 1)
        np.testing.assert_array_equal(y, x)  # type: ignore[arg-type]


@pytest.mark.parametrize("slope", [np.nan, np.inf])
def test_a_slope_counts_below_zero_alone(slope: float) -> None:
    x = np.array([-1.0, 0.0, 3.0], np.float32)
    want = np.where(x < 0, -np.float32(slope), x)
    (leaky,) = evaluate("LeakyRelu", "", {"alpha": slope}, [x], 1)
    (learned,) = evaluate("PRelu", "", {}, [x, np.array([slope, 0.5, 0.5], np.float32)], 1)
    np.testing.assert_array_equal(leaky, want)  # type: ignore[arg-type]
    np.testing.assert_array_equal(learned, want)  # type: ignore[arg-type]


def test_sequences_are_lists() -> None:
    (s,) = evaluate("SequenceConstruct", "", {}, [np.array([1]), np.array([2, 3])], 1)
    assert isinstance(s, list)
    (x,) = evaluate("SequenceAt", "", {}, [s, np.array(1)], 1)
    np.testing.assert_array_equal(x, [2, 3])  # type: ignore[arg-type]


def test_unknown_operator_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="Frobnicate: no reference definition"):
        evaluate("Frobnicate", "", {}, [], 1)
    with pytest.raises(UnsupportedError, match=r"com\.example\.Relu: no reference definition of this domain"):
        evaluate("Relu", "com.example", {}, [], 1)


def test_no_operator_is_defined_twice() -> None:
    names = (f"{reference.__name__}.{m.name}" for m in pkgutil.iter_modules(reference.__path__))
    modules = [importlib.import_module(n) for n in names]
    defined = [op for m in modules for op in getattr(m, "DEFINITIONS", ())]
    assert sorted(defined) == sorted(set(defined))
