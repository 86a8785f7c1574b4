"""Products that are faster on bfloat16 get operands of it; what they read is stored so between kernels.

A ``Conv`` or ``MatMul`` of float32 with a constant weight is estimated both ways: by the fastest of its implementations
that is exact enough, and by that for operands of bfloat16. Where the second is faster, the weight is rounded when the
model is built, the other operand where it is made, and the sums stay float32 (attribute ``output_dtype``). Whatever
else reads that operand reads the rounded one, too, so that it is stored once, in half of the bytes: other products
as it is, other operators through a Cast of their own, which fuses with them.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Literal, TypeAlias

from tilewright.core import dtypes
from tilewright.graph_ir.ir import Graph, Node, TensorType, Value
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.choose_implementation import Alternatives, Wanted, alternatives_of, best_of
from tilewright.lowering.facts import NodeFacts
from tilewright.machine.target import Target

Precision: TypeAlias = Literal["fp32", "bf16", "auto"]

PASS = "choose_precision"
_WEIGHT = 1


def choose_precision(target: Target, level: Level, wanted: Wanted) -> Pass:
    """The pass for a target, before the choice of implementations."""
    run = partial(_choose, target=target, inexact=level >= Level.ALL, wanted=wanted)
    return Pass(PASS, Level.EXTENDED, Exactness.APPROXIMATE, run)


def _choose(graph: Graph, ctx: PassContext, target: Target, inexact: bool, wanted: Wanted) -> Graph:
    products = {
        c.node.name: c
        for c in alternatives_of(graph, target, wanted.table, ctx.outer_values)
        if _is_product(c.facts) and c.node.name not in wanted.names
    }
    reduced = [c for c in products.values() if _is_faster_reduced(c, ctx, inexact)]
    if not reduced:
        return graph
    ed = GraphEditor(graph, ctx)
    narrow: dict[str, str] = {}
    for c in reduced:
        x = c.node.inputs[0]
        if x not in narrow:
            ed.set_anchor(ed.node_id(c.node))
            narrow[x] = ed.add("Cast", (x,), {"to": dtypes.bfloat16, "flush": 1}, hint=f"{x}.bf16")[0]
        w = ed.constant(c.node.inputs[_WEIGHT])
        name = c.node.inputs[_WEIGHT]
        if w is not None:
            name = ed.add_constant(w.converted(dtypes.bfloat16.numpy), f"{name}.bf16")
        _read(ed, c.node, narrow[x], name)
        ctx.log.fire("bfloat16", c.node.name)
    for x, own in narrow.items():
        if ed.producer(x) is not None and not ed.is_output(x):
            _read_by_others(ed, x, own, products)
    return ed.finish()


def _read(ed: GraphEditor, node: Node, x: str, *more: str) -> None:
    """Let a product read ``x`` of bfloat16, and ``more`` behind it; its sums stay float32."""
    inputs = (x, *more, *node.inputs[1 + len(more) :])
    ed.replace_node(node, dataclasses.replace(node, inputs=inputs).with_attrs(output_dtype=dtypes.float32))


def _read_by_others(ed: GraphEditor, x: str, own: str, products: dict[str, Alternatives]) -> None:
    for reader in ed.users(x):
        if own in reader.outputs or any(True for _ in reader.subgraphs()):
            continue
        if reader.name in products and reader.inputs.count(x) == 1:
            _read(ed, reader, own)
            continue
        ed.set_anchor(ed.node_id(reader))
        wide = ed.add("Cast", (own,), {"to": dtypes.float32}, hint=f"{x}.wide")[0]
        inputs = tuple(wide if i == x else i for i in reader.inputs)
        ed.replace_node(reader, dataclasses.replace(reader, inputs=inputs))


def _is_product(facts: NodeFacts) -> bool:
    """True for a product of a float32 operand with a constant float32 weight."""
    if not op_def(facts.node).output_dtype or facts.constants[0] is not None or facts.constants[_WEIGHT] is None:
        return False
    values = [v for v in (*facts.input_values, *facts.output_values) if v is not None]
    return all(v.dtype == dtypes.float32 for v in values)


def _is_faster_reduced(c: Alternatives, ctx: PassContext, inexact: bool) -> bool:
    narrow = dataclasses.replace(
        c.facts,
        node=c.node.with_attrs(output_dtype=dtypes.float32),
        input_values=tuple(_narrow(v) if n <= _WEIGHT else v for n, v in enumerate(c.facts.input_values)),
        memo={},
    )
    other = Alternatives(narrow, c.ways, {})
    best, own = best_of(other, ctx, inexact), best_of(c, ctx, inexact)
    return best is not None and (own is None or best.cost(narrow) < own.cost(c.facts))


def _narrow(v: Value | None) -> Value | None:
    if v is None or not isinstance(v.type, TensorType):
        return v
    return dataclasses.replace(v, type=TensorType(dtypes.bfloat16, v.type.shape))
