"""How many nodes a model has once its functions are expanded, counted without expanding them.

A function that calls another twice, at each of thirty levels, is a small file and a billion nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx

from tilewright.core.errors import ModelError
from tilewright.frontend.build import MAX_NODES
from tilewright.frontend.schemas import FunctionKey, function_key


def require_expandable(model: onnx.ModelProto) -> None:
    """Raises ModelError for a model that expands to more nodes than a build takes."""
    functions = {function_key(f.domain, f.name, f.overload): f for f in model.functions}
    count = _Counter(functions).nodes(model.graph.node)
    if count > MAX_NODES:
        raise ModelError(f"model: with its functions it expands to more than {MAX_NODES} nodes, to {count}")


class _Counter:
    def __init__(self, functions: Mapping[FunctionKey, onnx.FunctionProto]) -> None:
        self._functions = functions
        self._known: dict[FunctionKey, int] = {}

    def nodes(self, nodes: Iterable[onnx.NodeProto]) -> int:
        return sum(self._node(n) for n in nodes)

    def _node(self, node: onnx.NodeProto) -> int:
        inner = sum(self.nodes(a.g.node) for a in node.attribute if a.type == onnx.AttributeProto.GRAPH)
        return inner + self._called(function_key(node.domain, node.op_type, node.overload))

    def _called(self, key: FunctionKey) -> int:
        """Nodes of a function, 1 for any other operator. A function that calls itself is an error of its own."""
        if key in self._functions and key not in self._known:
            self._known[key] = 1
            self._known[key] = self.nodes(self._functions[key].node)
        return self._known.get(key, 1)
