"""The graph IR: a network as typed values and nodes in topological order. Data only; nothing here transforms.

Grammar (the text form; :mod:`tilewright.graph_ir.text` prints and parses it)::

    Graph     ::= name, inputs, nodes (topological order), outputs, values, constants
    Node      ::= outputs = op(inputs) {attributes}        an absent optional input or output is ""
    Value     ::= name : Type                              every name that a node, input or constant defines has one
    Group     ::= nodes, inputs, outputs, runs as      in a fused graph, every node that runs is in one
    Type      ::= TensorType(dtype, shape) | SequenceType(element) | OptionalType(element) | UnknownType()
    shape     ::= tuple of core.arith.expr.IntExpr over dimension symbols; None: rank unknown (host values only)
    Attribute ::= int | float | str | DType | tuple of those | Graph (a subgraph) | Constant | None

Operators carry the names and the semantics of the newest ONNX version known to the frontend, which normalises older
versions; operators that ONNX does not have live in the same table (:mod:`tilewright.graph_ir.ops`) and say so.
In a graph that was read to be written again (:mod:`tilewright.frontend.keep`), nodes with a domain are foreign: the
table does not know them, nothing changes them, and what they give has the type that the file declares, if any.
Names are unique in a graph and its subgraphs. A subgraph may read values of the graphs around it by name.

``Value.data`` is what is known of a small integer tensor's elements (flattened, row-major) as expressions over
dimension symbols: how shape arithmetic is followed. ``Value.place`` is where a value lies that lies inside another.
Constants are held by reference and are never written to.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tilewright.core.arith.bounds import Ranges
from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.assumptions import Assumption
from tilewright.core.dtypes import DType
from tilewright.core.io.stored import Content, StoredArray, cast_elements, content_of, loaded
from tilewright.graph_ir.graph_table import graph_html
from tilewright.graph_ir.kinds import RunsAs

if TYPE_CHECKING:
    from tilewright.graph_ir.ops.base import OpDef

Shape: TypeAlias = tuple[IntExpr, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype: DType
    shape: Shape | None

    def __str__(self) -> str:
        dims = "?" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.dtype}[{dims}]"


@dataclass(frozen=True, slots=True)
class SequenceType:
    element: Type | None

    def __str__(self) -> str:
        return f"seq({self.element})"


@dataclass(frozen=True, slots=True)
class OptionalType:
    element: Type | None

    def __str__(self) -> str:
        return f"optional({self.element})"


@dataclass(frozen=True, slots=True)
class UnknownType:
    """Of what a foreign node gives and the file does not declare, and of what is computed from it."""

    def __str__(self) -> str:
        return "unknown"


Type: TypeAlias = TensorType | SequenceType | OptionalType | UnknownType


@dataclass(frozen=True, slots=True)
class SubView:
    """Where a value lies: element ``i`` of it is element ``i + offsets`` of the value ``root``."""

    root: str
    offsets: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.root}[{', '.join(map(str, self.offsets))}]"


@dataclass(frozen=True, slots=True)
class Value:
    """A name with its type and, for shape arithmetic, its symbolically known elements.

    ``known``: the numbers in a list of integers of which other elements (None) are not known; text leaves it out.
    ``place``: None for a value with memory of its own.
    """

    name: str
    type: Type
    data: tuple[IntExpr, ...] | None = None
    known: tuple[int | None, ...] | None = None
    place: SubView | None = None

    @property
    def dtype(self) -> DType:
        """Element type of a tensor value."""
        if not isinstance(self.type, TensorType):
            raise TypeError(f"{self.name}: {self.type} is not a tensor")
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        """Shape of a tensor value of known rank."""
        if not isinstance(self.type, TensorType) or self.type.shape is None:
            raise TypeError(f"{self.name}: {self.type} has no known rank")
        return self.type.shape


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """An array held by reference. Never written to; compared by identity. A large one of a file is not held: it is read
    whenever its elements are asked for, so that who needs its form only does not ask for them."""

    content: Content

    def __post_init__(self) -> None:
        if isinstance(self.content, np.ndarray):
            object.__setattr__(self, "content", content_of(self.content))

    @property
    def array(self) -> np.ndarray:
        """The elements. Raises ModelError if they have to be read from a file that has changed."""
        return loaded(self.content)

    def transposed(self) -> Constant:
        """The constant with its axes in reverse order: the same memory, or the same part of the file."""
        c = self.content
        return Constant(c.transposed() if isinstance(c, StoredArray) else c.T)

    def converted(self, dtype: np.dtype) -> Constant:
        """The constant in another element type: what is in a file is converted when it is read."""
        c = self.content
        return Constant(c.converted(dtype) if isinstance(c, StoredArray) else cast_elements(c, dtype))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.content.shape

    @property
    def dtype(self) -> np.dtype:
        return self.content.dtype

    @property
    def size(self) -> int:
        return math.prod(self.content.shape)

    @property
    def nbytes(self) -> int:
        return self.content.nbytes


Attribute: TypeAlias = (
    "int | float | str | DType | Graph | Constant | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | None"
)


@dataclass(frozen=True, slots=True)
class Node:
    """``outputs = op(inputs)``. ``name`` is unique in the graph and is what messages show.

    ``attrs`` is sorted by key. ``domain`` is "" for ONNX's own and our operators, else the node is foreign.
    ``definition``: of an operator that a user brought along (:mod:`tilewright.graph_ir.user_operators`), which no table
    has; text leaves it out.
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Attribute], ...] = ()
    name: str = ""
    domain: str = ""
    definition: OpDef | None = field(default=None, compare=False, repr=False)

    def attr(self, key: str, default: Attribute = None) -> Attribute:
        """The attribute ``key``, or ``default`` if the node has none."""
        for k, v in self.attrs:
            if k == key:
                return v
        return default

    def with_attrs(self, **changes: Attribute) -> Node:
        """The node with some attributes set."""
        merged = dict(self.attrs) | changes
        return dataclasses.replace(self, attrs=make_attrs(merged))

    def subgraphs(self) -> list[tuple[str, Graph]]:
        """Names and graphs of the attributes that are graphs."""
        return [(k, v) for k, v in self.attrs if isinstance(v, Graph)]


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that run as one, in topological order, with what goes in and out."""

    name: str
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    runs_as: RunsAs


@dataclass(frozen=True, slots=True, eq=False)
class Graph:
    """A network. ``values`` has an entry for every name defined here; ``constants`` maps names to arrays.

    ``groups``: None until nodes are fused; then every node that runs is in one. Groups stand in the order in which they
    run, nodes in one in which each stands behind those whose results or shapes it reads.

    ``assumptions``: what the graph's own nodes need of dimension symbols; the runtime checks it at each call.
    ``broadcasts``: dims of unknown relation broadcast, and operands that have a dim which may be 1 go through
    ``BroadcastTo``; False: such dims are taken to be equal. ``ranges``: dimension symbols of inputs with the least and
    the greatest size that a call may bring, both included, as the user says.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    values: Mapping[str, Value]
    constants: Mapping[str, Constant] = field(default_factory=dict)
    assumptions: tuple[Assumption, ...] = ()
    broadcasts: bool = False
    groups: tuple[Group, ...] | None = None
    ranges: tuple[tuple[str, int, int], ...] = ()

    def with_groups(self, groups: Iterable[Group], **changes: object) -> Graph:
        """The fused graph with ``groups``, its nodes in the form that these have, and other fields replaced."""
        groups = tuple(groups)
        formed = {n.name: n for g in groups for n in g.nodes}
        new = self.replace(**changes)
        return new.replace(groups=groups, nodes=tuple(formed.get(n.name, n) for n in new.nodes))

    def with_nodes(self, nodes: Iterable[Node]) -> Graph:
        """The graph with other forms of its nodes, in its groups too."""
        formed = {n.name: n for n in nodes}
        groups = self.groups
        if groups is not None:
            groups = tuple(dataclasses.replace(g, nodes=tuple(formed[n.name] for n in g.nodes)) for g in groups)
        return self.replace(nodes=tuple(formed.values()), groups=groups)

    def replace(self, **changes: object) -> Graph:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def bounds(self) -> Ranges:
        """The ranges as analyses of expressions take them."""
        return {name: (const(low), const(high)) for name, low, high in self.ranges}

    def _repr_html_(self) -> str:
        return graph_html(self)

    def producers(self) -> dict[str, Node]:
        """Value name -> the node that defines it."""
        return {o: n for n in self.nodes for o in n.outputs if o}

    def consumers(self) -> dict[str, list[Node]]:
        """Value name -> nodes that read it, in order, a node once per use; subgraph reads count for the outer node."""
        out: dict[str, list[Node]] = {}
        for n in self.nodes:
            for i in node_reads(n):
                out.setdefault(i, []).append(n)
        return out


def make_attrs(attrs: Mapping[str, Attribute]) -> tuple[tuple[str, Attribute], ...]:
    """Attributes in the order that nodes keep them."""
    return tuple(sorted(attrs.items()))


def captured(graph: Graph) -> tuple[str, ...]:
    """Names that a subgraph reads from the graphs around it, in first-use order."""
    defined = set(graph.inputs) | set(graph.constants)
    out: dict[str, None] = {}
    for n in graph.nodes:
        for name in node_reads(n):
            if name not in defined:
                out[name] = None
        defined.update(n.outputs)
    for name in graph.outputs:
        if name not in defined:
            out[name] = None
    return tuple(out)


def node_reads(node: Node) -> Iterator[str]:
    """Names that a node reads: its inputs, then what its subgraphs capture."""
    yield from (i for i in node.inputs if i)
    for _, g in node.subgraphs():
        yield from captured(g)


def walk_graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and all its subgraphs, outermost first."""
    yield graph
    for n in graph.nodes:
        for _, g in n.subgraphs():
            yield from walk_graphs(g)
