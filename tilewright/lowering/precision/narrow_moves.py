"""Where a product reads bfloat16 that operators between only moved, they move bfloat16.

Rounding and moving numbers commute, so nothing changes but the bytes that go to memory and back: what makes the numbers
stores them rounded. A tensor that something else reads as float32 is left as it is.
"""

from __future__ import annotations

from tilewright.core import dtypes
from tilewright.graph_ir.ir import Node
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.precision.casts import rounded

MOVES = (
    "Concat", "DepthToSpace", "Flatten", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth", "Squeeze",
    "Transpose", "Unsqueeze",
)  # fmt: skip
"""Operators that move numbers, or choose the largest: all operands of Concat, the first of the others."""
_VALUE = 2
"""The operand of Pad that holds a number."""


def narrow_moves(ed: GraphEditor, ctx: PassContext, narrow: dict[str, str]) -> None:
    """Move the Casts of ``narrow``, by what they round, before the operators that move it."""
    pending = list(narrow)
    while pending:
        x = pending.pop()
        node = ed.producer(x)
        if node is None or not _is_moved(node) or ed.is_output(x):
            continue
        if [r.outputs for r in ed.users(x)] != [(narrow[x],)]:
            continue
        operands = _operands(node)
        if not all(_may_be_rounded(ed, a, narrow) for a in operands):
            continue
        inputs = list(node.inputs)
        for n, a in enumerate(operands):
            if (c := ed.constant(a)) is not None:
                inputs[n] = ed.add_constant(c.converted(dtypes.bfloat16.numpy), f"{a}.bf16")
                continue
            if (narrower := _widened(ed, a)) is not None:
                inputs[n] = narrower
                continue
            if a not in narrow:
                ed.set_anchor(ed.node_id(node))
                narrow[a] = rounded(ed, a)
                pending.append(a)
            inputs[n] = narrow[a]
        ed.set_anchor(ed.node_id(node))
        moved = ed.add(node.op, tuple(inputs), dict(node.attrs), hint=narrow[x], stands_for=node)[0]
        ed.replace_uses(narrow[x], moved)
        ed.drop_if_dead(narrow[x])
        ed.drop_if_dead(x)
        ctx.log.fire("bfloat16", node.name)


def _operands(node: Node) -> tuple[str, ...]:
    """What the node moves."""
    return tuple(node.inputs) if node.op == "Concat" else node.inputs[:1]


def _is_moved(node: Node) -> bool:
    """True if the node moves numbers and nothing else."""
    if node.op not in MOVES or node.domain or len(node.outputs) > 1:
        return False
    if node.op == "Pad":
        return len(node.inputs) <= _VALUE or not node.inputs[_VALUE]
    return node.op != "Resize" or node.attr("mode", "nearest") == "nearest"


def _may_be_rounded(ed: GraphEditor, a: str, narrow: dict[str, str]) -> bool:
    """True if all that reads ``a`` reads it rounded, or moves it for what does, or if it is there already."""
    if a in narrow or ed.constant(a) is not None or _widened(ed, a) is not None:
        return True
    if ed.is_output(a) or ed.producer(a) is None or ed.value(a).dtype != dtypes.float32:
        return False
    return all(_is_moved(r) and a in _operands(r) and r.outputs[0] in narrow for r in ed.users(a))


def _widened(ed: GraphEditor, a: str) -> str | None:
    """The tensor of bfloat16 that ``a`` was widened from: another product reads it."""
    node = ed.producer(a)
    if node is None or node.op != "Cast" or node.domain or ed.value(a).dtype != dtypes.float32:
        return None
    return node.inputs[0] if ed.value(node.inputs[0]).dtype == dtypes.bfloat16 else None
