"""Operators of the ``com.microsoft`` domain that are spellings of standard ones, or several of them in one."""

from __future__ import annotations

from tilewright.core.errors import UnsupportedError
from tilewright.frontend.build import Call, GraphBuilder
from tilewright.frontend.ops.rule import Family, contrib


def _gelu(call: Call, build: GraphBuilder) -> None:
    build.emit_to("Gelu", (call.input(0),), call.outputs, {"approximate": "none"})


def _bias_gelu(call: Call, build: GraphBuilder) -> None:
    """Gelu of input plus bias; FastGelu is the tanh form with an optional bias."""
    x = call.input(0)
    if call.input(1):
        x = build.emit("Add", (x, call.input(1)), "biased")
    build.emit_to("Gelu", (x,), call.outputs, {"approximate": "tanh" if call.op == "FastGelu" else "none"})


def _quick_gelu(call: Call, build: GraphBuilder) -> None:
    """x * sigmoid(alpha * x)."""
    x = call.input(0)
    scaled = build.emit("Mul", (x, build.scalar_like(call.float_attr("alpha", 1.702), x, "alpha")), "scaled")
    build.emit_to("Mul", (x, build.emit("Sigmoid", (scaled,))), call.outputs, {})


def _fused_matmul(call: Call, build: GraphBuilder) -> None:
    """alpha * A' @ B': the last two axes turned by transA, the first one moved in front of the last by transBatchA."""
    a, b = (_turned(call, build, i, key) for i, key in ((0, "A"), (1, "B")))
    alpha = call.float_attr("alpha", 1.0)
    if alpha == 1.0:
        build.emit_to("MatMul", (a, b), call.outputs, {})
        return
    product = build.emit("MatMul", (a, b), "product")
    build.emit_to("Mul", (product, build.scalar_like(alpha, call.input(0), "alpha")), call.outputs, {})


def _turned(call: Call, build: GraphBuilder, i: int, key: str) -> str:
    x = call.input(i)
    last, batch = (call.int_attr(f"{k}{key}", 0) for k in ("trans", "transBatch"))
    if not last and not batch:
        return x
    rank = build.rank(x)
    if rank is None:
        raise UnsupportedError(f"node '{call.name}' ({call.op}): input {i} has an unknown rank")
    if rank < (3 if batch else 2):
        return x  # a vector is what it is
    order = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    if last:
        order[-2:] = order[:-3:-1]
    return build.emit("Transpose", (x,), "turned", perm=tuple(order))


RULES: Family = {
    "Gelu": contrib((0,), _gelu, ("Gelu",)),
    "BiasGelu": contrib((0, 1), _bias_gelu, ("Gelu", "Add")),
    "FastGelu": contrib((0,), _bias_gelu, ("Gelu", "Add")),
    "QuickGelu": contrib((0,), _quick_gelu, ("Mul", "Sigmoid")),
    "FusedMatMul": contrib((0, 1), _fused_matmul, ("MatMul", "Mul", "Transpose")),
    "TransposeMatMul": contrib((0, 1), _fused_matmul, ("MatMul", "Mul", "Transpose")),
}
