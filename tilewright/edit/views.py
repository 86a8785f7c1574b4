"""What one sees of a graph: nodes and values, by name, and lists of them. Views hold no copy: they show the graph as it
is when they are asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, Protocol, TypeVar

import numpy as np

from tilewright.core.dtypes import DType
from tilewright.edit.operations.lookup import require_node, require_value
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, Shape, TensorType, Type, Value


class Seen(Protocol):
    """What views look at."""

    @property
    def graph(self) -> Graph: ...

    @property
    def raw(self) -> Graph:
        """The graph as it is, perhaps before its types are inferred."""

    def producer_of(self, value: str) -> Node | None: ...

    def readers_of(self, value: str) -> list[Node]: ...


@dataclass(frozen=True, slots=True)
class ValueView:
    """A value of a graph: an input, a constant or a result. Raises InputError once there is none of its name."""

    owner: Seen
    name: str

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"

    @property
    def value(self) -> Value:
        """What the graph IR has of it."""
        graph = self.owner.graph
        return graph.values[require_value(graph, self.name, "value")]

    @property
    def type(self) -> Type:
        return self.value.type

    @property
    def dtype(self) -> DType:
        """Element type. Raises TypeError for what is no tensor."""
        return self.value.dtype

    @property
    def shape(self) -> Shape | None:
        """Sizes, numbers or expressions of dimensions; None if the rank is not known."""
        t = self.type
        return t.shape if isinstance(t, TensorType) else None

    @property
    def is_input(self) -> bool:
        return self.name in self.owner.raw.inputs

    @property
    def is_output(self) -> bool:
        return self.name in self.owner.raw.outputs

    @property
    def is_constant(self) -> bool:
        return self.name in self.owner.raw.constants

    @property
    def constant(self) -> Constant | None:
        """The constant that it is; None for another value."""
        return self.owner.raw.constants.get(self.name)

    @property
    def array(self) -> np.ndarray | None:
        """The elements of a constant, which must not be written to; None for another value."""
        found = self.constant
        return None if found is None else found.array

    @property
    def producer(self) -> NodeView | None:
        """The node that gives it; None for inputs and constants."""
        node = self.owner.producer_of(self.name)
        return None if node is None else NodeView(self.owner, node.name)

    @property
    def consumers(self) -> list[NodeView]:
        """The nodes that read it, each once, those included whose subgraphs do."""
        return [NodeView(self.owner, n.name) for n in self.owner.readers_of(self.name)]


@dataclass(frozen=True, slots=True)
class NodeView:
    """A node of a graph. Raises InputError once there is none of its name."""

    owner: Seen
    name: str

    def __str__(self) -> str:
        n = self.node
        op = f"{n.domain}::{n.op}" if n.domain else n.op
        return f"{', '.join(n.outputs)} = {op}({', '.join(n.inputs)})"

    @property
    def node(self) -> Node:
        """What the graph IR has of it."""
        return require_node(self.owner.raw, self.name, "node")

    @property
    def op(self) -> str:
        return self.node.op

    @property
    def domain(self) -> str:
        return self.node.domain

    @property
    def attrs(self) -> Mapping[str, Attribute]:
        """Attributes by name; ``set_attrs`` of the graph changes them."""
        return dict(self.node.attrs)

    @property
    def inputs(self) -> tuple[ValueView | None, ...]:
        """The values that it reads; None for an absent one."""
        return tuple(ValueView(self.owner, i) if i else None for i in self.node.inputs)

    @property
    def outputs(self) -> tuple[ValueView | None, ...]:
        """The values that it gives; None for one that nobody asked for."""
        return tuple(ValueView(self.owner, o) if o else None for o in self.node.outputs)

    @property
    def output(self) -> ValueView:
        """Its first result."""
        return ValueView(self.owner, next(o for o in self.node.outputs if o))

    @property
    def producers(self) -> list[NodeView]:
        """The nodes whose results it reads, each once."""
        found = (self.owner.producer_of(i) for i in self.node.inputs if i)
        return [NodeView(self.owner, name) for name in dict.fromkeys(n.name for n in found if n is not None)]

    @property
    def consumers(self) -> list[NodeView]:
        """The nodes that read its results, each once."""
        readers = (n for o in self.node.outputs if o for n in self.owner.readers_of(o))
        return [NodeView(self.owner, name) for name in dict.fromkeys(n.name for n in readers)]


V = TypeVar("V", NodeView, ValueView)


@dataclass(frozen=True, slots=True)
class Views(Generic[V]):
    """Nodes or values in the order of the graph, by place or by name."""

    names: tuple[str, ...]
    view: Callable[[str], V]
    require: Callable[[object], object]

    def __len__(self) -> int:
        return len(self.names)

    def __iter__(self) -> Iterator[V]:
        return map(self.view, self.names)

    def __contains__(self, name: object) -> bool:
        return (name.name if isinstance(name, NodeView | ValueView) else name) in self.names

    def __getitem__(self, key: str | int) -> V:
        """The one of that name, or at that place. Raises InputError for a name that is none, IndexError."""
        if isinstance(key, int):
            return self.view(self.names[key])
        if key not in self.names:
            self.require(key)
        return self.view(key)

    def __repr__(self) -> str:
        return f"[{', '.join(self.names)}]"


def name_fits(name: str, pattern: str | None) -> bool:
    """True for a name of the form ``pattern``, in which ``*`` stands for any text."""
    return pattern is None or fnmatchcase(name, pattern)
