"""Constant folding: what depends on constants only, and what shape arithmetic knows, becomes a constant.

Where more operands are known than when the graph was inferred, inference tells again: sizes that it could not give, as
of a Pad whose pads come from floating-point arithmetic. A whole cone of constant nodes is evaluated, and only the
values that other nodes read are kept. A kept value may be larger than what it replaces by at most GROWTH_BYTES; shape
arithmetic (integers with known elements) always folds, and so do quantized weights, to as many numbers as are stored
in 16 bits or fewer: kernels of integers read such a constant itself, and no run dequantizes one for the others.
Transposes and views of a constant stay views of its memory.

What is evaluated on the way is limited, too: a constant may be a number of elements, and the build should take neither
the memory nor the time of a run. All of it together may have TRANSIENT_BYTES more than twice the graph's constants, and
QUANTIZED_BYTES for each of their quantized numbers; operators whose definition goes through its elements in Python have
a limit of their own (``OpDef.fold_limit``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Set
from functools import partial
from typing import TypeAlias

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, TilewrightError
from tilewright.core.index_ranges import first_outside
from tilewright.core.io.stored import StoredArray
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Value, node_reads
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.ops.base import MAX_DATA
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import fixed_shape, ints_attr, tensor_shape
from tilewright.reference import evaluate

GROWTH_BYTES = 1 << 20
TRANSIENT_BYTES = 1 << 27
QUANTIZED_BYTES = 24
"""A weight in float32, and five values of that size on the way to it."""
_FAILURES = (
    TilewrightError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
)


Stays: TypeAlias = Callable[[GraphEditor, Node], bool]


def fold_constants(
    graph: Graph, ctx: PassContext, stays: Stays | None = None, growth_bytes: int | None = None, copies: bool = False
) -> Graph:
    """The graph with every foldable value a constant. ``stays``: which nodes do not fold. ``growth_bytes``: by how much
    a value may be larger than what it replaces; None for GROWTH_BYTES. ``copies``: views of constants are stored anew.
    """
    ed = GraphEditor(graph, ctx)
    _fold_known_elements(ed, ctx)
    known: dict[str, Constant] = {}
    budget = _transient_bytes(ed)
    for node in [ed.nodes[k] for k in list(ed.nodes)]:
        _infer_again(ed, node, known, ctx)
        if stays is None or not stays(ed, node):
            budget -= _evaluate(ed, node, known, budget, ctx)
    wanted = [n for n in known if _is_read_outside(ed, n, known)]
    todo = list(wanted)
    tried: set[str] = set()
    while todo:
        name = todo.pop()
        producer = ed.producer(name)
        if name in tried or producer is None:
            continue
        tried.add(name)
        growth = _growth(ed, name, known, copies)
        if growth > (GROWTH_BYTES if growth_bytes is None else growth_bytes):
            ctx.log.refuse("fold_constants", producer.name, f"the result is {growth} bytes larger than its operands")
            todo.extend(i for i in producer.inputs if i in known)
            continue
        ctx.log.fire("fold_constants", producer.name)
        ed.make_constant(name, known[name])
    return ed.finish()


def _fold_known_elements(ed: GraphEditor, ctx: PassContext) -> None:
    for k in list(ed.nodes):
        node = ed.nodes.get(k)
        if node is None:
            continue
        for o in node.outputs:
            array = elements_array(ed.values[o]) if o and o in ed.values else None
            if array is not None and ed.use_count(o):
                ctx.log.fire("fold_constants", node.name)
                ed.make_constant(o, Constant(array))


def elements_array(v: Value) -> np.ndarray | None:
    """The array of a value whose every element is a known number."""
    if v.data is None or any(not d.is_const for d in v.data):
        return None
    shape = fixed_shape(tensor_shape(v))
    if shape is None or v.dtype.kind not in "iubf":
        return None
    return np.array([d.const for d in v.data], dtype=np.int64).astype(v.dtype.numpy).reshape(shape)


def _infer_again(ed: GraphEditor, node: Node, known: dict[str, Constant], ctx: PassContext) -> None:
    """Inference of ``node`` where more is known of what it reads; elements that follow are added to ``known``."""
    small = (i for i in node.inputs if i in known and known[i].size <= MAX_DATA)
    news = {i: known[i].array for i in small if ed.value(i).data is None}
    if (news or not ed.sharpened.isdisjoint(node.inputs)) and not any(True for _ in node.subgraphs()):
        try:
            ed.infer_again(node, news)
        except ModelError as e:
            if not ctx.outer_values:
                raise
            ctx.log.refuse("fold_constants", node.name, f"inference failed: {e}")  # perhaps a branch that never runs
    for o in node.outputs:
        if o and o in ed.sharpened and (array := elements_array(ed.values[o])) is not None:
            known[o] = Constant(array)


def _evaluate(ed: GraphEditor, node: Node, known: dict[str, Constant], budget: int, ctx: PassContext) -> int:
    """Adds the outputs of ``node`` to ``known`` if it has only known operands; gives the bytes that they take."""
    op = op_def(node)
    if op.fold_limit == 0 or not op.deterministic or op.kind is PatternKind.CONTROL:
        return 0
    if any(i and i not in known and ed.constant(i) is None for i in node.inputs):
        return 0
    arrays = [None if not i else known[i].array if i in known else ed.array(i) for i in node.inputs]
    nbytes, refusal = _result_bytes(ed, node, sum(a.size for a in arrays if a is not None))
    if refusal or nbytes > budget:
        reason = refusal or f"the result has {nbytes} bytes, more than the {budget} left for transients"
        ctx.log.refuse("fold_constants", node.name, reason)
        return 0
    if (found := first_outside(node.op, node.domain, dict(node.attrs), arrays)) is not None:
        ctx.log.refuse("fold_constants", node.name, f"{found[0].what} out of range: {found[1]}")
        return 0
    try:
        with np.errstate(all="ignore"):
            results = _run(node, arrays)
    except _FAILURES as e:
        ctx.log.refuse("fold_constants", node.name, f"evaluation failed: {type(e).__name__}: {e}")
        return 0
    for o, r in zip(node.outputs, results, strict=False):
        if o and isinstance(r, np.ndarray | np.generic):
            want = ed.value(o).dtype.numpy
            array = np.asarray(r)
            if array.dtype != want and want != np.dtype(object):
                array = array.astype(want)
            known[o] = Constant(array)
            ed.sizes_are(o, array.shape)
    return nbytes


def _run(node: Node, arrays: list[np.ndarray | None]) -> list[object]:
    x = arrays[0] if arrays else None
    if node.op == "Transpose" and isinstance(x, np.ndarray):
        return [np.transpose(x, ints_attr(node, "perm"))]
    to = node.attr("to")
    if node.op == "Cast" and isinstance(x, np.ndarray) and isinstance(to, DType) and x.dtype == to.numpy:
        return [x]
    if node.op == "Identity":
        return [x]
    return evaluate(node.op, node.domain, dict(node.attrs), arrays, len(node.outputs), op_def(node).evaluate)


def _result_bytes(ed: GraphEditor, node: Node, operands: int) -> tuple[int, str]:
    """The memory of a node's results, 0 for views of its operands, and why it is not evaluated ("" if it is)."""
    nbytes, elements = 0, operands
    for o in node.outputs:
        if not o:
            continue
        v = ed.value(o)
        if not isinstance(v.type, TensorType):
            return 0, "a result is not a tensor"
        shape = fixed_shape(v.type.shape)
        if shape is not None:
            elements += math.prod(shape)
            nbytes += math.prod(shape) * v.dtype.itemsize
    limit = op_def(node).fold_limit
    if limit is not None and elements > limit:
        return 0, f"{elements} operands and results are more than the {limit} that {node.op} is evaluated for"
    return (0 if _is_view(node) else nbytes), ""


def _is_view(node: Node) -> bool:
    """True if the result of numpy is a view of the operand's memory."""
    return op_def(node).kind is PatternKind.VIEW or node.op == "Transpose"


def _is_read_outside(ed: GraphEditor, name: str, known: dict[str, Constant]) -> bool:
    """True if a node that does not fold reads the value, or it is an output."""
    if ed.is_output(name):
        return True
    return any(not all(o in known for o in u.outputs if o) for u in ed.users(name))


def _growth(ed: GraphEditor, name: str, known: dict[str, Constant], copies: bool) -> int:
    """Bytes that the value needs beyond those of the constants that it frees; 0 for quantized weights."""
    constant = known[name]
    producer = ed.producer(name)
    is_view = isinstance(constant.content, StoredArray) or constant.content.base is not None
    if producer is None or (is_view and not copies and _is_view(producer)):
        return 0
    cone: set[str] = set()
    nodes = {producer.name}
    todo = [producer]
    constants: dict[str, Constant] = {}
    while todo:
        for i in node_reads(todo.pop()):
            if i in cone:
                continue
            cone.add(i)
            inner = ed.producer(i)
            if inner is not None:
                todo.append(inner)
                nodes.add(inner.name)
            elif (stored := ed.constant(i)) is not None:
                if stored.size >= constant.size and _is_quantized(stored):
                    return 0
                constants[i] = stored
    freed = (c.nbytes for i, c in constants.items() if i in ed.constants and _is_read_only_by(ed, i, nodes))
    return constant.nbytes - sum(freed)


def _is_read_only_by(ed: GraphEditor, name: str, nodes: Set[str]) -> bool:
    return not ed.is_output(name) and all(n.name in nodes for n in ed.users(name))


def _transient_bytes(ed: GraphEditor) -> int:
    read = {i for node in ed.nodes.values() for i in node.inputs if i}
    stored = [c for i in read if (c := ed.constant(i)) is not None]
    quantized = sum(c.size for c in stored if _is_quantized(c))
    return TRANSIENT_BYTES + 2 * sum(c.nbytes for c in stored) + QUANTIZED_BYTES * quantized


def _is_quantized(c: Constant) -> bool:
    dtype = dtypes.from_numpy(c.dtype)
    return dtype.bits <= 8 if dtype.is_float else dtype.is_integer and dtype.bits <= 16


def _dequantizes_weight(ed: GraphEditor, node: Node) -> bool:
    v = ed.value(node.inputs[0]) if node.op == "DequantizeLinear" and not node.domain else None
    if v is None or not isinstance(v.type, TensorType):
        return False
    return v.dtype.is_integer and v.dtype.bits <= 8 and len(tensor_shape(v) or ()) > 1


FOLD_CONSTANTS = Pass("fold_constants", Level.BASIC, Exactness.BIT_EXACT, fold_constants)
FOLD_SHAPES = Pass("fold_shapes", Level.BASIC, Exactness.BIT_EXACT, partial(fold_constants, stays=_dequantizes_weight))
"""Matrices of bytes are not dequantized yet."""


def _dequantizes(ed: GraphEditor, node: Node) -> bool:
    return node.op == "DequantizeLinear"


def fold_for_file(growth_bytes: int) -> Pass:
    """Folding for a file: what is quantized stays so, as runtimes look for DequantizeLinear in front of operators."""
    run = partial(fold_constants, stays=_dequantizes, growth_bytes=growth_bytes, copies=True)
    return Pass("fold_constants", Level.BASIC, Exactness.BIT_EXACT, run)
