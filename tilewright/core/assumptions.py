"""What a model takes for granted of sizes that only a call tells, and how a call answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from tilewright.core.intexpr import IntExpr


class Ones(Enum):
    """Which of two sizes may be 1 instead of equal to the other."""

    NEITHER = "=="
    RIGHT = "<-"
    EITHER = "<>"


class Sizes(Enum):
    """How two sizes turned out."""

    EQUAL = "equal"
    BROADCAST = "broadcast"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Assumption:
    """Two sizes that ``node`` takes to be equal, and that only a call can compare.

    ``ones``: where one may be 1 by the operator's definition; its elements are then repeated. Code that does not repeat
    them needs the sizes to be equal all the same.
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
        a, b = self.left.evaluate(env), self.right.evaluate(env)
        if a == b:
            return Sizes.EQUAL
        repeated = (b == 1 and self.ones is not Ones.NEITHER) or (a == 1 and self.ones is Ones.EITHER)
        return Sizes.BROADCAST if repeated else Sizes.UNFIT

    def refusal(self, env: Mapping[str, int]) -> str:
        """The message for a call whose sizes do not fit."""
        values = ", ".join(f"{s}={env[s]}" for s in sorted(self.symbols()))
        return (
            f"node {self.node!r}: expected dimensions that agree, got {self.left} = {self.left.evaluate(env)} and "
            f"{self.right} = {self.right.evaluate(env)} ({values})"
        )
