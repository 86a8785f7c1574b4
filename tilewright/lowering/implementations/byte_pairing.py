"""Which bytes of a weight are neighbours where the products of two are added in 16 bits (``pmaddubsw``).

``255 (w[i] + w[j])`` fits in an int16 if the positive parts of two neighbours are at most 128 together, and so are the
negative ones. Within windows of 16 rows of the weight, from which an instruction takes bytes in any order (``pshufb``),
rows are put in an order in which neighbours fit: one order for all columns, or one for each panel of them. Where no
partner is left that fits, what is too much is multiplied in a step of its own.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

WINDOW = 16
"""Rows among which an order is chosen."""
_PER_WORD = 4
_LIMIT = 128
"""The largest sum of two weights of one sign whose products with any two bytes fit in an int16 together."""
_SHUFFLE = 0.055
"""What it takes to put the bytes of a word in order for a panel, in steps."""
_FIND = 0.3
"""The same where each run begins at another place, and its last window is not a whole one."""
_HOPELESS = 0.9
"""The share of neighbours that do not fit in some column from which on no order is looked for in which all do."""
_REMEMBERED = 256

_known: dict[tuple[bytes, tuple[int, ...], int, int], Pairing] = {}


@dataclass(frozen=True, slots=True)
class Words:
    """A weight in order. ``words``: ``[panels, steps, width]`` of int32, four rows each. ``at``: ``[panels, steps]`` of
    int32, which word of the other operand, in order, meets which of these; None if each meets its own."""

    words: np.ndarray
    at: np.ndarray | None


@dataclass(frozen=True, slots=True)
class Pairing:
    """An order of the rows of a weight ``[k, n]``, in panels of ``width`` columns.

    ``order``: ``[groups, 16 * windows]`` of uint8, the place in its window of the row that comes next, for each of
    equal parts of the panels; None where rows stay as they are. ``panels``, ``steps``: of the words in that order.
    ``moves``: whether words of the other operand meet others than their own. ``ordering``: what it takes to put the
    bytes of a row in order for all panels, in steps.
    """

    windows: Windows
    width: int
    order: np.ndarray | None
    panels: int
    steps: int
    moves: bool
    ordering: float

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the words."""
        return self.panels, self.steps, self.width

    @property
    def groups(self) -> int:
        """How many parts of the panels have an order of their own."""
        return 1 if self.order is None else len(self.order)

    @property
    def time(self) -> float:
        """Of a sum, in steps."""
        return float(self.steps + self.ordering / max(1, self.panels))

    def apply(self, w: np.ndarray) -> Words:
        """``w`` in this order."""
        return _in_order(_padded(w, self.width), self.width, self.order, self.windows)


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of 16 rows of a weight of ``k`` rows, in runs of ``run`` that lie together; the last one of a run has
    the last 16 rows, and those that the one before has are not its own."""

    k: int
    run: int

    @property
    def of_run(self) -> int:
        return -(-self.run // WINDOW)

    def starts(self) -> np.ndarray:
        """The first row of each."""
        inside = np.minimum(np.arange(self.of_run) * WINDOW, max(0, self.run - WINDOW))
        found: np.ndarray = (np.arange(self.k // self.run)[:, None] * self.run + inside).reshape(-1)
        return found

    def own(self) -> np.ndarray:
        """``[windows, 16]``: which places have rows that are the window's own."""
        first = np.arange(self.of_run) * WINDOW
        rows = np.minimum(first, max(0, self.run - WINDOW))[:, None] + np.arange(WINDOW)
        inside = (rows >= first[:, None]) & (rows < self.run)
        return np.tile(inside, (self.k // self.run, 1))


def pair_bytes(w: np.ndarray, width: int, run: int) -> Pairing:
    """The pairing of ``w``, ``[k, n]`` of int8, in panels of ``width`` columns that takes least time. Each ``run`` rows
    meet bytes that lie together, a multiple of 4 that ``k`` is a multiple of."""
    key = hashlib.sha1(np.ascontiguousarray(w).tobytes()).digest(), w.shape, width, run
    found = _known.get(key)
    if found is None:
        found = _known[key] = _pair(_padded(w, width), width, Windows(len(w), run))
        while len(_known) > _REMEMBERED:
            _known.pop(next(iter(_known)), None)
    return found


def _padded(w: np.ndarray, width: int) -> np.ndarray:
    """Zeros in the columns past the last."""
    return np.pad(w, ((0, 0), (0, -w.shape[1] % width)))


def _pair(w: np.ndarray, width: int, windows: Windows) -> Pairing:
    panels, least = w.shape[1] // width, len(w) // _PER_WORD

    def way(order: np.ndarray | None) -> Pairing:
        found = _in_order(w, width, order, windows)
        by_word = _SHUFFLE if windows.run == windows.k or windows.run % WINDOW == 0 else _FIND
        ordering = 0.0 if order is None else by_word * order.size / _PER_WORD
        return Pairing(windows, width, order, panels, found.words.shape[1], found.at is not None, ordering)

    ways = [way(None)]
    if ways[0].steps == least:
        return ways[0]
    if _is_over(w[0::2], w[1::2]).any(axis=1).mean() < _HOPELESS:
        ways.append(way(_order(w, 1, windows)))
    if ways[-1].time > (1 + _SHUFFLE) * least:
        ways.append(way(_order(w, panels, windows)))
    return min(ways, key=lambda p: p.time)


def _order(w: np.ndarray, groups: int, windows: Windows) -> np.ndarray:
    """``[groups, 16 * windows]``: partners beside each other, then those that have none, then what is not the window's
    own. A row with few partners left chooses first (Karp and Sipser, 1981)."""
    k, n = w.shape
    own = np.tile(windows.own(), (groups, 1))
    rows = np.minimum(windows.starts()[:, None] + np.arange(WINDOW), k - 1)
    parts = np.ascontiguousarray(w[rows].reshape(*rows.shape, groups, n // groups).transpose(2, 0, 1, 3))
    fits = _fitting(parts.reshape(-1, WINDOW, n // groups)) & own[:, :, None] & own[:, None]
    window, order = np.arange(len(fits)), np.zeros((len(fits), WINDOW), np.uint8)
    taken, count = ~own, np.zeros(len(fits), int)
    for _ in range(WINDOW // 2):
        partners = fits.sum(axis=2)
        rare = np.where(partners > 0, partners, WINDOW + 1)
        i = rare.argmin(axis=1)
        j = np.where(fits[window, i], rare, WINDOW + 1).argmin(axis=1)
        found = fits[window, i, j]
        b, i, j = window[found], i[found], j[found]
        order[b, 2 * count[b]], order[b, 2 * count[b] + 1] = i, j
        count[b] += 1
        for row in (i, j):
            taken[b, row] = True
            fits[b, row] = False
            fits[b, :, row] = False
    rest = np.argsort(taken, axis=1, kind="stable")
    for c in range(WINDOW // 2):
        b = window[count == c]
        order[b, 2 * c :] = rest[b, : WINDOW - 2 * c]
    return order.reshape(groups, -1)


def _fitting(parts: np.ndarray) -> np.ndarray:
    """``[blocks, 16, 16]``: which rows of ``parts``, ``[blocks, 16, columns]``, fit beside each other."""
    upper, lower = _part(parts, 1), _part(parts, -1)
    above, below = _LIMIT - upper, _LIMIT - lower
    fits = np.zeros((len(parts), WINDOW, WINDOW), bool)
    for d in range(1, WINDOW):
        over = (upper[:, :-d] > above[:, d:]) | (lower[:, :-d] > below[:, d:])
        eights = over.view(np.uint64) if over.shape[2] % 8 == 0 else over
        i = np.arange(WINDOW - d)
        fits[:, i, i + d] = fits[:, i + d, i] = np.bitwise_or.reduce(eights, axis=2) == 0
    return fits


def _is_over(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where ``a`` and ``b``, of int8, may saturate beside each other."""
    found: np.ndarray = (_part(a, 1) > _LIMIT - _part(b, 1)) | (_part(a, -1) > _LIMIT - _part(b, -1))
    return found


def _part(w: np.ndarray, sign: int) -> np.ndarray:
    """The elements of that sign, without it, as uint8; 0 for others."""
    found: np.ndarray = np.maximum(w, 0) if sign > 0 else np.negative(np.minimum(w, 0))
    return found.view(np.uint8)


def _in_order(w: np.ndarray, width: int, order: np.ndarray | None, windows: Windows) -> Words:
    """``w``, and what two neighbours are too much together in steps of its own."""
    k, n = w.shape
    steps, panels = k // _PER_WORD, n // width
    moved, met = (w.copy(), np.arange(steps)) if order is None else _moved(w, order, windows)
    pair, column = np.nonzero(_is_over(moved[0::2], moved[1::2]))
    if not len(pair):
        at = None if (met == np.arange(steps)).all() else np.tile(met.astype(np.int32), (panels, 1))
        return Words(_words(moved, width), at)
    first, second = (moved[2 * pair + j, column].astype(np.int16) for j in (0, 1))
    kept = np.where(second > 0, _LIMIT - first, -_LIMIT - first)
    moved[2 * pair + 1, column] = kept
    needed = np.zeros((panels, steps), bool)
    needed[column // width, pair // 2] = True
    extra = int(needed.sum(axis=1).max())
    which = np.argsort(~needed, axis=1, kind="stable")[:, :extra]
    more = np.zeros((panels, extra, width, _PER_WORD), np.int8)
    step = (np.cumsum(needed, axis=1) - 1)[column // width, pair // 2]
    more[column // width, step, column % width, 2 * (pair % 2) + 1] = second - kept
    at = np.concatenate([np.broadcast_to(met, (panels, steps)), met[which]], axis=1).astype(np.int32)
    return Words(np.concatenate([_words(moved, width), more.view("<i4")[..., 0]], axis=1), at)


def _moved(w: np.ndarray, order: np.ndarray, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The rows in order, and the word in order that each four of them meet."""
    counts = windows.own().sum(axis=1)
    kept = np.concatenate([WINDOW * b + np.arange(c) for b, c in enumerate(counts)])
    rows = (order + np.repeat(windows.starts(), WINDOW))[:, kept]
    parts = w.reshape(len(w), len(rows), -1)
    return np.concatenate([parts[at, g] for g, at in enumerate(rows)], axis=1), kept[::_PER_WORD] // _PER_WORD


def _words(w: np.ndarray, width: int) -> np.ndarray:
    """``[panels, steps, width]`` of int32."""
    k, n = w.shape
    panels = w.reshape(k // _PER_WORD, _PER_WORD, n // width, width).transpose(2, 0, 3, 1)
    found: np.ndarray = np.ascontiguousarray(panels).view("<i4")[..., 0]
    return found
