"""What an implementation is: a name, when it applies, what it costs, how exact it is, and its formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import UnsupportedError
from tilewright.lowering.context import LowerContext
from tilewright.lowering.facts import NodeFacts
from tilewright.tensor_ir.compute import Tensor

ATTRIBUTE = "implementation"
"""The attribute of a node that names what computes it."""

ONE_BY_ONE = 4.0
"""How much longer it takes to multiply one by one, without packing, than multiply-adds in tiles."""


def always(facts: NodeFacts) -> str | None:
    """For an implementation that computes every node of its operator."""
    return None


@dataclass(frozen=True, slots=True)
class Implementation:
    """One way to compute a node of ``op``.

    ``op``: the operator. ``name``: what pins, records and ``explain`` call it. ``lower``: the formulas. ``cost``: the
    estimated time, in multiply-adds of a product of matrices that fills the vectors. ``applies``: None, or why this
    node cannot be computed so. ``error``: None if it rounds as the definition does, else the estimated error of float32
    results, in units of a channel's root mean square. ``family``: a name under which several are disabled.
    ``measured``: an estimate alone never chooses it, a record or the user may. ``spreads``: of an infinity or NaN in
    the input there come others than those of the definition.

    >>> from tilewright.lowering.table import TABLE
    >>> [way.name for way in TABLE["MaxPool"]]
    ['direct', 'separable']
    >>> model = tilewright.compile("model.onnx", implementations={"hidden": "unpacked_gemm"})
    """

    op: str
    name: str
    lower: Callable[[LowerContext], tuple[Tensor, ...]]
    cost: Callable[[NodeFacts], float]
    applies: Callable[[NodeFacts], str | None] = always
    error: Callable[[NodeFacts], float] | None = None
    family: str = ""
    measured: bool = False
    spreads: bool = False

    def refusal(self, facts: NodeFacts) -> str | None:
        """Why it does not apply, also where a node of the operator cannot be computed at all."""
        try:
            return self.applies(facts)
        except UnsupportedError as e:
            return str(e)

    def is_disabled(self, names: Collection[str]) -> bool:
        """True if its name, that of its family or :attr:`full_name` is among ``names``."""
        return any(n in names for n in (self.name, self.family, self.full_name))

    @property
    def full_name(self) -> str:
        """That of one operator, where others have an implementation of the same name: ``ConvTranspose.dot_product``."""
        return f"{self.op}.{self.name}"


Table: TypeAlias = Mapping[str, tuple[Implementation, ...]]
"""The implementations by operator. Of two with the same cost the earlier one is chosen."""


def standard(ways: Sequence[Implementation], facts: NodeFacts) -> Implementation:
    """The fastest that applies and rounds as the definition does. Raises UnsupportedError if the node has none."""
    exact = [i for i in ways if i.error is None and not i.measured]
    if len(exact) == 1:
        return exact[0]
    usable = [i for i in exact if i.applies(facts) is None]
    if not usable:
        raise facts.unsupported("; ".join(f"{i.name}: {i.applies(facts)}" for i in exact))
    return min(usable, key=lambda i: i.cost(facts.priced))


def chosen(ways: Sequence[Implementation], facts: NodeFacts) -> Implementation:
    """What the node's attribute names, else the standard. Raises UnsupportedError if it is unknown or does not
    apply."""
    name = facts.node.attr(ATTRIBUTE)
    if name is None:
        return standard(ways, facts)
    found = next((i for i in ways if i.name == name), None)
    if found is None:
        raise facts.unsupported(f"unknown implementation {name!r}, expected one of {', '.join(i.name for i in ways)}")
    if (reason := found.applies(facts)) is not None:
        raise facts.unsupported(f"implementation {name!r}: {reason}")
    return found


def assumed(dims: Sequence[IntExpr], symbol: int) -> int:
    """The product of ``dims``, at least 1; a symbol in them counts as ``symbol``, and so does what has no value."""
    count = 1
    for d in dims:
        try:
            count *= d.evaluate(dict.fromkeys(d.free_vars(), symbol))
        except ZeroDivisionError:
            count *= symbol
    return max(1, count)


def share_of_lanes(n: int, lanes: int) -> float:
    """Useful lanes of the vectors that hold ``n`` elements."""
    return n / (math.ceil(n / lanes) * lanes) if n else 1.0
