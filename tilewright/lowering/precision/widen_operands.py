"""Products of float16 and bfloat16 read operands of float32.

Their sums are float32 anyway, and a kernel reads an element of an operand once for each of its tiles: to convert it
each time takes longer than the product. So an operand is converted where it is made, a constant when the model is
built: ``f(x, w) == Cast(f(Cast(x), Cast(w)))``, with the rounding of each result where it was. Whatever else reads that
operand reads the wide one, too, through a Cast back, which loses nothing and fuses with it; so it is stored once.
Operators that only move elements stand behind the Cast.
"""

from __future__ import annotations

from functools import partial

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ir import Graph, Node, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.lowering.precision.casts import read_through_cast
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles, share_of_pairs

PASS = "widen_operands"
_NARROW = (dtypes.float16, dtypes.bfloat16)
_MOVES = (PatternKind.VIEW, PatternKind.INJECTIVE)


def widen_operands(target: Target) -> Pass:
    """The pass for a target, before precision and implementations are chosen."""
    has_pairs = share_of_pairs(target) < 1 or has_matrix_tiles(target, "dot2")
    return Pass(PASS, Level.EXTENDED, Exactness.BIT_EXACT, partial(_widen, has_pairs=has_pairs))


def _widen(graph: Graph, ctx: PassContext, has_pairs: bool) -> Graph:
    if not any(_narrow_result(graph, n) for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    wide = _Wide(ed)
    for k in list(ed.nodes):
        node = ed.nodes[k]
        dtype = _narrow_result(graph, node)
        if dtype is None:
            continue
        if (reason := _refusal(ed, node, dtype, has_pairs)) is not None:
            ctx.log.refuse(PASS, node.name, reason)
            continue
        ed.set_anchor(k)
        inputs = [wide.of(i) if i and ed.value(i).dtype == dtype else i for i in node.inputs]
        (sums,) = ed.add(
            node.op, inputs, dict(node.attrs), hint=f"{node.outputs[0]}.wide", domain=node.domain, stands_for=node
        )
        ed.replace_uses(node.outputs[0], ed.add("Cast", (sums,), {"to": dtype}, hint=node.outputs[0])[0])
        ed.drop_if_dead(node.outputs[0])
        ctx.log.fire(PASS, node.name)
    wide.read_by_others()
    return ed.finish()


def _narrow_result(graph: Graph, node: Node) -> DType | None:
    """The type of the result, if the node is a product with a narrow one."""
    definition = op_def(node)
    if definition.kind is not PatternKind.OUT_FUSABLE or not definition.arithmetic or len(node.outputs) != 1:
        return None
    v = graph.values[node.outputs[0]]
    return v.dtype if isinstance(v.type, TensorType) and v.dtype in _NARROW else None


def _refusal(ed: GraphEditor, node: Node, dtype: DType, has_pairs: bool) -> str | None:
    weights = [ed.constant(i) is not None for i in node.inputs[1:2]]
    if dtype == dtypes.bfloat16 and has_pairs and op_def(node).output_dtype and any(weights):
        return "the target multiplies bfloat16"
    for i in node.inputs[1:]:
        if i and ed.value(i).dtype == dtype and _is_kept(ed, i):
            return f"{i} is kept from call to call, and would be copied in each"
    return None


def _is_kept(ed: GraphEditor, name: str) -> bool:
    """True for an input or output of the graph, or a part of one, as the keys that a language model has seen are."""
    if ed.is_output(name):
        return True
    node = ed.producer(name)
    if node is None:
        return ed.constant(name) is None
    return op_def(node).kind in _MOVES and any(_is_kept(ed, i) for i in node.inputs if i)


class _Wide:
    """The wide version of values, each made once."""

    def __init__(self, ed: GraphEditor) -> None:
        self._ed = ed
        self._known: dict[str, str] = {}
        self._cast: dict[str, str] = {}

    def of(self, name: str) -> str:
        """``name`` in float32: a constant, the same element moves of what is wide, or a Cast."""
        if name not in self._known:
            self._make(name)
        return self._known[name]

    def _make(self, name: str) -> None:
        ed, node = self._ed, self._ed.producer(name)
        constant = ed.constant(name)
        if constant is not None:
            self._known[name] = ed.add_constant(constant.converted(dtypes.float32.numpy), f"{name}.wide")
            return
        dtype = ed.value(name).dtype
        if node is None or not self._only_moves(node, dtype):
            self._known[name] = self._cast[name] = ed.add("Cast", (name,), {"to": dtypes.float32}, f"{name}.wide")[0]
            return
        inputs = [self.of(i) if i and ed.value(i).dtype == dtype else i for i in node.inputs]
        hint, count = f"{name}.wide", len(node.outputs)
        outputs = ed.add(node.op, inputs, dict(node.attrs), hint, count, node.domain, stands_for=node)
        self._known |= {old: new for old, new in zip(node.outputs, outputs, strict=True) if old}

    def _only_moves(self, node: Node, dtype: DType) -> bool:
        """True if the results are elements of the operands, each of which has to be made (a table of constants is
        better left as it is)."""
        ed = self._ed
        if op_def(node).kind not in _MOVES or any(ed.is_output(o) for o in node.outputs):
            return False
        data = [i for i in node.inputs if i and ed.value(i).dtype == dtype]
        return bool(data) and all(ed.constant(i) is None for i in data)

    def read_by_others(self) -> None:
        """Let all readers of what was converted read the wide version."""
        ed = self._ed
        for name, own in self._cast.items():
            producer = ed.producer(name)
            if producer is None or ed.is_output(name):
                continue
            for reader in ed.users(name):
                if own in reader.outputs or any(True for _ in reader.subgraphs()):
                    continue
                read_through_cast(ed, reader, name, own, f"{name}.back")
        for name in self._known:
            if ed.producer(name) is not None:
                ed.drop_if_dead(name)
