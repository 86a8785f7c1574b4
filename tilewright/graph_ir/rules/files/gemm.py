"""Products of matrices with what stands around them as Gemm: for files, where one node is shorter than three."""

from __future__ import annotations

from tilewright.core.arith.expr import product
from tilewright.graph_ir.ir import Node, Shape
from tilewright.graph_ir.passes.base import Exactness, with_inputs
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, int_attr, ints_attr, tensor_shape
from tilewright.graph_ir.rules.views import reshape, reshape_target

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _adds_to(m: Match, product: Node) -> str | None:
    """Guard: ``c`` is broadcast to the matrix that ``product`` gives, which keeps its shape."""
    shape, c = tensor_shape(m.editor.value(product.outputs[0])), m.shape("c")
    if shape is None or c is None or len(shape) != 2 or m.out_shape != shape:
        return NOT_HERE
    return None if len(c) <= 2 and m.editor.value(product.outputs[0]).dtype.name in _FLOATS else NOT_HERE


def _is_matrix_product(m: Match) -> str | None:
    a, b = m.shape("a"), m.shape("b")
    if a is None or b is None or len(a) != 2 or len(b) != 2:
        return NOT_HERE
    return _adds_to(m, m.node("product"))


def _gemm_without_sum(m: Match) -> str | None:
    return _adds_to(m, m.node("product"))


def _with_sum(m: Match) -> str:
    return m.op("Gemm", m["a"], m["b"], m["c"], **{**dict(m.node("product").attrs), "beta": 1.0})


def _turned(m: Match) -> str | None:
    x = m.shape("x")
    if x is None or len(x) != 2 or (ints_attr(m.node("turn"), "perm") or (1, 0)) != (1, 0):
        return NOT_HERE
    return None


def _turn_inside(m: Match, at: int) -> Node:
    flag = ("transA", "transB")[at]
    inputs = tuple(m["x"] if k == at else i for k, i in enumerate(m.root.inputs))
    return with_inputs(m.root.with_attrs(**{flag: 1 - int_attr(m.root, flag, 0)}), inputs)


def _rows_of(shape: Shape) -> Shape:
    return product(shape[:-1]), shape[-1]


def _is_of_rows(m: Match) -> str | None:
    """Guard: ``x`` has more than two dims, and another such product or a Reshape shares the Reshape that it needs."""
    x, w, row, out = m.shape("x"), m.shape("w"), m.shape("row"), m.out_shape
    if x is None or w is None or row is None or out is None or len(x) < 3 or len(w) != 2 or len(row) > 2:
        return NOT_HERE
    if any(d.value() != 1 for d in row[:-1]) or m.dtype("x").name not in _FLOATS:
        return NOT_HERE
    product_shape = tensor_shape(m.editor.value(m.node("product").outputs[0])) or ()
    if (*x[:-1], w[-1]) != product_shape or tensor_shape(m.editor.value(m.node("sum").outputs[0])) != product_shape:
        return NOT_HERE
    if _flattened(m) is None and not _other_products(m):
        return NOT_HERE
    return None if reshape_target(_rows_of(product_shape), out) is not None else "more than one unknown dim"


def _flattened(m: Match) -> str | None:
    """The rows of ``x`` where something has made them already, "" where ``x`` is a view that can be made as rows."""
    rows = _rows_of(m.shape("x") or ())
    for n in m.editor.users(m["x"]):
        if n.op == "Reshape" and n.inputs[0] == m["x"] and tensor_shape(m.editor.value(n.outputs[0])) == rows:
            return n.outputs[0]
    maker = m.editor.producer(m["x"])
    return "" if maker is not None and maker.op == "Reshape" and m.editor.use_count(m["x"]) == 1 else None


def _other_products(m: Match) -> bool:
    """True if another product of ``x`` with a matrix goes through a sum into a Reshape."""
    for n in m.editor.users(m["x"]):
        if n is m.node("product") or n.op != "MatMul" or n.inputs[0] != m["x"]:
            continue
        sums = m.editor.users(n.outputs[0])
        if all(s.op == "Add" and all(v.op == "Reshape" for v in m.editor.users(s.outputs[0])) for s in sums):
            return True
    return False


def _gemm_of_rows(m: Match) -> str:
    x, w = m.shape("x") or (), m.shape("w") or ()
    rows = _flattened(m) or reshape(m, m["x"], x, _rows_of(x))
    made = m.op("Gemm", rows, m["w"], m["row"])
    return reshape(m, made, _rows_of((*x[:-1], w[-1])), m.out_shape or ())


RULES: tuple[Rule, ...] = (
    Rule(
        "matmul_add_as_gemm",
        "Add(MatMul(a, b), c) --> Gemm(a, b, c), a and b matrices, c no larger than their product",
        P("Add", P("MatMul", "a", "b", at="product"), "c"),
        _with_sum,
        _is_matrix_product,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "add_into_gemm",
        "Add(Gemm(a, b), c) --> Gemm(a, b, c), c no larger than the product",
        P("Add", P("Gemm", "a", "b", None, at="product"), "c"),
        _with_sum,
        _gemm_without_sum,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "matmul_add_view_as_gemm",
        "Reshape(Add(MatMul(x, w), row)) --> Reshape(Gemm(Reshape(x), w, row)), w a matrix, the rows of x shared",
        P("Reshape", P("Add", P("MatMul", "x", "w", at="product"), "row", at="sum"), rest=True),
        _gemm_of_rows,
        _is_of_rows,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "transpose_into_gemm_left",
        "Gemm(Transpose(x), b, c) --> Gemm(x, b, c, transA=1)",
        P("Gemm", P("Transpose", "x", at="turn"), "b", rest=True),
        lambda m: _turn_inside(m, 0),
        _turned,
    ),
    Rule(
        "transpose_into_gemm_right",
        "Gemm(a, Transpose(x), c) --> Gemm(a, x, c, transB=1)",
        P("Gemm", "a", P("Transpose", "x", at="turn"), rest=True),
        lambda m: _turn_inside(m, 1),
        _turned,
    ),
)
