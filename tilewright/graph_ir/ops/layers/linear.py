"""Matrix products: MatMul, Gemm, their integer forms, Einsum, Det."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.core import dtypes
from tilewright.core.arith.expr import ONE
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import InferContext, Inferred, OpDef, table, tensor
from tilewright.graph_ir.ops.broadcasting import Dim, broadcast_onto, broadcast_operands, broadcast_together, dims_of
from tilewright.graph_ir.ops.shapes import merge_dims


def matmul_shape(ctx: InferContext, first: int, second: int) -> Shape:
    """Shape of numpy's matmul of two inputs."""
    a, b = ctx.shape(first), ctx.shape(second)
    ctx.require(len(a) > 0 and len(b) > 0, "operands of rank >= 1", f"ranks {len(a)} and {len(b)}")
    left = (ONE, *a) if len(a) == 1 else a
    right = (*b, ONE) if len(b) == 1 else b
    merge_dims(ctx, left[-1], right[-2], broadcast=False)
    batch = broadcast_operands(ctx, [dims_of(ctx, first)[:-2], dims_of(ctx, second)[:-2]])
    return (*batch, *(left[-2:-1] if len(a) > 1 else ()), *(right[-1:] if len(b) > 1 else ()))


def _matmul(ctx: InferContext) -> tuple[Inferred, ...]:
    to = ctx.dtype_attr("output_dtype")  # ours: the sums in this type, unrounded, of narrower operands
    same = to is not None or ctx.dtype(0) == ctx.dtype(1)
    ctx.require(same, f"inputs of one element type ({ctx.dtype(0)})", ctx.dtype(1))
    return (tensor(to or ctx.dtype(0), matmul_shape(ctx, 0, 1)),)


def _matmul_integer(ctx: InferContext) -> tuple[Inferred, ...]:
    _check_parameters(ctx, 0, -2, (2,))
    _check_parameters(ctx, 1, -1, (3,))
    return (tensor(dtypes.int32, matmul_shape(ctx, 0, 1)),)


def _qlinear_matmul(ctx: InferContext) -> tuple[Inferred, ...]:
    _check_parameters(ctx, 0, -2, (1, 2, 6, 7))
    _check_parameters(ctx, 3, -1, (4, 5))
    return (tensor(ctx.dtype(7), matmul_shape(ctx, 0, 3)),)


def _check_parameters(ctx: InferContext, operand: int, axis: int, parameters: Sequence[int]) -> None:
    """Scales and zero points of a matrix operand: one number, one an index of ``axis``, or those for each matrix."""
    dims = dims_of(ctx, operand)
    along = dims[axis] if len(dims) > 1 else None
    for i in parameters:
        own = dims_of(ctx, i) if ctx.has(i) else ()
        across = [d for k, d in enumerate(own) if len(own) > 1 and k - len(own) == -3 - axis]
        for d in across if along is not None else own:
            merge_dims(ctx, d.size, ONE, broadcast=False)
        if along is not None and own:
            broadcast_onto(ctx, [own[axis if len(own) > 1 else 0]], [along])
            broadcast_onto(ctx, own[:-2], dims[:-2])


def _gemm(ctx: InferContext) -> tuple[Inferred, ...]:
    a, b = dims_of(ctx, 0), dims_of(ctx, 1)
    ctx.require(len(a) == 2 and len(b) == 2, "matrices", f"ranks {len(a)} and {len(b)}")
    m, k = a[::-1] if ctx.int_attr("transA") else a
    k2, n = b[::-1] if ctx.int_attr("transB") else b
    merge_dims(ctx, k.size, k2.size, broadcast=False)
    if ctx.has(2):
        c = dims_of(ctx, 2)
        ctx.require(len(c) <= 2, "C of rank <= 2", len(c))
        broadcast_onto(ctx, c, (m, n))
    return (tensor(ctx.dtype(0), (m.size, n.size)),)


def parse_equation(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """Einsum subscripts as labels: one list per operand, then the output's. Ellipsis axes are ``...0`` to ``...n``.

    Raises ValueError for an equation that does not fit the ranks.
    """
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"{len(terms)} operands in {equation!r} for {len(ranks)} inputs")
    widest = max((r - len(t.replace("...", "")) for t, r in zip(terms, ranks, strict=True) if "..." in t), default=0)

    def labels(term: str, width: int) -> list[str]:
        before, dots, after = term.partition("...")
        middle = [f"...{i}" for i in range(widest - width, widest)] if dots else []
        return [*before, *middle, *after]

    operands = []
    for t, r in zip(terms, ranks, strict=True):
        width = r - len(t.replace("...", ""))
        if width < 0 or (width and "..." not in t):
            raise ValueError(f"subscripts {t!r} for an input of rank {r}")
        operands.append(labels(t, width))
    if arrow:
        output = labels(right, widest)
    else:
        letters = [c for c in left if c.isalpha()]
        output = [f"...{i}" for i in range(widest)] + sorted(c for c in set(letters) if letters.count(c) == 1)
    return operands, output


def _einsum(ctx: InferContext) -> tuple[Inferred, ...]:
    shapes = [dims_of(ctx, i) for i in range(len(ctx.inputs))]
    equation = ctx.str_attr("equation", "")
    try:
        operands, output = parse_equation(equation, [len(s) for s in shapes])
    except ValueError as e:
        ctx.error("an equation that fits the inputs", str(e))
    places: dict[str, list[Dim]] = {}
    for term, shape in zip(operands, shapes, strict=True):
        for label, d in zip(term, shape, strict=True):
            places.setdefault(label, []).append(d)
    sizes = {label: broadcast_together(ctx, dims) for label, dims in places.items()}
    missing = [x for x in output if x not in sizes]
    ctx.require(not missing, "output subscripts that occur in the inputs", f"{equation!r}")
    return (tensor(ctx.dtype(0), [sizes[x] for x in output]),)


def _det(ctx: InferContext) -> tuple[Inferred, ...]:
    s = ctx.shape(0)
    ctx.require(len(s) >= 2, "square matrices", f"rank {len(s)}")
    merge_dims(ctx, s[-1], s[-2], broadcast=False)
    return (tensor(ctx.dtype(0), s[:-2]),)


OPS = table(
    OpDef("MatMul", PatternKind.OUT_FUSABLE, _matmul, 2, 2, output_dtype=True, arithmetic=True),
    OpDef("Gemm", PatternKind.OUT_FUSABLE, _gemm, 2, 3, arithmetic=True),
    OpDef("MatMulInteger", PatternKind.OUT_FUSABLE, _matmul_integer, 2, 4, arithmetic=True),
    OpDef("QLinearMatMul", PatternKind.OUT_FUSABLE, _qlinear_matmul, 8, 8, arithmetic=True),
    OpDef("Einsum", PatternKind.OUT_FUSABLE, _einsum, 1, None, arithmetic=True),
    OpDef("Det", PatternKind.OPAQUE, _det, 1, 1, fold_limit=1 << 16),
)
