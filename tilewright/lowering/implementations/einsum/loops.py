"""The definition: one reduction over the labels that the result does not have, of any number of operands."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core.arith.expr import IntExpr
from tilewright.lowering.context import LowerContext, wide
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.implementations.base import Implementation, assumed
from tilewright.lowering.implementations.einsum.labels import labels_of
from tilewright.lowering.implementations.gemm.cost import MANY
from tilewright.tensor_ir.compute import Reduction, Tensor, Val, compute, sum_over


def _lower(c: LowerContext) -> tuple[Tensor, ...]:
    labels, out = labels_of(c), c.output()
    operands = [c.input(i) for i in range(len(c.inputs))]
    real = wide(out.dtype)
    axes = {x: c.axis(labels.sizes[x], "k") for x in labels.summed}

    def element(i: Sequence[IntExpr]) -> Val:
        at = {**dict(zip(labels.result, i, strict=True)), **{x: r.index for x, r in axes.items()}}
        total, *others = [labels.read(t, n, at).cast(real) for n, t in enumerate(operands)]
        for factor in others:
            total = total * factor
        return total

    names = axis_names(len(out.shape))
    if not axes:
        return (compute(c.name("einsum"), out.shape, lambda *i: element(i).cast(out.dtype), axis_names=names),)

    def reduced(*i: IntExpr) -> Reduction:
        return sum_over(element(i), *axes.values())

    acc = compute(c.name("einsum"), out.shape, reduced, axis_names=names)
    if real == out.dtype:
        return (acc,)
    c.stage(acc)
    return (compute(c.name("einsum_out"), out.shape, lambda *i: acc[i].cast(out.dtype), axis_names=names),)


def _cost(facts: NodeFacts) -> float:
    """Operations on one element at a time, in no register tile."""
    costs, lanes = facts.target.costs, facts.target.lanes(wide(facts.output().dtype).itemsize)
    each = costs.weight_load + costs.multiply_add_rate / costs.operation_rate
    return assumed(tuple(labels_of(facts).sizes.values()), MANY) * each * lanes


LOOPS = Implementation("Einsum", "loops", _lower, _cost)
