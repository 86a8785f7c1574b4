"""Types of values while a graph is still being built, for the few converters that need a rank.

Whole-graph inference comes after conversion. Until then a type is worked out when it is asked for, from the nodes in
front of it. Sizes found here may use one symbol for different unknowns, so only element types, ranks and fixed sizes
may be relied on.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.errors import ModelError
from tilewright.graph_ir.inference import infer_node
from tilewright.graph_ir.ir import Constant, Node, Type, Value


class Lookahead:
    """Types on demand. ``values`` and ``producers`` grow as the graphs do."""

    def __init__(self, constants: Mapping[str, Constant]) -> None:
        self.values: dict[str, Value] = {}
        self.producers: dict[str, Node] = {}
        self._constants = constants
        self._unknown: set[str] = set()

    def type(self, name: str) -> Type | None:
        """The type of a value, or None where it cannot be told yet."""
        stack = [name]
        while stack:
            top = stack[-1]
            if top in self.values or top in self._unknown:
                stack.pop()
                continue
            node = self.producers.get(top)
            if node is None or any(True for _ in node.subgraphs()):
                self._unknown.add(top)
                continue
            waiting = [i for i in node.inputs if i and i not in self.values and i not in self._unknown]
            if waiting:
                stack.extend(waiting)
            else:
                self._infer(node)
        value = self.values.get(name)
        return None if value is None else value.type

    def _infer(self, node: Node) -> None:
        if not any(i in self._unknown for i in node.inputs):
            try:
                known = {i: self.values[i] for i in node.inputs if i}
                for v in infer_node(node, known, self._constants):
                    self.values[v.name] = v
            except ModelError:  # told by the inference of the whole graph
                pass
        self._unknown.update(o for o in node.outputs if o and o not in self.values)
