"""Products of one value with several constant weights become one product with all of them, whose result is split.

    MatMul(x, v) + b, MatMul(x, w) + c  ==  Split(MatMul(x, [v w]) + [b c])

and Gemm, Conv and MatMulInteger, where all else of them is equal. A bias that some of them lack is zero.

This pass is off by itself. Kernels have their own epilogues and results of their own, so that three products write
their results once where one product and a Split write them twice; runtimes look for attention by its three products.
It pays where each product is too narrow for the machine, or where a call costs more than a copy.

Of few rows and weights of few bits it always pays: a product is as long as its weight takes to be read, and from one to
the next nothing is read. So these, a token of a language model, have a pass of their own, which is on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.arith.expr import product
from tilewright.graph_ir.ir import Constant, Graph, Node
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.passes.fold_constants import GROWTH_BYTES
from tilewright.graph_ir.rules.base import int_attr, tensor_shape

_MOST_ROWS = 4
"""Of products with packed weights. Their results are written and read once more, of each row."""


@dataclass(frozen=True, slots=True)
class _Part:
    """One product. ``key``: equal for those that can be one; ``weight``, turned if ``turned``; ``rows``: numbers for
    each of its results along the last axis, one array for each operand that has them (a bias, zero points, scales of
    blocks), None where they are absent; ``last``: the node that gives the result, which is the product or an Add behind
    it."""

    node: Node
    key: Hashable
    weight: Constant
    rows: tuple[np.ndarray | None, ...]
    last: Node
    turned: bool = False

    @property
    def matrix(self) -> np.ndarray:
        return self.weight.array.T if self.turned else self.weight.array


def merge_products(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with one product for several of one value."""
    return _merged(graph, ctx, "merge_products", _FORMS)


def merge_packed_products(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with one product for several of one value of few rows, whose weights are of few bits."""
    return _merged(graph, ctx, "merge_packed_products", _PACKED)


def _merged(graph: Graph, ctx: PassContext, name: str, forms: Mapping[str, _Form]) -> Graph:
    readers: dict[tuple[str, str], list[Node]] = {}
    for node in graph.nodes:
        if node.op in forms and not node.domain:
            readers.setdefault((node.op, node.inputs[0]), []).append(node)
    if all(len(nodes) < 2 for nodes in readers.values()):
        return graph
    ed = GraphEditor(graph, ctx)
    for (op, _), nodes in readers.items():
        if len(nodes) > 1:
            _merge(ed, name, forms[op], [n for old in nodes if (n := ed.producer(old.outputs[0])) is not None])
    return ed.finish()


def _merge(ed: GraphEditor, name: str, form: _Form, nodes: Sequence[Node]) -> None:
    x, groups = nodes[0].inputs[0], dict[Hashable, list[_Part]]()
    if tensor_shape(ed.value(x)) is None:
        return
    for node in nodes:
        part = form.part(ed, node)
        if isinstance(part, str):
            ed.ctx.log.refuse(name, node.name, part)
        else:
            groups.setdefault(part.key, []).append(part)
    for parts in groups.values():
        first = parts[0].node
        if len(parts) > 1:
            _join(ed, form, parts)
            ed.ctx.log.fire(name, first.name)
        else:
            why = f"no other {first.op} of '{x}' has its attributes, operands and element types"
            ed.ctx.log.refuse(name, first.name, why)


def _join(ed: GraphEditor, form: _Form, parts: Sequence[_Part]) -> None:
    first = parts[0].node
    ed.set_anchor(ed.node_id(first))
    weight = ed.add_constant(np.concatenate([p.matrix for p in parts], form.weight_axis), f"{first.outputs[0]}.weights")
    sizes = [p.matrix.shape[form.weight_axis] for p in parts]
    rows = [_row(ed, parts, k, sizes) for k in range(len(parts[0].rows))]
    whole = form.build(ed, first, weight, rows)
    axis = form.result_axis % len(ed.value(whole).shape)
    outs = form.apart(ed, whole, axis, sizes, f"{first.outputs[0]}.part")
    old = [p.last.outputs[0] for p in parts]
    ed.replace_all_uses(dict(zip(old, outs, strict=True)))
    ed.drop_if_dead(*old)


def _row(ed: GraphEditor, parts: Sequence[_Part], k: int, sizes: Sequence[int]) -> str:
    """The numbers ``k`` of all results as a constant; "" if there are none."""
    given = [p.rows[k] for p in parts]
    there = [r for r in given if r is not None]
    if not there:
        return ""
    whole = [np.zeros(n, there[0].dtype) if r is None else r for r, n in zip(given, sizes, strict=True)]
    return ed.add_constant(np.concatenate(whole, -1), f"{parts[0].node.outputs[0]}.row")


def _split(ed: GraphEditor, whole: str, axis: int, sizes: Sequence[int], hint: str) -> tuple[str, ...]:
    """Parts of ``sizes`` along an axis, as nodes of files have them."""
    operands = (whole, ed.add_constant(np.array(sizes, np.int64), f"{whole}.sizes"))
    return ed.add("Split", operands, {"axis": axis}, hint=hint, n_outputs=len(sizes))


def _slices(ed: GraphEditor, whole: str, axis: int, sizes: Sequence[int], hint: str) -> tuple[str, ...]:
    """The same for kernels, which read a Slice where it lies."""
    ends = np.cumsum(sizes)

    def part(begin: int, end: int) -> str:
        bounds = [ed.add_constant(np.array([v], np.int64), f"{whole}.bound") for v in (begin, end, axis)]
        return ed.add("Slice", (whole, *bounds), hint=hint)[0]

    return tuple(part(int(end) - n, int(end)) for n, end in zip(sizes, ends, strict=True))


# -- the forms ------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Form:
    """What products of one operator have in common. ``part``: a node as one of several, or why it cannot be; ``build``:
    the product with the joined weight and rows; the axes along which the weight and the result are those of the
    parts; ``apart``: the parts of a result."""

    part: Callable[[GraphEditor, Node], _Part | str]
    build: Callable[[GraphEditor, Node, str, Sequence[str]], str]
    weight_axis: int
    result_axis: int
    apart: Callable[[GraphEditor, str, int, Sequence[int], str], Sequence[str]] = _split


def _weight(ed: GraphEditor, node: Node, rank: int | None) -> Constant | str:
    """The constant weight of a node, of ``rank`` axes if given; or why it is none that can be joined."""
    weight = ed.constant(node.inputs[1])
    if weight is None:
        return "its weight is not a constant"
    if rank is not None and len(weight.shape) != rank:
        return f"its weight has {len(weight.shape)} axes"
    if ed.use_count(node.inputs[1]) > 1 and weight.nbytes > GROWTH_BYTES:
        return "its weight is large and has other readers, so that it would be there twice"
    return weight


def _row_of(ed: GraphEditor, name: str, size: int) -> np.ndarray | str | None:
    """The constant ``name`` (None for "") if it has a number for each of ``size`` results, or one for all; else why
    not."""
    if not name:
        return None
    c = ed.constant(name)
    if c is None:
        return f"'{name}' is not a constant"
    if c.size not in (1, size) or any(d != 1 for d in c.shape[:-1]):
        return f"'{name}' is more than a row"
    return np.broadcast_to(c.array.reshape(-1), size)


def _matmul(ed: GraphEditor, node: Node) -> _Part | str:
    weight = _weight(ed, node, 2)
    if isinstance(weight, str):
        return weight
    row, last = _added_row(ed, node, weight.shape[1])
    return _Part(node, (weight.dtype, weight.shape[0], node.attrs), weight, (row,), last)


def _added_row(ed: GraphEditor, node: Node, size: int) -> tuple[np.ndarray | None, Node]:
    """The row that an Add behind a product adds, if that alone reads it, and the node that gives the result."""
    out = node.outputs[0]
    users = ed.users(out)
    if ed.use_count(out) != 1 or ed.is_output(out) or users[0].op != "Add" or users[0].domain:
        return None, node
    row = _row_of(ed, next(i for i in users[0].inputs if i != out), size)
    same = tensor_shape(ed.value(users[0].outputs[0])) == tensor_shape(ed.value(out))
    return (row, users[0]) if isinstance(row, np.ndarray) and same else (None, node)


def _build_matmul(ed: GraphEditor, node: Node, weight: str, rows: Sequence[str]) -> str:
    (out,) = ed.add("MatMul", (node.inputs[0], weight), dict(node.attrs), node.outputs[0], stands_for=node)
    return ed.add("Add", (out, rows[0]), hint=node.outputs[0])[0] if rows[0] else out


def _gemm(ed: GraphEditor, node: Node) -> _Part | str:
    weight = _weight(ed, node, 2)
    if isinstance(weight, str):
        return weight
    turned = bool(int_attr(node, "transB", 0))
    depth, size = weight.shape[::-1] if turned else weight.shape
    row = _row_of(ed, node.inputs[2] if len(node.inputs) > 2 else "", size)
    if isinstance(row, str):
        return row
    attrs = (int_attr(node, "transA", 0), node.attr("alpha", 1.0), node.attr("beta", 1.0))
    return _Part(node, (weight.dtype, depth, attrs), weight, (row,), node, turned)


def _conv(ed: GraphEditor, node: Node) -> _Part | str:
    weight = _weight(ed, node, None)
    if isinstance(weight, str):
        return weight
    if int_attr(node, "group", 1) != 1:
        return "its channels are in groups"
    if node.attr("data_layout", "NCHW") != "NCHW":
        return "its layout is not that of ONNX"
    row = _row_of(ed, node.inputs[2] if len(node.inputs) > 2 else "", weight.shape[0])
    if isinstance(row, str):
        return row
    spatial = len(weight.shape) - 2
    plain: Mapping[str, Hashable] = {
        "strides": (1,) * spatial, "dilations": (1,) * spatial, "pads": (0,) * (2 * spatial), "auto_pad": "NOTSET",
    }  # fmt: skip
    attrs = tuple(node.attr(k, v) for k, v in plain.items())  # type: ignore[arg-type]
    return _Part(node, (weight.dtype, weight.shape[1:], attrs), weight, (row,), node)


def _with_row(ed: GraphEditor, node: Node, weight: str, rows: Sequence[str]) -> str:
    """A Gemm or Conv with the joined weight, which is not turned."""
    attrs = {k: v for k, v in node.attrs if k != "transB"}
    inputs = (node.inputs[0], weight, *(r for r in rows if r))
    return ed.add(node.op, inputs, attrs, node.outputs[0], stands_for=node)[0]


def _matmul_integer(ed: GraphEditor, node: Node) -> _Part | str:
    weight = _weight(ed, node, 2)
    if isinstance(weight, str):
        return weight
    x_zero, w_zero = [*node.inputs[2:], "", ""][:2]
    row = _row_of(ed, w_zero, weight.shape[1])
    if isinstance(row, str):
        return row
    return _Part(node, (weight.dtype, weight.shape[0], x_zero), weight, (row,), node)


def _build_matmul_integer(ed: GraphEditor, node: Node, weight: str, rows: Sequence[str]) -> str:
    inputs = [node.inputs[0], weight, node.inputs[2] if len(node.inputs) > 2 else "", *rows]
    while not inputs[-1]:
        inputs.pop()
    return ed.add(node.op, inputs, dict(node.attrs), node.outputs[0], stands_for=node)[0]


def _matmul_dequantized(ed: GraphEditor, node: Node) -> _Part | str:
    weight, shape = _weight(ed, node, 2), tensor_shape(ed.value(node.inputs[0]))
    if isinstance(weight, str):
        return weight
    rows = None if shape is None else product(shape[:-1]).value()
    if rows is None or rows > _MOST_ROWS:
        return f"not known to be of at most {_MOST_ROWS} rows"
    names = [*node.inputs[2:], ""][:2]
    blocks = [ed.array(name) for name in names]
    if any(b is None and name for b, name in zip(blocks, names, strict=True)):
        return "its scale or zero point is not a constant"
    row, last = _added_row(ed, node, weight.shape[1])
    forms = tuple(None if b is None else (b.dtype, b.shape[0]) for b in blocks)
    return _Part(node, (weight.dtype, weight.shape[0], forms, node.attrs), weight, (*blocks, row), last)


def _build_matmul_dequantized(ed: GraphEditor, node: Node, weight: str, rows: Sequence[str]) -> str:
    *blocks, row = rows
    inputs = (node.inputs[0], weight, *(b for b in blocks if b))
    (out,) = ed.add(node.op, inputs, dict(node.attrs), node.outputs[0], stands_for=node)
    return ed.add("Add", (out, row), hint=node.outputs[0])[0] if row else out


_FORMS: Mapping[str, _Form] = {
    "MatMul": _Form(_matmul, _build_matmul, 1, -1),
    "Gemm": _Form(_gemm, _with_row, 1, 1),
    "Conv": _Form(_conv, _with_row, 0, 1),
    "MatMulInteger": _Form(_matmul_integer, _build_matmul_integer, 1, -1),
}

_PACKED: Mapping[str, _Form] = {
    "MatMulDequantized": _Form(_matmul_dequantized, _build_matmul_dequantized, 1, -1, _slices)
}


MERGE_PRODUCTS = Pass("merge_products", Level.EXTENDED, Exactness.REASSOCIATING, merge_products, optional=True)
MERGE_PACKED_PRODUCTS = Pass("merge_packed_products", Level.EXTENDED, Exactness.REASSOCIATING, merge_packed_products)
