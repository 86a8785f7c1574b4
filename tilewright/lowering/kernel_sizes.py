"""Sizes in a kernel that have long formulas in the graph: parameters of the kernel instead.

A kernel that sees the formulas of its sizes needs proofs about them and code for them. Of most it needs to know nothing
but that they are sizes: those of its operands become integer parameters ``size0, size1, ...``, and the call gets their
values. So kernels that differ in such formulas only are one kernel. The formulas of sizes that the kernel's own nodes
make out of those are written out, since the code relies on what its results have to do with its operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from tilewright.core.arith.expr import IntExpr, of_atom, var
from tilewright.core.arith.named import MAX_SIZE, Named, named_in, with_named
from tilewright.graph_ir.ir import Group, Value
from tilewright.graph_ir.symbols import map_sizes, value_sizes, value_symbols
from tilewright.tensor_ir.ir import Func

_MAX_WRITTEN = 4 * MAX_SIZE
"""Variables and operations of a formula that is written out."""


class KernelSizes:
    """The parameters of one kernel. ``operands``: the sizes that it is given; ``taken``: other names in it."""

    def __init__(self, operands: Iterable[IntExpr], taken: Iterable[str] = ()) -> None:
        self._operands = frozenset(named_in(operands))
        self._taken = frozenset(taken)
        self._short: dict[Named, IntExpr] = {}
        self._values: dict[str, IntExpr] = {}

    def short(self, e: IntExpr) -> IntExpr:
        """``e`` with parameters for named sizes."""
        return with_named(e, self._of)

    def shape(self, shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        return tuple(map(self.short, shape))

    def arguments(self, func: Func) -> tuple[IntExpr, ...]:
        """What the call gives for the integer parameters of ``func``."""
        return tuple(self.at_the_call(var(d)) for d in func.dims)

    def at_the_call(self, e: IntExpr) -> IntExpr:
        """``e`` with the sizes that the parameters stand for."""
        return e.substitute(self._values)

    def _of(self, a: Named) -> IntExpr:
        if a not in self._short:
            written = None if a in self._operands else self._written(a)
            self._short[a] = self._parameter(a) if written is None else written
        return self._short[a]

    def _written(self, a: Named) -> IntExpr | None:
        """The formula, with those of its parts that are not given; None if it is too long."""
        if any(x not in self._operands and any(y not in self._operands for y in x.inner) for x in a.inner):
            return None
        formula = self.short(a.formula)
        return formula if formula.size <= _MAX_WRITTEN else None

    def _parameter(self, a: Named) -> IntExpr:
        name = next(n for k in count() if (n := f"size{k}") not in self._taken and n not in self._values)
        self._values[name] = of_atom(a)
        return var(name)


def with_parameters(group: Group, values: Mapping[str, Value]) -> tuple[KernelSizes, Mapping[str, Value]]:
    """The parameters of the kernel that computes ``group``, and ``values`` with them in those that the group has to do
    with; the same object if it needs none."""
    made = {o for n in group.nodes for o in n.outputs}
    found = {x: values[x] for n in group.nodes for x in (*n.inputs, *n.outputs) if x in values}
    operands = (d for x, v in found.items() if x not in made for d in value_sizes(v))
    sizes = KernelSizes(operands, {s for v in found.values() for s in value_symbols(v)})
    changed = {x: map_sizes(v, sizes.short) for x, v in found.items() if named_in(value_sizes(v))}
    return sizes, {**values, **changed} if changed else values
