"""Two sequences put side by side: the longest common subsequence, and the longest increasing one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence

LARGEST = 1 << 30
"""Product of two lengths up to which sequences are compared."""


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Places in ``a`` and ``b`` of a longest common subsequence, ascending; what both begin or end with is in it.
    Sequences too long for that (``LARGEST``) have nothing else in common.

    The rows of the usual table are integers, a bit for each element of ``a`` (Hyyro, Bit-parallel LCS-length
    computation revisited, 2004), so that it takes a machine operation for 64 elements or so.
    """
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    head = [(i, i) for i in range(start)]
    tail = [(len(a) - i, len(b) - i) for i in range(end, 0, -1)]
    middle = _aligned(a[start : len(a) - end], b[start : len(b) - end])
    return head + [(i + start, j + start) for i, j in middle] + tail


def _aligned(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[tuple[int, int]]:
    if not a or not b or len(a) * len(b) > LARGEST:
        return []
    places: dict[Hashable, int] = {}
    for i, x in enumerate(a):
        places[x] = places.get(x, 0) | 1 << i
    full = (1 << len(a)) - 1
    row, rows = full, []
    for y in b:
        u = row & places.get(y, 0)
        row = ((row + u) | (row - u)) & full
        rows.append(row)
    out = []
    i, j = len(a), len(b)
    while i and j:
        if rows[j - 1] >> (i - 1) & 1:
            i -= 1
        else:
            j -= 1
            if not j or rows[j - 1] >> (i - 1) & 1:
                i -= 1
                out.append((i, j))
    return out[::-1]


def increasing_subsequence(numbers: Sequence[int]) -> list[int]:
    """Places of a longest increasing subsequence."""
    ends: list[int] = []
    last: list[int] = []
    before = [-1] * len(numbers)
    for i, x in enumerate(numbers):
        k = bisect_left(ends, x)
        before[i] = last[k - 1] if k else -1
        ends[k : k + 1] = [x]
        last[k : k + 1] = [i]
    out = []
    i = last[-1] if last else -1
    while i >= 0:
        out.append(i)
        i = before[i]
    return out[::-1]
