"""Operators of your own: the value, and the vocabulary of type inference and formulas (docs/own-operators.md).

>>> from tilewright.operators import Operator, PatternKind, elementwise, same
>>> cube = Operator(
...     "com.example", "Cube", infer=same, reference=lambda x: x**3, kind=PatternKind.BROADCAST,
...     lower=lambda c: elementwise(c, lambda x: x * x * x),
... )
>>> cube.qualified
'com.example::Cube'
"""

from tilewright.graph_ir.kinds import ElementCost, PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, tensor
from tilewright.graph_ir.ops.elementwise import same
from tilewright.lowering.context import LowerContext
from tilewright.lowering.formulas.elementwise import axis_names, elementwise
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.operator import Operator
from tilewright.tensor_ir.compute import (
    compute,
    constant,
    max_over,
    maximum,
    min_over,
    minimum,
    op,
    prod_over,
    reduce_axis,
    select,
    sum_over,
)

__all__ = [
    "ElementCost", "Implementation", "InferContext", "Inferred", "LowerContext", "Operator", "PatternKind",
    "axis_names", "compute", "constant", "elementwise", "max_over", "maximum", "min_over", "minimum", "op",
    "prod_over", "reduce_axis", "same", "select", "sum_over", "tensor",
]  # fmt: skip
