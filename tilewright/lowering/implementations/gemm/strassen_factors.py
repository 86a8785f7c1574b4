"""Strassen's algorithm for products of matrices cut in quarters: the factors, and how much rounding it costs.

Seven products of sums of quarters instead of eight of quarters. Source: Strassen, Gaussian Elimination is not Optimal
(1969). Results lose about one bit (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 23.2.2), in
terms of the largest of two rows and of the halves of the sum: an infinity or NaN reaches both rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

Term = TypeVar("Term")

Factors = tuple[tuple[int, ...], ...]

PRODUCTS = 7

LEFT: Factors = (
    (1, 0, 0, 1), (0, 0, 1, 1), (1, 0, 0, 0), (0, 0, 0, 1), (1, 1, 0, 0), (-1, 0, 1, 0), (0, 1, 0, -1),
)  # fmt: skip
"""For each product, the factors of A11, A12, A21 and A22 in its left operand."""

RIGHT: Factors = (
    (1, 0, 0, 1), (1, 0, 0, 0), (0, 1, 0, -1), (-1, 0, 1, 0), (0, 0, 0, 1), (1, 1, 0, 0), (0, 0, 1, 1),
)  # fmt: skip
"""The same for B and the right operand."""

RESULT: Factors = (
    (1, 0, 0, 1, -1, 0, 1), (0, 0, 1, 0, 1, 0, 0), (0, 1, 0, 1, 0, 0, 0), (1, -1, 1, 0, 0, 1, 0),
)  # fmt: skip
"""For C11, C12, C21 and C22, the factors of the products."""

_ROWS = 16
_COLUMNS = 32


def signed_sum(factors: Sequence[int], values: Sequence[Term]) -> Term:
    """The sum of ``values``, whose type has ``+`` and ``-``, times ``factors``: each 1, 0 or -1, at least one of them
    1."""
    terms: list[Any] = list(values)
    total, *added = [v for f, v in zip(factors, terms, strict=True) if f > 0]
    for v in added:
        total = total + v
    for v in (v for f, v in zip(factors, terms, strict=True) if f < 0):
        total = total - v
    return total  # type: ignore[no-any-return]


def combined_weight(w: np.ndarray) -> list[np.ndarray]:
    """The right operands ``[K / 2, N / 2]`` for a weight ``[K, N]``."""
    k, n = w.shape[0] // 2, w.shape[1] // 2
    return [signed_sum(row, [w[:k, :n], w[:k, n:], w[k:, :n], w[k:, n:]]) for row in RIGHT]


def estimated_error(w: np.ndarray) -> float:
    """The largest error of float32 results on random rows, in units of their column's root mean square.

    ``w`` is the weight ``[K, N]`` itself, of which a sample of columns is tried.
    """
    half = w.shape[1] // 2
    step = max(1, -(-half // (_COLUMNS // 2)))
    some = np.concatenate([w[:, :half:step], w[:, half::step]], axis=1)
    a = np.random.default_rng(0).standard_normal((_ROWS, w.shape[0])).astype(np.float32)
    k = w.shape[0] // 2
    quarters = [a[0::2, :k], a[0::2, k:], a[1::2, :k], a[1::2, k:]]
    products = [signed_sum(row, quarters) @ b for row, b in zip(LEFT, combined_weight(some), strict=True)]
    got = [signed_sum(row, products) for row in RESULT]
    exact = a.astype(np.float64) @ some
    want = [exact[r::2, columns] for r in range(2) for columns in np.split(np.arange(exact.shape[1]), 2)]
    scale = np.sqrt(np.mean(exact * exact, axis=0))
    scale[scale == 0.0] = 1.0
    scales = np.split(scale, 2)
    return max(float((np.abs(g - x) / scales[i % 2]).max()) for i, (g, x) in enumerate(zip(got, want, strict=True)))
