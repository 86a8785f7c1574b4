"""What the equation of an Einsum says: the labels of each operand and of the result, and their sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.graph_ir.ops.layers.linear import parse_equation
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.geometry.product import ProductSizes
from tilewright.tensor_ir.compute import Tensor, Val


@dataclass(frozen=True, slots=True)
class Labels:
    """``terms``: of the dimensions of each operand; ``result``: of those of the result; ``sizes``: by label."""

    terms: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: Mapping[str, IntExpr]

    @property
    def summed(self) -> list[str]:
        """Those that the result does not have."""
        return [x for x in self.sizes if x not in self.result]

    def read(self, t: Tensor, operand: int, at: Mapping[str, IntExpr]) -> Val:
        """The element of an operand at a place by label."""
        places = zip(self.terms[operand], t.shape, strict=True)
        return t[tuple(const(0) if d == 1 else at[label] for label, d in places)]

    def extent(self, labels: list[str]) -> IntExpr:
        return product(self.sizes[x] for x in labels)


def labels_of(facts: NodeFacts) -> Labels:
    """The labels of an Einsum node."""
    shapes = [facts.input_shape(i) for i in range(len(facts.input_values))]
    terms, result = parse_equation(facts.attr_str("equation", ""), [len(s) for s in shapes])
    sizes: dict[str, IntExpr] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for label, d in zip(term, shape, strict=True):
            sizes[label] = d if label not in sizes or sizes[label] == 1 else sizes[label]
    return Labels(tuple(map(tuple, terms)), tuple(result), sizes)


@dataclass(frozen=True, slots=True)
class ProductLabels:
    """The labels of a product of two operands: of both and the result, of its rows, of its columns, of the sums."""

    batch: list[str]
    rows: list[str]
    columns: list[str]
    summed: list[str]

    def sizes(self, labels: Labels) -> ProductSizes:
        """As those of a product of matrices."""
        lead = tuple(labels.sizes[x] for x in self.batch)
        rank = len(lead) + 2
        m, k, n = (labels.extent(x) for x in (self.rows, self.summed, self.columns))
        return ProductSizes(lead, m, k, n, rank, rank, False)


def product_refusal(labels: Labels) -> str | None:
    """Why the node is not a product of two operands."""
    if len(labels.terms) != 2:
        return f"{len(labels.terms)} operands, expected two"
    a, b = (set(t) for t in labels.terms)
    if any(len(set(t)) != len(t) for t in (*labels.terms, labels.result)):
        return "a label stands twice in a term"
    if not (a & b) - set(labels.result):
        return "no label of both operands is summed"
    return None if a ^ b <= set(labels.result) else "a label of one operand alone is summed"


def product_labels(labels: Labels) -> ProductLabels:
    """Those of a node that :func:`product_refusal` does not refuse."""
    a, b = labels.terms
    return ProductLabels(
        [x for x in labels.result if x in a and x in b], [x for x in labels.result if x in a and x not in b],
        [x for x in labels.result if x in b and x not in a], [x for x in a if x in b and x not in labels.result],
    )  # fmt: skip
