"""Names that a graph does not have yet."""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, walk_graphs


class NameSupply:
    """Gives names that occur nowhere in a graph or its subgraphs: ``hint``, ``hint_1``, ``hint_2``, ..."""

    __slots__ = ("_next", "_taken")

    def __init__(self, graph: Graph) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        for g in walk_graphs(graph):
            self._taken.update(g.values, g.constants, g.inputs)
            for n in g.nodes:
                self._taken.add(n.name)
                self._taken.update(n.outputs)

    def fresh(self, hint: str) -> str:
        """A new name that starts with ``hint``."""
        name = hint
        while name in self._taken or not name:
            k = self._next.get(hint, 0) + 1
            self._next[hint] = k
            name = f"{hint}_{k}"
        self._taken.add(name)
        return name
