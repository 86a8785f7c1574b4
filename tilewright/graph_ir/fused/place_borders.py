"""The operand of a padded convolution is written into the middle of a buffer whose border is filled with zeros.

A Pad that runs as ``placed`` stands for that buffer; the convolutions read it and pad no more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tilewright.core.arith.expr import IntExpr, const
from tilewright.graph_ir.fused.placement import Placement
from tilewright.graph_ir.ir import Graph, Group, Node, SubView, Value, make_attrs
from tilewright.graph_ir.kinds import RunsAs
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext


def place_borders(graph: Graph, ctx: PassContext) -> Graph:
    """The fused graph with the operands of padded convolutions in larger values."""
    p = Placement(graph, ctx)
    for x in dict.fromkeys(g.nodes[0].inputs[0] for g in p.groups if _pads(g, p.values) is not None):
        _pad(p, x)
    return p.result()


def _pad(p: Placement, x: str) -> None:
    """Place ``x`` in a larger value with a border for the convolutions that read it."""
    if not p.is_movable(x):
        for g in p.readers.get(x, ()):
            p.ctx.log.refuse("place_borders", g.nodes[0].name, f"{x} is not written and read by kernels alone")
        return
    readers = [g for g in p.readers[x] if g.nodes[0].inputs[:1] == (x,)]
    users = [(g, pads) for g in readers if (pads := _pads(g, p.values)) is not None]
    rank = len(users[0][1]) // 2
    border = tuple(max(pads[d] for _, pads in users) for d in range(2 * rank))
    roots = {border: _enlarge(p, x, border)}
    p.place(x, SubView(roots[border], (0, *border[:rank], 0)))
    for group, pads in users:
        if pads not in roots:
            roots[pads] = _enlarge(p, x, pads)
            inner = (b - own for b, own in zip(border[:rank], pads[:rank], strict=True))
            p.place(roots[pads], SubView(roots[border], (0, *inner, 0)))
        p.replace(group, _reading(group, x, roots[pads]))
        p.ctx.log.fire("place_borders", group.nodes[0].name)


def _enlarge(p: Placement, x: str, pads: tuple[int, ...]) -> str:
    """The name of ``x`` with ``pads`` around it."""
    rank = len(pads) // 2
    result = p.ctx.names.fresh(f"{x}.padded")
    sizes = p.ctx.names.fresh(f"{result}.pads")
    p.add(result, x, _grown(p.values[x].shape, pads))
    p.constant(sizes, (0, *pads[:rank], 0, 0, *pads[rank:], 0))
    p.enlarge(Node("Pad", (x, sizes), (result,), make_attrs({}), p.ctx.names.fresh(f"pad_{result}")))
    return result


def _pads(group: Group, values: Mapping[str, Value]) -> tuple[int, ...] | None:
    """The padding of the convolution that a group begins with, if it reads channels-last and nothing else does so."""
    node = group.nodes[0]
    x = node.inputs[0] if node.inputs else ""
    pads = node.attr("pads")
    if node.op != "Conv" or node.domain or group.runs_as is not RunsAs.KERNEL or x not in group.inputs:
        return None
    if node.attr("data_layout", "NCHW") != "NHWC" or node.attr("auto_pad", "NOTSET") != "NOTSET":
        return None
    if not isinstance(pads, tuple) or not any(pads) or any(not isinstance(p, int) or p < 0 for p in pads):
        return None
    if sum(n.inputs.count(x) for n in group.nodes) != 1 or len(pads) != 2 * (len(values[x].shape) - 2):
        return None
    return tuple(int(p) for p in pads)


def _grown(shape: tuple[IntExpr, ...], pads: Sequence[int]) -> tuple[IntExpr, ...]:
    rank = len(pads) // 2
    inner = [d + const(pads[k] + pads[rank + k]) for k, d in enumerate(shape[1:-1])]
    return (shape[0], *inner, shape[-1])


def _reading(group: Group, x: str, source: str) -> Group:
    """The group with its convolution reading ``source``, which holds the padding."""
    conv = group.nodes[0]
    attrs = {k: v for k, v in conv.attrs if k != "pads"}
    unpadded = dataclasses.replace(conv, inputs=(source, *conv.inputs[1:]), attrs=make_attrs(attrs))
    inputs = tuple(source if i == x else i for i in group.inputs)
    return dataclasses.replace(group, nodes=(unpadded, *group.nodes[1:]), inputs=inputs)


PLACE_BORDERS = Pass("place_borders", Level.NONE, Exactness.BIT_EXACT, place_borders)
