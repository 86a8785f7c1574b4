"""What a model takes for granted of sizes that only a call tells, and how a call answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from tilewright.core.arith.bounds import Ranges, interval
from tilewright.core.arith.expr import IntExpr


class Ones(Enum):
    """Which of two sizes may be 1 instead of equal to the other. APART: none, they must differ (the second is 1)."""

    NEITHER = "=="
    RIGHT = "<-"
    EITHER = "<>"
    APART = "!="


class Sizes(Enum):
    """How two sizes turned out."""

    EQUAL = "equal"
    BROADCAST = "broadcast"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Assumption:
    """Two sizes that ``node`` takes to be equal, and that only a call can compare.

    ``ones``: where one may be 1 by the operator's definition; its elements are then repeated. Code that does not repeat
    them needs the sizes to be equal all the same. Likewise a size that ``node`` takes to differ from 1, or it would
    drop the dimension: code for a fixed rank needs it.
    """

    left: IntExpr
    right: IntExpr
    node: str
    ones: Ones = Ones.NEITHER

    def symbols(self) -> frozenset[str]:
        """The symbols whose values decide."""
        return self.left.free_vars() | self.right.free_vars()

    def met_by(self, env: Mapping[str, int]) -> Sizes:
        """The sizes compared, for these values of the symbols."""
        a, b = _value(self.left, env), _value(self.right, env)
        if self.ones is Ones.APART:
            return Sizes.BROADCAST if a == b else Sizes.EQUAL
        if a == b and a is not None:
            return Sizes.EQUAL
        repeated = (b == 1 and self.ones is not Ones.NEITHER) or (a == 1 and self.ones is Ones.EITHER)
        return Sizes.BROADCAST if repeated else Sizes.UNFIT

    def narrowed(self, ranges: Ranges) -> Assumption | None:
        """The same where sizes have ranges: what is never 1 is not expected to be. None: it holds in all calls."""
        left, right = (_may_be_one(e, ranges) for e in (self.left, self.right))
        if self.ones is Ones.APART:
            return self if left else None
        if self.ones is Ones.EITHER and left and not right:
            return replace(self, left=self.right, right=self.left, ones=Ones.RIGHT)
        if self.ones is Ones.EITHER and right and not left:
            return replace(self, ones=Ones.RIGHT)
        may = right or (left and self.ones is Ones.EITHER)
        return self if may else replace(self, ones=Ones.NEITHER)

    def refusal(self, env: Mapping[str, int]) -> str:
        """The message for a call whose sizes do not fit."""
        values = ", ".join(f"{s}={env[s]}" for s in sorted(self.symbols()))
        if self.ones is Ones.APART:
            return f"node {self.node!r}: expected a dimension other than {self.right}, got {self.left} ({values})"
        return (
            f"node {self.node!r}: expected dimensions that agree, got {self.left} = {_value(self.left, env)} and "
            f"{self.right} = {_value(self.right, env)} ({values})"
        )


def _may_be_one(size: IntExpr, ranges: Ranges) -> bool:
    low, high = interval(size, ranges)
    return (low is None or low <= 1) and (high is None or high >= 1)


def _value(size: IntExpr, env: Mapping[str, int]) -> int | None:
    """The number, or None where it divides by a size that is 0."""
    try:
        return size.evaluate(env)
    except ZeroDivisionError:
        return None
