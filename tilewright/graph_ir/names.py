"""Names and symbols that a graph does not have yet."""

from __future__ import annotations

from tilewright.graph_ir.ir import Graph, walk_graphs
from tilewright.graph_ir.ops.base import FreshSymbols
from tilewright.graph_ir.symbols import symbols_in


class NameSupply:
    """Gives names that occur nowhere in a graph or its subgraphs: ``hint``, ``hint_1``, ``hint_2``, ...

    ``symbols``: gives symbols that occur nowhere either.
    """

    __slots__ = ("_next", "_taken", "symbols")

    def __init__(self, graph: Graph) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        symbols: set[str] = set()
        for g in walk_graphs(graph):
            symbols |= symbols_in(g.values)
            self._taken.update(g.values, g.constants, g.inputs)
            for n in g.nodes:
                self._taken.add(n.name)
                self._taken.update(n.outputs)
        self.symbols = FreshSymbols(symbols, graph.broadcasts)

    def fresh(self, hint: str) -> str:
        """A new name that starts with ``hint``."""
        name = hint
        while name in self._taken or not name:
            k = self._next.get(hint, 0) + 1
            self._next[hint] = k
            name = f"{hint}_{k}"
        self._taken.add(name)
        return name
