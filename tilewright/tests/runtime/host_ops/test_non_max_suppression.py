"""Non-maximum suppression of the runtime against the reference definition, which is one loop inside another."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.reference import evaluate
from tilewright.runtime.host_ops.non_max_suppression import non_max_suppression

NO_SCORE_LIMIT = None


def check(
    boxes: np.ndarray, scores: np.ndarray, most: int, overlap: float, score: float | None, centers: int = 0
) -> np.ndarray:
    """The rows that both definitions give."""
    limits = [np.array([most], np.int64), np.array([overlap], np.float32)]
    if score is not None:
        limits.append(np.array([score], np.float32))
    attrs = {"center_point_box": centers}
    (got,) = non_max_suppression(attrs, [boxes, scores, *limits])
    (expected,) = evaluate("NonMaxSuppression", "", attrs, [boxes, scores, *limits], 1)
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.asarray(expected).reshape(-1, 3))
    return got


def scene(seed: int, images: int, classes: int, n: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Boxes of about ``size`` in the unit square, their corners in any order, and scores."""
    rng = np.random.default_rng(seed)
    middle = rng.random((images, n, 2))
    half = rng.uniform(-size, size, (images, n, 2)) / 2
    boxes = np.concatenate([middle - half, middle + half], axis=2).astype(np.float32)
    return boxes, rng.random((images, classes, n)).astype(np.float32)


@pytest.mark.parametrize(("images", "classes", "n"), [(1, 1, 1), (1, 1, 7), (2, 3, 40), (1, 2, 333), (3, 1, 64)])
@pytest.mark.parametrize("score", [NO_SCORE_LIMIT, 0.5, 2.0])
@pytest.mark.parametrize("centers", [0, 1])
def test_random_scenes(images: int, classes: int, n: int, score: float | None, centers: int) -> None:
    boxes, scores = scene(n + centers, images, classes, n, 0.5)
    for most in (1, 3, 1000):
        for overlap in (0.0, 0.3, 0.9):
            check(boxes, scores, most, overlap, score, centers)


def test_many_rounds() -> None:
    """Every box overlaps one of a few: candidates far down the list are taken after many that are not."""
    rng = np.random.default_rng(4)
    places = rng.random((25, 2))
    near = places[rng.integers(0, 25, 1500)] + rng.normal(0, 1e-4, (1500, 2))
    boxes = np.concatenate([near - 0.02, near + 0.02], axis=1).astype(np.float32)[None]
    scores = rng.random((1, 2, 1500)).astype(np.float32)
    rows = check(boxes, scores, 1000, 0.6, 0.001)
    assert 20 < len(rows) < 100


def test_equal_scores_are_taken_in_the_order_of_their_numbers() -> None:
    boxes, scores = scene(5, 1, 2, 50, 0.05)
    scores[...] = np.array([0.0, -0.0, 0.5, -0.5, np.inf], np.float32)[np.arange(50) % 5]
    rows = check(boxes, scores, 50, 0.5, NO_SCORE_LIMIT)
    assert rows[0, 2] == 4


def test_empty_boxes_overlap_nothing() -> None:
    boxes = np.zeros((1, 6, 4), np.float32)
    boxes[0, 3:] = [0, 0, 1, 1]
    rows = check(boxes, np.ones((1, 1, 6), np.float32), 6, 0.5, 0.0)
    assert rows[:, 2].tolist() == [0, 1, 2, 3]


def test_a_negative_limit_keeps_boxes_that_do_not_meet() -> None:
    boxes = np.array([[[0, 0, 1, 1], [2, 2, 3, 3], [0.5, 0.5, 1.5, 1.5]]], np.float32)
    rows = check(boxes, np.array([[[0.9, 0.8, 0.7]]], np.float32), 3, -1.0, 0.0)
    assert rows[:, 2].tolist() == [0, 1]


@pytest.mark.parametrize(("images", "classes", "n"), [(0, 2, 5), (2, 0, 5), (2, 2, 0)])
def test_nothing_in_nothing_out(images: int, classes: int, n: int) -> None:
    check(np.zeros((images, n, 4), np.float32), np.zeros((images, classes, n), np.float32), 5, 0.5, NO_SCORE_LIMIT)


def test_without_a_number_of_boxes_none_is_taken() -> None:
    boxes, scores = scene(6, 1, 1, 5, 0.5)
    (rows,) = non_max_suppression({}, [boxes, scores])
    assert isinstance(rows, np.ndarray)
    assert rows.shape == (0, 3)
    check(boxes, scores, 0, 0.5, NO_SCORE_LIMIT)
