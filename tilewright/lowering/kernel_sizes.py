"""Sizes in a kernel that have long formulas in the graph, or depend on data: parameters of the kernel instead.

A kernel that sees the formulas of its sizes needs proofs about them and code for them. Of most it needs to know nothing
but that they are sizes: those of its operands become integer parameters ``size0, size1, ...``, and the call gets their
values. So kernels that differ in such formulas only are one kernel. The formulas of sizes that the kernel's own nodes
make out of those are written out, since the code relies on what its results have to do with its operands.

A size that depends on data has a symbol of its own, another one each time (:mod:`tilewright.graph_ir.inference`). A
detector does the same for each of its classes, on as many boxes as there are. Such symbols become parameters, too,
numbered as they occur, so that all classes share their kernels. Symbols of the model's inputs keep their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import count

from tilewright.core.arith.expr import IntExpr, of_atom, var
from tilewright.core.arith.named import MAX_SIZE, Named, named_in, with_named
from tilewright.graph_ir.fused.shape_program import BEGIN
from tilewright.graph_ir.ir import Group, Value
from tilewright.graph_ir.symbols import map_sizes, value_sizes, value_symbols
from tilewright.tensor_ir.ir import Func

_MAX_WRITTEN = 4 * MAX_SIZE
"""Variables and operations of a formula that is written out."""


class KernelSizes:
    """The parameters of one kernel. ``operands``: the sizes that it is given; ``taken``: other names in it.
    ``kept``: the symbols that keep their names, None for all."""

    def __init__(
        self, operands: Iterable[IntExpr], taken: Iterable[str] = (), kept: Collection[str] | None = None
    ) -> None:
        self._operands = frozenset(named_in(operands))
        self._taken = frozenset(taken)
        self._kept = kept
        self._renamed: dict[str, IntExpr] = {}
        self._short: dict[Named, IntExpr] = {}
        self._values: dict[str, IntExpr] = {}

    def short(self, e: IntExpr) -> IntExpr:
        """``e`` with parameters for named sizes, and for symbols that do not keep their names."""
        return self._with_symbols(with_named(e, self._of))

    def shape(self, shape: Sequence[IntExpr]) -> tuple[IntExpr, ...]:
        return tuple(map(self.short, shape))

    def arguments(self, func: Func) -> tuple[IntExpr, ...]:
        """What the call gives for the integer parameters of ``func``."""
        return tuple(self.at_the_call(var(d)) for d in func.dims)

    def at_the_call(self, e: IntExpr) -> IntExpr:
        """``e`` with the sizes that the parameters stand for."""
        return e.substitute(self._values)

    def _with_symbols(self, e: IntExpr) -> IntExpr:
        if self._kept is None or not e.terms:
            return e
        for s in sorted(e.free_vars()):
            if s not in self._kept and s not in self._values and s not in self._renamed:
                self._renamed[s] = self._parameter(var(s))
        return e.substitute(self._renamed) if self._renamed else e

    def _of(self, a: Named) -> IntExpr:
        if a not in self._short:
            written = None if a in self._operands else self._written(a)
            self._short[a] = self._parameter(of_atom(a)) if written is None else written
        return self._short[a]

    def _written(self, a: Named) -> IntExpr | None:
        """The formula, with those of its parts that are not given; None if it is too long."""
        if any(x not in self._operands and any(y not in self._operands for y in x.inner) for x in a.inner):
            return None
        formula = self.short(a.formula)
        return formula if formula.size <= _MAX_WRITTEN else None

    def _parameter(self, value: IntExpr) -> IntExpr:
        name = next(n for k in count() if (n := f"size{k}") not in self._taken and n not in self._values)
        self._values[name] = value
        return var(name)


def with_parameters(
    group: Group, values: Mapping[str, Value], kept: Collection[str]
) -> tuple[KernelSizes, Mapping[str, Value]]:
    """The parameters of the kernel that computes ``group``, and ``values`` with them in those that the group has to do
    with; the same object if it needs none. ``kept``: the symbols of the model's inputs.

    All symbols of a group keep their names if one of its Slices knows by such a name where it begins."""
    made = {o for n in group.nodes for o in n.outputs}
    found = {x: values[x] for n in group.nodes for x in (*n.inputs, *n.outputs) if x in values}
    operands = (d for x, v in found.items() if x not in made for d in value_sizes(v))
    used = {s for v in found.values() for s in value_symbols(v)}
    named = any(n.attr(BEGIN) is not None for n in group.nodes)
    sizes = KernelSizes(operands, used, None if named else kept)
    changed = {x: new for x, v in found.items() if (new := map_sizes(v, sizes.short)) != v}
    return sizes, {**values, **changed} if changed else values
