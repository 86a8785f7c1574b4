"""Non-maximum suppression on arrays: all classes of all images at once, and no further down their scores than needed.

The meaning is ONNX's (the reference room has it as loops): of each class of each image, boxes are taken in the order
of falling scores, those left out that overlap a taken box by more than a threshold. Boxes of equal score are taken in
the order of their numbers.

Each round looks at the next few candidates of every class: first at their overlaps with the boxes taken before, then
at the overlaps of those that remain among each other. The first round looks at few, since all of them remain; later
ones at ever more, since most do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_FIRST_WINDOW = 32
_PAIRS = 1 << 16
"""So many overlaps are computed at once: what is needed in between fits in a cache."""


@dataclass(frozen=True, slots=True)
class _Boxes:
    """Corners and areas, arrays of one shape. The area of an empty box is NaN: it overlaps nothing."""

    top: np.ndarray
    left: np.ndarray
    bottom: np.ndarray
    right: np.ndarray
    area: np.ndarray

    def __getitem__(self, at: Any) -> _Boxes:
        return _Boxes(self.top[at], self.left[at], self.bottom[at], self.right[at], self.area[at])

    def overlap(self, other: _Boxes, limit: np.float32) -> np.ndarray:
        """Where intersection over union is more than ``limit``, broadcasting."""
        height = np.minimum(self.bottom, other.bottom)
        height -= np.maximum(self.top, other.top)
        np.maximum(height, 0, out=height)
        shared = np.minimum(self.right, other.right)
        shared -= np.maximum(self.left, other.left)
        np.maximum(shared, 0, out=shared)
        shared *= height
        union = np.add(self.area, other.area, out=height)
        union -= shared
        too_much: np.ndarray = np.divide(shared, union, out=union) > limit
        return too_much if limit >= 0 else too_much & (shared > 0)


@dataclass(frozen=True, slots=True)
class _Candidates:
    """What passes the score threshold, class by class (of each image) and in each in the order of falling scores.

    ``first`` and ``count`` say for each class where its candidates stand in ``box``: numbers of ``boxes``, which are
    those of all images and at the end an empty one.
    """

    first: np.ndarray
    count: np.ndarray
    box: np.ndarray
    boxes: _Boxes


def non_max_suppression(attrs: Mapping[str, object], inputs: Sequence[object]) -> list[object]:
    """ONNX's ``NonMaxSuppression``: rows of image, class and box."""
    boxes, scores = (np.asarray(x) for x in inputs[:2])
    most, limit, threshold = (_scalar(inputs, i) for i in (2, 3, 4))
    _, classes, n = scores.shape
    wanted = 0 if most is None else max(int(most), 0)
    with np.errstate(all="ignore"):
        found = _candidates(boxes, scores, bool(attrs.get("center_point_box", 0)), threshold)
        taken = _take(found, wanted, np.float32(0 if limit is None else limit))
    group = np.repeat(np.arange(len(taken)), [len(t) for t in taken])
    rows = np.empty((len(group), 3), np.int64)
    rows[:, 0], rows[:, 1] = np.divmod(group, max(classes, 1))
    rows[:, 2] = np.fromiter((k for t in taken for k in t), np.int64, len(group)) - rows[:, 0] * n
    return [rows]


def _scalar(inputs: Sequence[object], i: int) -> Any:
    given = np.asarray(inputs[i]) if i < len(inputs) and inputs[i] is not None else np.empty(0)
    return given.reshape(-1)[0] if given.size else None


def _candidates(boxes: np.ndarray, scores: np.ndarray, centers: bool, threshold: Any) -> _Candidates:
    images, classes, n = scores.shape
    groups = images * classes
    flat = np.ascontiguousarray(scores).reshape(-1)
    place = np.arange(flat.size) if threshold is None else np.flatnonzero(flat > threshold)
    # floats as integers of the opposite order, above the place: one sort of integers, in which places break ties
    bits = (flat[place] + np.float32(0)).view(np.uint32)  # -0.0 is 0.0
    falling = np.where(bits >> 31, bits, ~(bits | np.uint32(1 << 31))).astype(np.uint64)
    order = np.sort((falling << np.uint64(32)) | np.arange(len(place), dtype=np.uint64)) & np.uint64(0xFFFFFFFF)
    place = place[order.astype(np.int64)]
    group = place // max(n, 1)
    by_group = np.argsort(group.astype(np.min_scalar_type(max(groups, 1))), kind="stable")
    place, group = place[by_group], group[by_group]
    count = np.bincount(group, minlength=groups)
    box = place - (group - group // max(classes, 1)) * n
    return _Candidates(np.cumsum(count) - count, count, box, _corners(boxes.reshape(-1, 4).T, centers))


def _corners(own: np.ndarray, centers: bool) -> _Boxes:
    own = np.append(own, np.zeros((4, 1), own.dtype), axis=1)
    if centers:
        x, y, width, height = own[0], own[1], own[2] / 2, own[3] / 2
        top, left, bottom, right = y - height, x - width, y + height, x + width
    else:
        top, bottom = np.minimum(own[0], own[2]), np.maximum(own[0], own[2])
        left, right = np.minimum(own[1], own[3]), np.maximum(own[1], own[3])
    area = (right - left) * (bottom - top)
    return _Boxes(top, left, bottom, right, np.where(area > 0, area, np.float32(np.nan)))


def _take(found: _Candidates, wanted: int, limit: np.float32) -> list[list[int]]:
    """For each class the boxes that are taken, at most ``wanted``, in order."""
    boxes, empty = found.boxes, len(found.boxes.area) - 1
    taken: list[list[int]] = [[] for _ in found.count]
    active = np.flatnonzero(found.count) if wanted else np.empty(0, np.int64)
    seen, window = 0, _FIRST_WINDOW
    while active.size:
        own = [taken[g] for g in active]
        last = (found.first + found.count)[active][:, None]
        most = max(map(len, own))
        window = min(window, int(found.count[active].max()) - seen, max(_FIRST_WINDOW, _PAIRS // (len(own) * most + 1)))
        at = (found.first[active] + seen)[:, None] + np.arange(window)
        box = np.where(at < last, found.box[np.minimum(at, last - 1)], empty)
        if most:
            over = boxes[_padded(own, empty)][:, :, None].overlap(boxes[box][:, None], limit)
            box[over.any(axis=1)] = empty
        out = box == empty
        left = np.take_along_axis(box, np.argsort(out, axis=1, kind="stable"), axis=1)
        left = left[:, : out.shape[1] - int(out.sum(axis=1).min())]
        _choose(own, left, (left != empty).sum(axis=1).tolist(), boxes[left], wanted, limit)
        seen, window = seen + window, 2 * window
        active = active[[len(t) < wanted for t in own] & (found.count[active] > seen)]
    return taken


def _padded(rows: Sequence[Sequence[int]], fill: int) -> np.ndarray:
    """Rows of different lengths as one array, filled up."""
    out = np.full((len(rows), max(map(len, rows))), fill)
    for line, row in zip(out, rows, strict=True):
        line[: len(row)] = row
    return out


def _choose(
    taken: Sequence[list[int]], left: np.ndarray, lengths: Sequence[int], boxes: _Boxes, wanted: int, limit: np.float32
) -> None:
    """Of the candidates in each row of ``left``, take each that no earlier one of the row overlaps."""
    over = np.packbits(boxes[:, :, None].overlap(boxes[:, None], limit), axis=-1, bitorder="little")
    _, columns, width = over.shape
    bits, start = over.tobytes(), 0
    for own, row, length in zip(taken, left.tolist(), lengths, strict=True):
        free = (1 << length) - 1
        while free and len(own) < wanted:
            k = (free & -free).bit_length() - 1
            own.append(row[k])
            at = start + k * width
            free &= ~(int.from_bytes(bits[at : at + width], "little") | (1 << k))
        start += columns * width
