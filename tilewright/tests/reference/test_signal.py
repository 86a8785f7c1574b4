"""Encoded images and signals of nothing."""

from __future__ import annotations

import io

import numpy as np
import pytest

from tilewright.core.dtypes import float32
from tilewright.core.errors import TilewrightError
from tilewright.core.plan import HostStep
from tilewright.reference import evaluate
from tilewright.runtime.host_ops.host_step import HostStepError, run_host_step


def _encoded(pixels: np.ndarray, form: str = "PNG") -> np.ndarray:
    image = pytest.importorskip("PIL.Image")
    out = io.BytesIO()
    image.fromarray(pixels).save(out, form)
    return np.frombuffer(out.getvalue(), np.uint8)


@pytest.mark.parametrize(("wanted", "channels"), [("RGB", 3), ("BGR", 3), ("Grayscale", 1)])
def test_an_image_of_one_channel_has_those_asked_for(wanted: str, channels: int) -> None:
    pixels = np.arange(35, dtype=np.uint8).reshape(5, 7)
    (y,) = evaluate("ImageDecoder", "", {"pixel_format": wanted}, [_encoded(pixels)], 1)
    np.testing.assert_array_equal(y, np.repeat(pixels[:, :, None], channels, 2))  # type: ignore[arg-type]


@pytest.mark.parametrize("damage", [lambda x: x[:40], lambda x: x[10:], lambda x: x[:0]])
def test_what_is_no_image_is_an_error_of_the_node(damage: object) -> None:
    broken = damage(_encoded(np.zeros((5, 7, 3), np.uint8)))  # type: ignore[operator]
    step = HostStep("ImageDecoder", "", (), ("x",), ("y",), "decode", "")
    with pytest.raises(HostStepError, match="node 'decode'"):
        run_host_step(step, [broken])


def test_an_image_larger_than_any_is_an_error_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    image = pytest.importorskip("PIL.Image")
    monkeypatch.setattr(image, "MAX_IMAGE_PIXELS", 10)
    step = HostStep("ImageDecoder", "", (), ("x",), ("y",), "decode", "")
    with pytest.raises(TilewrightError, match="node 'decode'"):
        run_host_step(step, [_encoded(np.zeros((50, 7, 3), np.uint8))])


@pytest.mark.parametrize(("onesided", "shape"), [(0, (3, 0, 2)), (1, (3, 1, 2))])
def test_a_transform_of_no_samples(onesided: int, shape: tuple[int, ...]) -> None:
    (y,) = evaluate("DFT", "", {"onesided": onesided}, [np.zeros((3, 0, 1), np.float32)], 1)
    assert isinstance(y, np.ndarray)
    assert (y.shape, y.dtype, bool(y.any())) == (shape, float32.numpy, False)
