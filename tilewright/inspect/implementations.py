"""The account of implementations: for each node with several what each is estimated to cost, which one was chosen and
by whom, and why others do not apply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilewright.graph_ir.ir import Graph, Value
from tilewright.lowering.choose_implementation import Alternatives, Wanted, alternatives_of
from tilewright.lowering.implementations.base import chosen
from tilewright.machine.target import Target


@dataclass(frozen=True, slots=True)
class Candidate:
    """What could compute a node. ``cost`` in multiply-adds; ``error`` as a share of a channel's root mean square, None
    if it rounds as the definition does; ``limit``: the largest error that is taken."""

    name: str
    cost: float
    error: float | None
    limit: float
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        notes = list(self.notes)
        if self.error is not None:
            limit = "" if self.error <= self.limit else f", limit {self.limit:.0e}"
            notes.insert(0, f"error {self.error:.1e}{limit}")
        return f"{self.name} {self.cost / 1e6:.3g}" + (f" ({'; '.join(notes)})" if notes else "")


@dataclass(frozen=True, slots=True)
class Choice:
    """Who computes a node, by whom that was chosen (``instead``: of what, by a record), the candidates with the
    cheapest first, and what does not apply, with reasons."""

    node: str
    operator: str
    chosen: str
    by: str
    instead: str
    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        """Without the name of the node."""
        instead = f" (without it {self.instead})" if self.instead else ""
        lines = [f"({self.operator}): {self.chosen}, by {self.by}{instead}", ", ".join(map(str, self.candidates))]
        if self.refused:
            lines.append(f"not {', '.join(f'{name} ({why})' for name, why in self.refused)}")
        return "\n    ".join(lines)


def choices_of(graph: Graph, target: Target, wanted: Wanted, replaced: Mapping[str, str]) -> list[Choice]:
    """Of every node that can be computed in several ways. ``graph``: as it was lowered. ``replaced``: what nodes with
    another implementation by a record would have without it."""
    return [_choice(c, wanted, replaced) for c in _everywhere(graph, target, wanted, {})]


def explain_choices(choices: Sequence[Choice]) -> str:
    """Plain text; nodes of which the same is said stand together."""
    nodes: dict[str, list[str]] = {}
    for c in choices:
        nodes.setdefault(c.text, []).append(c.node)
    title = "implementations (in millions of multiply-adds; the error as a share of a channel's root mean square):"
    return "\n".join([title, *(f"  {', '.join(names)} {text}" for text, names in nodes.items())])


def chosen_implementations(graph: Graph, target: Target, wanted: Wanted) -> dict[str, str]:
    """By node, in the graph and its bodies, what computes it, of nodes that can be computed in several ways."""
    return {c.node.name: chosen(c.ways, c.facts).name for c in _everywhere(graph, target, wanted, {})}


def _everywhere(graph: Graph, target: Target, wanted: Wanted, outer: Mapping[str, Value]) -> Iterator[Alternatives]:
    yield from alternatives_of(graph, target, wanted.table, outer)
    for node in graph.nodes:
        for _, body in node.subgraphs():
            yield from _everywhere(body, target, wanted, {**outer, **graph.values})


def _choice(c: Alternatives, wanted: Wanted, replaced: Mapping[str, str]) -> Choice:
    name = c.node.name
    can: list[Candidate] = []
    cannot: list[tuple[str, str]] = []
    for i in c.ways:
        refusal = i.refusal(c.facts)
        if refusal is not None:
            cannot.append((i.name, refusal))
            continue
        notes = ["spreads infinities and NaN"] if i.spreads else []
        notes += ["only by a record or a user"] if i.measured else []
        error = None if i.error is None else c.error(i)
        can.append(Candidate(i.name, i.cost(c.facts.priced), error, c.limit, tuple(notes)))
    by = "user" if name in wanted.names else "record" if name in replaced else "estimate"
    return Choice(
        name, c.node.op, chosen(c.ways, c.facts).name, by, replaced.get(name, "") if by == "record" else "",
        tuple(sorted(can, key=lambda x: (x.cost, str(x)))), tuple(cannot),
    )  # fmt: skip
