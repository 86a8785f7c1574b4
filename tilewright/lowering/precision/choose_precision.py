"""Products that are faster on bfloat16 get operands of it; what they read is stored so between kernels.

A ``Conv``, ``ConvTranspose`` or ``MatMul`` of float32 with a constant weight is estimated both ways: by the fastest of
its implementations that is exact enough, and by that for operands of bfloat16. Where the second is faster, the weight
is rounded when the model is built, the other operand where it is made, and the sums stay float32 (attribute
``output_dtype``). Weights of few bits (``MatMulDequantized``) stay as they are. Whatever else reads that operand reads
the rounded one, too, so that it is stored once, in half of the bytes: other products as it is, other operators through
a Cast of their own, which fuses with them. What operators only move on its way is rounded before them
(:mod:`.narrow_moves`), and so is the last of two products that are added up (:mod:`.narrow_branches`). Tables of
float32 that rows are taken from are rounded, too: they have half of the size then.
Where nodes are named, those that are named so are reduced, and no others, whatever the estimates say.

Between both is ``bf16x3``: a product keeps its operands, and may take each for a sum of two bfloat16 numbers
(:mod:`tilewright.lowering.implementations.split_products`), where that is faster than float32.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, cast, get_args

import numpy as np

from tilewright.core import dtypes
from tilewright.core.errors import InputError
from tilewright.core.options import require_choice, shown
from tilewright.core.suggestions import did_you_mean
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value, walk_graphs
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.choose_implementation import Alternatives, Wanted, alternatives_of, best_of, facts_of
from tilewright.lowering.facts import NodeFacts
from tilewright.lowering.formulas.attention_tiles import pays_in_tiles, suits_tiles
from tilewright.lowering.implementations.split_products import ATTRIBUTE as SPLIT
from tilewright.lowering.implementations.split_products import FAMILY
from tilewright.lowering.precision.balanced_rounding import rounded_weight
from tilewright.lowering.precision.casts import read_through_cast, rounded
from tilewright.lowering.precision.narrow_branches import narrow_branches
from tilewright.lowering.precision.narrow_moves import narrow_moves
from tilewright.machine.target import Target

Precision: TypeAlias = Literal["fp32", "bf16", "bf16x3", "auto"]
OfNode: TypeAlias = Literal["fp32", "bf16", "bf16x3"]

PASS = "choose_precision"
_WEIGHT = 1
_ATTENTION = "FusedAttention"
_WORTH = 0.9
"""The share of float32's time that three products for one may take by estimate, which is that far off at times."""
_LEAST_OF_TABLE = 1 << 16
"""Elements of a constant for which halving its memory is worth a rounding."""


@dataclass(frozen=True, slots=True)
class NodePrecision:
    """The precision of one node, and why it has it, for the account of the build. Not ``strict``: passed over where the
    model has no such node, or it cannot be reduced; else that is an error."""

    precision: OfNode
    why: str = "asked for"
    strict: bool = True


_NOT_ASKED = NodePrecision("fp32", "not asked for")

Precisions: TypeAlias = Precision | Mapping[str, str | NodePrecision]


def require_precision(value: Precisions) -> Precision | Mapping[str, NodePrecision]:
    """The option ``precision``: one for all nodes, or one by node. Raises InputError."""
    if not isinstance(value, Mapping):
        return require_choice("precision", value, get_args(Precision))
    out: dict[str, NodePrecision] = {}
    for node, asked in value.items():
        if not isinstance(node, str):
            raise InputError(f"precision: expected names of nodes, got {shown(node)}")
        given: NodePrecision = asked if isinstance(asked, NodePrecision) else NodePrecision(cast(OfNode, asked))
        require_choice(f"precision[{node!r}]", given.precision, get_args(OfNode))
        out[node] = given
    return out


@dataclass(frozen=True, slots=True)
class Reduction:
    """Which products are reduced. ``nodes``: by name; None: those that are faster so by estimate, to ``precision``. Not
    ``strict``: nodes that are not there or cannot be reduced are passed over."""

    nodes: Mapping[str, NodePrecision] | None = None
    strict: bool = True
    precision: OfNode = "bf16"

    def of_node(self, name: str) -> NodePrecision | None:
        """What a node has whatever the estimates say; None where they decide."""
        return None if self.nodes is None else self.nodes.get(name, _NOT_ASKED)

    def wants(self, name: str, precision: OfNode) -> bool:
        """Whether a node is to have that precision, if it can."""
        given = self.of_node(name)
        return (self.precision if given is None else given.precision) == precision

    @staticmethod
    def of(asked: Precisions, strict: bool = True) -> Reduction | None:
        """From the option ``precision``; None where nothing is reduced."""
        plain = require_precision(asked)
        if isinstance(plain, Mapping):
            return Reduction(plain, strict)
        return None if plain in ("fp32", "auto") else Reduction(precision=cast(OfNode, plain))

    def require_nodes(self, graph: Graph) -> None:
        """Raises InputError for a node that ``graph``, after its passes, does not have, or has not reduced."""
        if self.nodes is None or not self.strict:
            return
        there = {n.name: n for g in walk_graphs(graph) for n in g.nodes}
        reduced = {*reduced_nodes(graph), *(n.name for n in there.values() if _is_narrow_attention(n))}
        split = {*split_nodes(graph)}
        for node, asked in self.nodes.items():
            if not asked.strict:
                continue
            if node not in there:
                near = did_you_mean(node, there)
                raise InputError(f"precision: the model has no node {node!r} after its graph passes{near}")
            if asked.precision == "bf16" and node not in reduced:
                raise InputError(
                    f"precision: node {node!r} ({there[node].op}): expected for bf16 a Conv, ConvTranspose, MatMul or "
                    f"MatMulDequantized of a float32 operand with a constant weight, an implementation that "
                    f"computes it, if one is named, and the pass {PASS}"
                )
            if asked.precision == "bf16x3" and node not in split:
                raise InputError(
                    f"precision: node {node!r} ({there[node].op}): expected for bf16x3 a Conv, ConvTranspose or MatMul "
                    f"of a float32 operand with a constant weight, matrix tiles of bfloat16, and the pass {PASS}"
                )


def _is_narrow_attention(node: Node) -> bool:
    return node.op == _ATTENTION and node.attr("output_dtype") is not None


def reduced_nodes(graph: Graph) -> tuple[str, ...]:
    """The products of ``graph``, after its passes, of bfloat16 and a constant weight of as many bits or fewer; those of
    its bodies, too."""
    return tuple(
        n.name for g in walk_graphs(graph) for n in g.nodes
        if n.attr("output_dtype") is not None and op_def(n).output_dtype and n.inputs[_WEIGHT] in g.constants
        and all(g.values[x].dtype == dtypes.bfloat16 for x in n.inputs[:2] if g.values[x].dtype.is_float)
    )  # fmt: skip


def split_nodes(graph: Graph) -> tuple[str, ...]:
    """The products of ``graph``, after its passes, whose operands may be taken for sums of two bfloat16 numbers; those
    of its bodies, too."""
    return tuple(n.name for g in walk_graphs(graph) for n in g.nodes if n.attr(SPLIT))


def choose_precision(target: Target, level: Level, wanted: Wanted, reduction: Reduction) -> Pass:
    """The pass for a target, before the choice of implementations."""
    run = partial(_choose, target=target, inexact=level >= Level.ALL, wanted=wanted, asked=reduction)
    return Pass(PASS, Level.EXTENDED, Exactness.APPROXIMATE, run)


def _choose(graph: Graph, ctx: PassContext, target: Target, inexact: bool, wanted: Wanted, asked: Reduction) -> Graph:
    products = {
        c.node.name: _as_named(c, wanted.names.get(c.node.name))
        for c in alternatives_of(graph, target, wanted.table, ctx.outer_values)
        if _is_product(c.facts)
    }
    reduced = [c for c in products.values() if _is_reduced(c, ctx, inexact, asked)]
    heads = [n for n in graph.nodes if n.op == _ATTENTION and _is_attention_reduced(graph, n, target, ctx, asked)]
    split = [c for c in products.values() if _is_split(c, ctx, inexact, asked)]
    if not reduced and not heads and not split:
        return graph
    ed = GraphEditor(graph, ctx)
    for c in split:
        ed.replace_node(c.node, c.node.with_attrs(**{SPLIT: 1}))
        ctx.log.fire("bf16x3", c.node.name)
    narrow: dict[str, str] = {}
    for n in heads:
        _narrow_operands(ed, n, 3, narrow)
        _read(ed, n, *(narrow[x] for x in n.inputs[:3]))
        ctx.log.fire("bfloat16", n.name)
    for c in reduced:
        x = c.node.inputs[0]
        _narrow_operands(ed, c.node, 1, narrow)
        _read(ed, c.node, narrow[x], rounded_operand(ed, c.node))
        ctx.log.fire("bfloat16", c.node.name)
    for x, own in narrow.items():
        if ed.producer(x) is not None and not ed.is_output(x):
            _read_by_others(ed, x, own, products.keys() - {c.node.name for c in split} - wanted.names.keys())
    if asked.nodes is None and asked.precision == "bf16":
        narrow_moves(ed, ctx, narrow)
        narrow_branches(ed, ctx, frozenset(c.node.name for c in reduced))
        _narrow_tables(ed, ctx)
    return ed.finish()


def _as_named(c: Alternatives, name: str | None) -> Alternatives:
    """``c`` with nothing to choose from but the implementation that is named, if one is."""
    return c if name is None else dataclasses.replace(c, ways=tuple(i for i in c.ways if i.name == name))


def rounded_operand(ed: GraphEditor, node: Node) -> str:
    """The weight of a product as its reduced form reads it."""
    name = node.inputs[_WEIGHT]
    w = ed.constant(name)
    if w is None or not ed.value(name).dtype.is_float:
        return name
    return ed.add_constant(rounded_weight(node.op, w), f"{name}.bf16")


def _narrow_operands(ed: GraphEditor, node: Node, count: int, narrow: dict[str, str]) -> None:
    """Casts of the first ``count`` operands of ``node``, one for each tensor."""
    for x in node.inputs[:count]:
        if x not in narrow:
            ed.set_anchor(ed.node_id(node))
            narrow[x] = rounded(ed, x)


def _narrow_tables(ed: GraphEditor, ctx: PassContext) -> None:
    """Tables of float32 that nothing but Gathers read (embeddings) are stored in bfloat16, half of their memory. What
    is taken from them is widened in the kernel that takes it."""
    for name, c in [*ed.constants.items()]:
        readers = ed.users(name)
        if c.dtype != np.float32 or c.size < _LEAST_OF_TABLE or not readers or ed.is_output(name):
            continue
        if any(r.op != "Gather" or r.domain or r.inputs[0] != name for r in readers):
            continue
        table = ed.add_constant(c.converted(dtypes.bfloat16.numpy), f"{name}.bf16")
        for r in readers:
            ed.set_anchor(ed.node_id(r))
            rows = ed.add("Gather", (table, r.inputs[1]), dict(r.attrs), hint=f"{r.outputs[0]}.bf16", stands_for=r)[0]
            ed.replace_uses(r.outputs[0], ed.add("Cast", (rows,), {"to": dtypes.float32}, hint=r.outputs[0])[0])
            ed.drop_if_dead(r.outputs[0])
            ctx.log.fire("bfloat16", r.name)


def _read(ed: GraphEditor, node: Node, x: str, *more: str) -> None:
    """Let a product read ``x`` of bfloat16, and ``more`` behind it; its sums stay float32."""
    inputs = (x, *more, *node.inputs[1 + len(more) :])
    ed.replace_node(node, dataclasses.replace(node, inputs=inputs).with_attrs(output_dtype=dtypes.float32))


def _read_by_others(ed: GraphEditor, x: str, own: str, products: Collection[str]) -> None:
    """Let what else reads ``x`` read ``own``, the same rounded: ``products`` as it is."""
    for reader in ed.users(x):
        if own in reader.outputs or any(True for _ in reader.subgraphs()):
            continue
        if reader.name in products and reader.inputs.count(x) == 1:
            _read(ed, reader, own)
            continue
        read_through_cast(ed, reader, x, own, f"{x}.wide")


def _is_product(facts: NodeFacts) -> bool:
    """True for a product of a float32 operand with a constant weight of float32, or of few bits with scales of it."""
    if not op_def(facts.node).output_dtype or facts.constants[0] is not None or facts.constants[_WEIGHT] is None:
        return False
    values = [v for v in (*facts.input_values, *facts.output_values) if v is not None]
    return values[0].dtype == dtypes.float32 and all(v.dtype == dtypes.float32 for v in values if v.dtype.is_float)


def _is_reduced(c: Alternatives, ctx: PassContext, inexact: bool, asked: Reduction) -> bool:
    """Whether a product is to be reduced and can be; the log of the pass says why."""
    name, given = c.node.name, asked.of_node(c.node.name)
    if not asked.wants(name, "bf16"):
        if given is not None and given.precision == "fp32":
            ctx.log.refuse("bfloat16", name, given.why)
        return False
    narrow = dataclasses.replace(
        c.facts,
        node=c.node.with_attrs(output_dtype=dtypes.float32),
        input_values=tuple(_narrow(v) if n <= _WEIGHT else v for n, v in enumerate(c.facts.input_values)),
        memo={},
    )
    return _is_better("bfloat16", Alternatives(narrow, c.ways, {}), c, ctx, inexact, given)


def _is_split(c: Alternatives, ctx: PassContext, inexact: bool, asked: Reduction) -> bool:
    """The same for operands of two bfloat16 numbers each."""
    if not asked.wants(c.node.name, "bf16x3"):
        return False
    ways = tuple(i for i in c.ways if i.family == FAMILY)
    facts = dataclasses.replace(c.facts, node=c.node.with_attrs(**{SPLIT: 1}), memo={})
    given = asked.of_node(c.node.name)
    return _is_better("bf16x3", Alternatives(facts, ways, {}), c, ctx, inexact, given, _WORTH)


def _is_better(
    kind: str, reduced: Alternatives, c: Alternatives, ctx: PassContext, inexact: bool, given: NodePrecision | None,
    most: float = 1.0,
) -> bool:  # fmt: skip
    """Whether ``reduced`` can take the place of ``c`` and is to: as it is ``given``, or because it should take at most
    that share of the time."""
    name, best = c.node.name, best_of(reduced, ctx, inexact)
    if best is None:
        return False
    if given is not None:
        ctx.log.note(f"{name}: {given.why}")
        return True
    own = best_of(c, ctx, inexact)
    if own is None or (cost := best.cost(reduced.facts.priced)) < most * (before := own.cost(c.facts.priced)):
        return True
    ctx.log.refuse(kind, name, f"estimated to take {cost / before:.2f} times as long")
    return False


def _is_attention_reduced(graph: Graph, node: Node, target: Target, ctx: PassContext, asked: Reduction) -> bool:
    """Whether both products of an attention are to run on bfloat16: in matrix tiles where they gain by it."""
    if not asked.wants(node.name, "bf16"):
        return False
    facts = facts_of(node, target, {**ctx.outer_values, **graph.values}, graph.constants, {})
    narrow = dataclasses.replace(facts, input_values=tuple(map(_narrow, facts.input_values)), memo={})
    return pays_in_tiles(narrow) if asked.nodes is None else suits_tiles(narrow)


def _narrow(v: Value | None) -> Value | None:
    if v is None or not isinstance(v.type, TensorType) or not v.dtype.is_float:
        return v
    return dataclasses.replace(v, type=TensorType(dtypes.bfloat16, v.type.shape))
