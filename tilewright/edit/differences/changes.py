"""Differences of two graphs as data, as text for people, and as JSON.

``a`` is the graph that was, ``b`` the one that is. A node is told by its name and operator, a value by its name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tilewright.core.dtypes import DType, from_numpy
from tilewright.graph_ir.ir import Attribute, Constant, Graph

_SHOWN = 8
"""Elements of a list that text shows."""
_NAMED = 4
"""Nodes that text names where there may be many."""
_LONGEST = 60
"""Characters of an attribute that text shows."""


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A node: ``conv1 (Conv)``; an operator of another domain than ONNX's own has it in front."""

    name: str
    op: str
    domain: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({self.operator})" if self.name else self.operator

    @property
    def operator(self) -> str:
        return f"{self.domain}::{self.op}" if self.domain else self.op


@dataclass(frozen=True, slots=True)
class InterfaceChange:
    """An input or output of the graph. ``old``, ``new``: its types, None for one that came or went; ``old_place``,
    ``new_place``: where it stands among those that both graphs have. ``source``: where an output came from and comes
    from, if from elsewhere."""

    kind: Literal["input", "output"]
    name: str
    old: str | None
    new: str | None
    old_place: int | None = None
    new_place: int | None = None
    source: tuple[str, str] | None = None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.kind} {self.name} added: {self.new}"
        if self.new is None:
            return f"{self.kind} {self.name} removed: {self.old}"
        parts = [f"{self.old} -> {self.new}"] if self.old != self.new else []
        if self.old_place != self.new_place:
            parts.append(f"place {self.old_place} -> {self.new_place}")
        if self.source is not None:
            parts.append(f"{self.source[0]} -> {self.source[1]}")
        return f"{self.kind} {self.name}: {'; '.join(parts)}"


@dataclass(frozen=True, slots=True)
class ConstantChange:
    """A constant with other contents, or one that nothing reads and only one graph has (a type is None then).
    ``differing``: elements that are not the same, of ``elements``, and ``largest``: the largest difference, both None
    where shapes differ, the second also where elements are not numbers. ``values``: all elements before and after, of a
    very small one. ``readers``: nodes of ``b``."""

    old_name: str
    name: str
    old_type: str | None
    type: str | None
    elements: int
    differing: int | None = None
    largest: float | None = None
    values: tuple[str, str] | None = None
    readers: tuple[NodeRef, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}: {self.what}" + _listed(" (read by ", self.readers, ")")

    @property
    def what(self) -> str:
        """What is different, without whose it is."""
        if self.old_type is None or self.type is None:
            return f"{'added' if self.old_type is None else 'removed'}, {self.type or self.old_type}, read by nothing"
        parts = [f"{self.old_type} -> {self.type}"] if self.old_type != self.type else []
        if self.values is not None:
            parts.append(f"{self.values[0]} -> {self.values[1]}")
        elif self.differing is not None:
            parts.append(f"{self.differing:,} of {self.elements:,} elements differ")
        if self.differing and self.largest is not None and self.values is None:
            parts.append(f"largest difference {self.largest:.3g}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class AttributeChange:
    """``old``, ``new``: None where the node has none. ``constant``: of two constants, what is different in them."""

    key: str
    old: Attribute
    new: Attribute
    constant: ConstantChange | None = None

    def __str__(self) -> str:
        what = f"{attribute_text(self.old)} -> {attribute_text(self.new)}"
        return f"{self.key} {what if self.constant is None else self.constant.what}"


@dataclass(frozen=True, slots=True)
class OperandChange:
    """What a node reads at a place, and read there before; None: nothing. Not where all that is new about it is a node
    inserted or removed on the way."""

    place: int
    old: str | None
    new: str | None

    def __str__(self) -> str:
        return f"operand {self.place}: {self.old or 'none'} -> {self.new or 'none'}"


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that both graphs have. ``subgraphs``: by attribute."""

    old: NodeRef
    node: NodeRef
    attributes: tuple[AttributeChange, ...] = ()
    operands: tuple[OperandChange, ...] = ()
    subgraphs: tuple[tuple[str, GraphDiff], ...] = ()

    def __bool__(self) -> bool:
        """False if names within subgraphs are all that differs."""
        own = self.attributes or self.operands or self.old.operator != self.node.operator
        return bool(own) or any(diff for _, diff in self.subgraphs)

    def __str__(self) -> str:
        operator = (f"{self.old.operator} -> {self.node.operator}",) if self.old.operator != self.node.operator else ()
        parts = (*operator, *map(str, self.attributes), *map(str, self.operands))
        lines = [f"{self.node}: {'; '.join(parts)}".rstrip()]
        for key, diff in self.subgraphs:
            if diff:
                lines += [f"  in {key}:", *(f"    {x}" for line in diff.lines() for x in line.split("\n"))]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node that one of the graphs has, between those that make what it reads and those that read its results: nodes,
    inputs, outputs."""

    node: NodeRef
    behind: tuple[str, ...]
    before: tuple[str, ...]

    def __str__(self) -> str:
        if self.behind and self.before:
            return f"{self.node}{_listed(' between ', self.behind)}{_listed(' and ', self.before)}"
        return f"{self.node}{_listed(' behind ', self.behind)}{_listed(' before ', self.before)}"


@dataclass(frozen=True, slots=True)
class TypeChange:
    """A node's result that has another type. ``follows``: an operand's type has changed too."""

    name: str
    old: str
    new: str
    follows: bool

    def __str__(self) -> str:
        return f"{self.name}: {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class Rename:
    kind: Literal["graph", "input", "output", "dimension", "constant", "node", "value"]
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.kind} {self.old} -> {self.new}"


@dataclass(frozen=True, slots=True)
class GraphDiff:
    """The difference of two graphs. False if there is none; names alone make none (``renamed``, with those in subgraphs
    that do not differ otherwise).

    ``nodes``: how many each has; ``matched``: how many pairs of nodes stand for each other.
    """

    nodes: tuple[int, int]
    matched: int
    interface: tuple[InterfaceChange, ...] = ()
    changed: tuple[NodeChange, ...] = ()
    constants: tuple[ConstantChange, ...] = ()
    inserted: tuple[PlacedNode, ...] = ()
    removed: tuple[PlacedNode, ...] = ()
    types: tuple[TypeChange, ...] = ()
    renamed: tuple[Rename, ...] = ()

    def __bool__(self) -> bool:
        return self.count > 0

    def __str__(self) -> str:
        return self.text()

    @property
    def count(self) -> int:
        """Differences. Types that follow others do not count, nor do names."""
        return sum(len(group) for _, group in self._groups())

    @property
    def all_renamed(self) -> tuple[Rename, ...]:
        """Names that differ, in subgraphs of changed nodes too."""
        return self.renamed + tuple(r for n in self.changed for _, d in n.subgraphs for r in d.all_renamed)

    def _groups(self) -> tuple[tuple[str, Sequence[object]], ...]:
        return (
            ("inputs and outputs", self.interface),
            ("changed nodes", self.changed),
            ("changed constants", self.constants),
            ("inserted nodes", self.inserted),
            ("removed nodes", self.removed),
            ("changed types", [t for t in self.types if not t.follows]),
        )

    def text(self, names: bool = False) -> str:
        """For people: a line for each difference, grouped. ``names``: also for each name that differs."""
        return "\n".join([self._summary(), *self.lines(), *(self._name_lines() if names else ())])

    def _summary(self) -> str:
        a, b = self.nodes
        differences = {0: "no differences", 1: "1 difference"}.get(self.count, f"{self.count:,} differences")
        sizes = f"{a:,} nodes" if a == b else f"{a:,} -> {b:,} nodes"
        renamed = len(self.all_renamed)
        return f"{differences} ({sizes}" + (f", {renamed:,} names differ)" if renamed else ")")

    def lines(self) -> Iterator[str]:
        """The differences, grouped, under a heading each."""
        for title, group in self._groups():
            if group:
                yield f"{title} ({len(group):,})"
                yield from (f"  {line}" for x in group for line in str(x).split("\n"))
        follow = sum(t.follows for t in self.types)
        if follow:
            yield f"types of {follow:,} more values follow"

    def _name_lines(self) -> Iterator[str]:
        if self.all_renamed:
            yield f"names ({len(self.all_renamed):,})"
            yield from (f"  {r}" for r in self.all_renamed)

    def to_json(self) -> dict[str, object]:
        """All fields, as JSON has them: a number that is none is text, a constant and a graph what they look like."""
        return _json_fields(self)


def _json_fields(value: object) -> dict[str, object]:
    return {f.name: _json(getattr(value, f.name)) for f in dataclasses.fields(value)}  # type: ignore[arg-type]


def _json(value: object) -> object:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple):
        return [_json(x) for x in value]
    if isinstance(value, DType | Constant | Graph):
        return attribute_text(value)
    return _json_fields(value)


def attribute_text(value: Attribute) -> str:
    """The value of an attribute, for people: a few elements of a list, of a constant and a graph only what they are."""
    if isinstance(value, Graph):
        return f"a graph of {len(value.nodes)} nodes"
    if isinstance(value, Constant):
        return constant_type(value)
    if isinstance(value, str):
        return repr(value) if len(value) <= _LONGEST else f"{value[:_LONGEST]!r}... ({len(value):,} characters)"
    if isinstance(value, tuple):
        shown = ", ".join(map(attribute_text, value[:_SHOWN]))
        more = f", ... {len(value):,} elements" if len(value) > _SHOWN else "," if len(value) == 1 else ""
        return f"({shown}{more})"
    return "none" if value is None else str(np.float32(value)) if isinstance(value, float) else str(value)


def constant_type(constant: Constant) -> str:
    """The type of a constant as text."""
    return f"{from_numpy(constant.dtype)}[{', '.join(map(str, constant.shape))}]"


def _listed(before: str, items: Sequence[object], after: str = "") -> str:
    """Some of ``items`` between two texts; nothing if there are none."""
    if not items:
        return ""
    more = f" and {len(items) - _NAMED} more" if len(items) > _NAMED else ""
    return f"{before}{', '.join(map(str, items[:_NAMED]))}{more}{after}"
