"""Common subexpressions: nodes with one operator, inputs and attributes become one; equal small constants
too, and sizes that are equal expressions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from tilewright.core.io.stored import StoredArray
from tilewright.graph_ir.ir import Constant, Graph, Node
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor

SMALL_BYTES = 64 * 1024


def share_common(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with each computation once."""
    ed = GraphEditor(graph, ctx)
    _share_constants(ed)
    seen: dict[Hashable, Node] = {}
    renames: dict[str, str] = {}
    for node in ed.nodes.values():
        if not _is_shareable(node):
            continue
        key = _known_key(ed, node) or _node_key(node, renames)
        first = seen.setdefault(key, node)
        if first is node:
            continue
        if any(ed.is_output(o) for o in node.outputs):
            ctx.log.refuse("share_common", node.name, "an output of the graph keeps its own node")
            continue
        renames |= {a: b for a, b in zip(node.outputs, first.outputs, strict=True) if a and b}
        ctx.log.fire("share_common", node.name)
    ed.replace_all_uses(renames)
    ed.drop_if_dead(*renames)
    return ed.finish()


def _share_constants(ed: GraphEditor) -> None:
    seen: dict[Hashable, str] = {}
    renames: dict[str, str] = {}
    for name, c in ed.constants.items():
        first = seen.setdefault(constant_key(c), name)
        if first != name and not ed.is_output(name):
            renames[name] = first
    ed.replace_all_uses(renames)
    for name in renames:
        ed.drop_constant(name)


def constant_key(c: Constant) -> Hashable:
    """Equal for constants of one type, shape and content when small; else for views of the same memory only."""
    if isinstance(c.content, StoredArray):
        return c.content.key()
    if c.nbytes <= SMALL_BYTES and c.dtype.kind != "O":
        return (c.dtype, c.shape, c.content.tobytes())
    return (c.dtype, c.shape, c.content.strides, c.content.__array_interface__["data"][0])


def _is_shareable(node: Node) -> bool:
    return op_def(node).deterministic and not any(True for _ in node.subgraphs())


def _known_key(ed: GraphEditor, node: Node) -> Hashable | None:
    """Equal for results of one operator and type whose elements are the same known expressions: one size, read off
    several values."""
    if len(node.outputs) != 1 or not node.outputs[0]:
        return None
    v = ed.value(node.outputs[0])
    if v.data is None or v.dtype.kind not in "iu":
        return None
    return ("known", node.op, v.dtype, v.shape, v.data)


def _node_key(node: Node, renames: Mapping[str, str]) -> Hashable:
    attrs = tuple((k, constant_key(v) if isinstance(v, Constant) else v) for k, v in node.attrs)
    present = tuple(bool(o) for o in node.outputs)
    return (node.op, node.domain, tuple(renames.get(i, i) for i in node.inputs), attrs, present)


SHARE_COMMON = Pass("share_common", Level.BASIC, Exactness.BIT_EXACT, share_common)
