"""Which bytes of a weight are neighbours where the products of two are added in 16 bits (``pmaddubsw``).

``255 (w[i] + w[j])`` fits in an int16 if the positive parts of two neighbours are at most 128 together, and so are the
negative ones. Within windows of 16 rows of the weight, from which an instruction takes bytes in any order (``pshufb``),
rows are put in an order in which neighbours fit: one order for all columns, or one for each panel of them. Where no
partner is left that fits, what is too much is multiplied in a step of its own.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

WINDOW = 16
"""Rows among which an order is chosen."""
ROW = 32
"""What bytes in order are a multiple of, so that vectors of 256 bits are whole."""
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

_seen: OrderedDict[tuple[bytes, tuple[int, ...], int, int], Pairing] = OrderedDict()


@dataclass(frozen=True, slots=True)
class Pairing:
    """An order of the rows of a weight ``[k, n]``, and its words in that order.

    ``places``: ``[groups, 16 * windows]`` of uint8, the place in its window of the row that comes next, for each of
    equal parts of the panels, and zeros up to a multiple of 32; None where rows stay as they are. ``words``: ``[panels,
    steps, width]`` of int32, four rows each. ``at``: ``[panels, steps]`` of int32, which word of the other operand, in
    order, meets which of these; None if each meets its own. ``ordering``: what it takes to put the bytes of a row in
    order for all panels, in steps.
    """

    places: np.ndarray | None
    words: np.ndarray
    at: np.ndarray | None
    ordering: float = 0.0

    @property
    def groups(self) -> int:
        """How many parts of the panels have an order of their own."""
        return 1 if self.places is None else len(self.places)

    @property
    def time(self) -> float:
        """Of a sum, in steps."""
        return float(self.words.shape[1] + self.ordering / max(1, len(self.words)))


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
    if key not in _seen:
        _seen[key] = _pair(w, width, Windows(len(w), run))
        while len(_seen) > _REMEMBERED:
            _seen.popitem(last=False)
    _seen.move_to_end(key)
    return _seen[key]


def _pair(w: np.ndarray, width: int, windows: Windows) -> Pairing:
    k, n = w.shape
    panels = -(-n // width)
    padded = np.zeros((k, panels * width), np.int8)
    padded[:, :n] = w
    plain = _in_order(padded, width, None, windows)
    if plain.at is None:
        return plain
    ways = [plain]
    if _is_over(padded[0::2], padded[1::2]).any(axis=1).mean() < _HOPELESS:
        ways.append(_in_order(padded, width, _order(padded, 1, windows), windows))
    if ways[-1].time > (1 + _SHUFFLE) * (k // _PER_WORD):
        ways.append(_in_order(padded, width, _order(padded, panels, windows), windows))
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


def _in_order(w: np.ndarray, width: int, places: np.ndarray | None, windows: Windows) -> Pairing:
    """``w`` in the order of ``places``, and what two neighbours are too much together in steps of its own."""
    k, n = w.shape
    steps, panels = k // _PER_WORD, n // width
    by_word = _SHUFFLE if windows.run == k or windows.run % WINDOW == 0 else _FIND
    ordering = 0.0 if places is None else by_word * places.size / _PER_WORD
    moved, met = (w.copy(), np.arange(steps)) if places is None else _moved(w, places, windows)
    if places is not None:
        places = np.pad(places, ((0, 0), (0, -places.shape[1] % ROW)))
    over = _is_over(moved[0::2], moved[1::2])
    pair, column = np.nonzero(over)
    if not len(pair):
        at = None if (met == np.arange(steps)).all() else np.tile(met.astype(np.int32), (panels, 1))
        return Pairing(places, _words(moved, width), at, ordering)
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
    words = np.concatenate([_words(moved, width), more.view("<i4")[..., 0]], axis=1)
    return Pairing(places, words, at, ordering)


def _moved(w: np.ndarray, places: np.ndarray, windows: Windows) -> tuple[np.ndarray, np.ndarray]:
    """The rows in order, and the word in order that each four of them meet."""
    counts = windows.own().sum(axis=1)
    kept = np.concatenate([WINDOW * b + np.arange(c) for b, c in enumerate(counts)])
    rows = (places + np.repeat(windows.starts(), WINDOW))[:, kept]
    parts = w.reshape(len(w), len(rows), -1)
    return np.concatenate([parts[at, g] for g, at in enumerate(rows)], axis=1), kept[::_PER_WORD] // _PER_WORD


def _words(w: np.ndarray, width: int) -> np.ndarray:
    """``[panels, steps, width]`` of int32."""
    k, n = w.shape
    panels = w.reshape(k // _PER_WORD, _PER_WORD, n // width, width).transpose(2, 0, 3, 1)
    found: np.ndarray = np.ascontiguousarray(panels).view("<i4")[..., 0]
    return found
