"""What may be placed inside a larger value, and the edits that place it.

A value is placed when native kernels alone write and read it: they see it through a :class:`SubView`. Its larger value
then needs no code: the node that makes it (a Concat, a Pad) stands in a group that runs as ``placed``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.core.arith.expr import IntExpr
from tilewright.graph_ir.fused.shape_program import SIZES
from tilewright.graph_ir.fused.update_in_place import copies_in_place
from tilewright.graph_ir.inference import constant_value
from tilewright.graph_ir.ir import Constant, Graph, Group, Node, SubView, TensorType, Value, captured, make_attrs
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.passes.base import PassContext, visible_values


@dataclass
class Placement:
    """The edits of one pass on a fused graph."""

    graph: Graph
    ctx: PassContext
    constants: dict[str, Constant] = field(default_factory=dict)
    _before: dict[str, list[Node]] = field(default_factory=dict)
    _behind: dict[str, list[Node]] = field(default_factory=dict)
    _replaced: dict[str, tuple[Group, ...]] = field(default_factory=dict)
    _first: dict[str, list[Group]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph, ctx = self.graph, self.ctx
        self.groups: Sequence[Group] = graph.groups or ()
        self.values = visible_values(graph, ctx)
        self.makers = {o: g for g in self.groups for o in g.outputs}
        self.readers: dict[str, list[Group]] = {}
        for g in self.groups:
            for i in g.inputs:
                self.readers.setdefault(i, []).append(g)
        nodes = [n for g in self.groups for n in g.nodes]
        self._own = {*graph.outputs, *shared_with_outputs(graph)}
        self._own.update(i for n in nodes for _, body in n.subgraphs() for i in captured(body))
        if ctx.backend is not None:
            constants = graph.constants
            self._own.update(v for n in nodes for v in ctx.backend.checked_indices(n, self.values, constants))

    def is_movable(self, name: str) -> bool:
        """True if only native kernels write and read the value, and its size is known before they run."""
        maker = self.makers.get(name)
        v = self.values.get(name)
        if maker is None or v is None or (maker.runs_as is not RunsAs.KERNEL and not _is_joined(maker)):
            return False
        if name in self._own or v.place is not None:
            return False
        readers = self.readers.get(name, ())
        if any(g.runs_as not in (RunsAs.KERNEL, RunsAs.PLACED) for g in readers):
            return False
        if any(name in n.inputs and n.attr(SIZES) is not None for g in readers for n in g.nodes):
            return False  # the host reads it, to find sizes
        typed = isinstance(v.type, TensorType) and v.type.shape is not None and v.type.dtype.kind not in "sc"
        return typed and v.data is None and not any(n.attr(SIZES) is not None for n in maker.nodes)

    # -- edits --------------------------------------------------------------------------------------------------
    def place(self, name: str, place: SubView) -> None:
        self.values[name] = dataclasses.replace(self.values[name], place=place)

    def add(self, name: str, like: str, shape: tuple[IntExpr, ...]) -> None:
        """A new value with the element type of ``like``."""
        self.values[name] = Value(name, TensorType(self.values[like].dtype, shape))

    def constant(self, name: str, elements: Sequence[int]) -> None:
        """A new constant, a list of integers."""
        self.constants[name] = Constant(np.array(elements, np.int64))
        self.values[name] = constant_value(name, self.constants[name])

    def copy(self, source: str, result: str, reader: Group) -> None:
        """A kernel that copies ``source`` to ``result`` in front of ``reader``."""
        name = self.ctx.names.fresh(f"copy_{result}")
        node = Node("Identity", (source,), (result,), make_attrs({}), name)
        self._before.setdefault(reader.nodes[0].name, []).append(node)
        self._first.setdefault(reader.name, []).append(Group(name, (node,), (source,), (result,), RunsAs.KERNEL))

    def enlarge(self, node: Node) -> None:
        """A node without code that gives what its first operand now lies in; stands behind that operand."""
        maker = self.makers[node.inputs[0]]
        at = next(n for n in maker.nodes if node.inputs[0] in n.outputs)
        self._behind.setdefault(at.name, []).append(node)
        group = Group(node.name, (node,), node.inputs[:1], node.outputs, RunsAs.PLACED)
        self._replaced[maker.name] = (*self._replaced.get(maker.name, (maker,)), group)

    def replace(self, group: Group, by: Group) -> None:
        behind = self._replaced.get(group.name, (group,))[1:]
        self._replaced[group.name] = (by, *behind)

    def result(self) -> Graph:
        """The graph with all edits; the same object if there were none."""
        if not self._before and not self._replaced:
            return self.graph
        groups: list[Group] = []
        for g in self.groups:
            groups += self._first.get(g.name, ())
            groups += self._replaced.get(g.name, (g,))
        nodes: list[Node] = []
        for n in self.graph.nodes:
            nodes += (*self._before.get(n.name, ()), n, *self._behind.get(n.name, ()))
        for name, place in resolved(self.values).items():
            self.place(name, place)
        own = self.graph.values.keys() | {o for n in nodes for o in n.outputs} | self.constants.keys()
        values = {k: v for k, v in self.values.items() if k in own}
        constants = {**self.graph.constants, **self.constants}
        return self.graph.with_groups(groups, nodes=tuple(nodes), values=values, constants=constants)


def shared_with_outputs(graph: Graph) -> dict[str, str]:
    """Value -> graph output whose memory it shares, for values that reach one through views or updates in place."""
    source = {g.outputs[0]: g.inputs[0] for g in graph.groups or () if g.runs_as is RunsAs.VIEW}
    source |= {output: copy for copy, (output, _) in copies_in_place(graph).items()}
    out: dict[str, str] = {}
    for name in graph.outputs:
        at = name
        while at in source:
            at = source[at]
            out[at] = name
    return out


def _is_joined(group: Group) -> bool:
    return group.runs_as is RunsAs.PLACED and group.nodes[0].op == "Concat"


def resolved(values: Mapping[str, Value]) -> dict[str, SubView]:
    """The places, each in a value that lies in no other."""
    out = {}
    for name, v in values.items():
        place = v.place
        while place is not None:
            out[name] = place
            outer = values[place.root].place
            place = None if outer is None else SubView(outer.root, _added(place.offsets, outer.offsets))
    return out


def _added(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))
