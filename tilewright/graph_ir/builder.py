"""GraphBuilder: graphs in a few lines, for tests and passes.

>>> import numpy as np
>>> b = GraphBuilder("g")
>>> x = b.input("x", "float32", ("n", 4))
>>> y = b.op("MatMul", x, np.ones((4, 3), np.float32))
>>> str(b.build(b.op("Relu", y)).values["Relu_1"].type)
'float32[n, 3]'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_expr
from tilewright.core.arith.parse import parse
from tilewright.core.dtypes import DType
from tilewright.graph_ir.inference import infer_graph
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, TensorType, Type, Value, make_attrs

Dim = int | str | IntExpr
Operand = str | np.ndarray | None


def make_shape(dims: Sequence[Dim]) -> tuple[IntExpr, ...]:
    """Dims from integers, symbols or expressions in text form (``"n"``, ``"2*n"``)."""
    return tuple(parse(d) if isinstance(d, str) else as_expr(d) for d in dims)


class GraphBuilder:
    """Collects inputs, constants and nodes; :meth:`build` gives the inferred graph.

    An operand is a value's name, an array (becomes a constant), or None (an absent optional input).
    """

    def __init__(self, name: str = "graph") -> None:
        self.name = name
        self._inputs: list[str] = []
        self._nodes: list[Node] = []
        self._values: dict[str, Value] = {}
        self._constants: dict[str, Constant] = {}
        self._taken: set[str] = set()

    def input(self, name: str, dtype: str | DType, shape: Sequence[Dim]) -> str:
        """Declare a tensor input."""
        dt = dtypes.from_name(dtype) if isinstance(dtype, str) else dtype
        return self.typed_input(name, TensorType(dt, make_shape(shape)))

    def typed_input(self, name: str, type_: Type) -> str:
        """Declare an input of any type."""
        self._taken.add(name)
        self._inputs.append(name)
        self._values[name] = Value(name, type_)
        return name

    def constant(self, array: np.ndarray, name: str | None = None) -> str:
        """Declare a constant."""
        name = self._fresh("c") if name is None else name
        self._taken.add(name)
        self._constants[name] = Constant(array)
        return name

    def op(self, op: str, *operands: Operand, **attrs: Attribute) -> str:
        """Add a node with one output, named ``<op>_<number>``; gives the output's name."""
        return self._add(op, operands, 1, "", attrs)[0]

    def ops(
        self, op: str, *operands: Operand, outputs: int | Sequence[str] = 1, domain: str = "", **attrs: Attribute
    ) -> tuple[str, ...]:
        """Add a node with several outputs (a count or their names)."""
        return self._add(op, operands, outputs, domain, attrs)

    def _add(
        self,
        op: str,
        operands: Sequence[Operand],
        outputs: int | Sequence[str],
        domain: str,
        attrs: Mapping[str, Attribute],
    ) -> tuple[str, ...]:
        inputs = tuple("" if x is None else x if isinstance(x, str) else self.constant(x) for x in operands)
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = tuple(self._fresh(op) for _ in range(outputs)) if isinstance(outputs, int) else tuple(outputs)
        self._taken.update(n for n in names if n)
        name = next(n for n in names if n)
        kept = {k: v for k, v in attrs.items() if v is not None}
        self._nodes.append(Node(op, inputs, names, make_attrs(kept), f"n_{name}", domain))
        return names

    def build(self, *outputs: str, infer: bool = True) -> Graph:
        """The graph with these outputs, inferred unless told otherwise (a subgraph is inferred with its parent)."""
        g = Graph(self.name, tuple(self._inputs), outputs, tuple(self._nodes), self._values, self._constants)
        return infer_graph(g) if infer else g

    def _fresh(self, hint: str) -> str:
        i = len(self._nodes) if hint != "c" else len(self._constants)
        while (name := f"{hint}_{i}") in self._taken:
            i += 1
        self._taken.add(name)
        return name
