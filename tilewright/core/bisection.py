"""The most of an ordered list that a condition allows, and of one whose errors add up that a budget does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial


def longest_within(most: int, is_within: Callable[[int], bool]) -> int:
    """The largest ``n`` from 0 to ``most`` with ``is_within(n)``, where that holds for all smaller ones too; else one
    with ``is_within(n)`` and not ``is_within(n + 1)``. It is taken to hold for 0, and asked at most once for each."""
    if most <= 0 or is_within(most):
        return max(most, 0)
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if is_within(middle):
            low = middle
        else:
            high = middle
    return low


def taken_within(
    ordered: Sequence[str], alone: Mapping[str, float], budget: float, error: Callable[[Sequence[str]], float],
    rounds: int,
) -> list[str]:  # fmt: skip
    """As many of ``ordered``, from its start, as have an ``error`` together of at most ``budget``; then, so many
    ``rounds`` in all, of those behind the first that is too much for it, where ``alone`` says that they may fit into
    what is left. Errors are expected to add up like independent ones, in squares."""
    taken: list[str] = []
    left = [x for x in ordered if alone[x] <= budget]

    def fits(more: Sequence[str], n: int) -> bool:
        return error([*taken, *more[:n]]) <= budget

    for _ in range(rounds):
        most = longest_within(len(left), partial(fits, left))
        taken, left = [*taken, *left[:most]], left[most + 1 :]
        if left:
            room = budget**2 - error(taken) ** 2
            left = [x for x in left if alone[x] ** 2 <= room]
    return taken
