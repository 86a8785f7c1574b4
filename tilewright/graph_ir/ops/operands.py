"""Shapes that an operator's inputs must have, in the notation of the ONNX operator pages.

Grammar::

    forms ::= form ("," form)*           one an input, in order; an input that is not there is skipped
    form  ::= "" | dims ("|" dims)*      "": any shape. Of several forms, the one with the input's rank
    dims  ::= "()" | dim (" " dim)*      "()": a scalar
    dim   ::= number | [number] name | "..."

A name is one size wherever it occurs, ``4h`` is four times it, ``...`` stands for any dims. Sizes that are not known to
differ are assumed equal; the runtime checks that at each call.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

from tilewright.core.arith.expr import IntExpr, const, product
from tilewright.core.arith.minmax import minimum
from tilewright.core.assumptions import Ones
from tilewright.graph_ir.ir import Shape, TensorType
from tilewright.graph_ir.ops.base import InferContext
from tilewright.graph_ir.ops.shapes import decide_less

_Dims: TypeAlias = tuple[str, ...]
_REST = "..."


@lru_cache(maxsize=256)
def _parsed(forms: str) -> tuple[tuple[_Dims, ...], ...]:
    """For each input the forms it may have; none for any."""
    return tuple(
        tuple(tuple(d for d in dims.split() if d != "()") for dims in form.split("|")) if form.strip() else ()
        for form in forms.split(",")
    )


def match_operands(ctx: InferContext, forms: str, **sizes: IntExpr | int) -> None:
    """Check the inputs' shapes; ``sizes``: names that are known. An input of unknown rank is not looked at."""
    known = {name: const(d) if isinstance(d, int) else d for name, d in sizes.items()}
    for i, allowed in enumerate(_parsed(forms)):
        if not allowed or not ctx.has(i):
            continue
        t = ctx.tensor_type(i)
        if t.shape is not None:
            _match(ctx, i, t, t.shape, allowed, known)


def _match(
    ctx: InferContext, i: int, t: TensorType, shape: Shape, allowed: tuple[_Dims, ...], known: dict[str, IntExpr]
) -> None:
    dims = next((d for d in allowed if len(d) == len(shape) or (_REST in d and len(d) - 1 <= len(shape))), None)
    if dims is None:
        ctx.error(_expected(i, allowed), str(t))
    if _REST in dims:
        at = dims.index(_REST)
        after = len(dims) - at - 1
        shape = (*shape[:at], *shape[len(shape) - after :])
        dims = (*dims[:at], *dims[at + 1 :])
    for dim, size in zip(dims, shape, strict=True):
        want = _wanted(dim, known)
        if want is None:
            known[dim] = size
        elif want.is_const and size.is_const and want != size:
            ctx.error(f"{_expected(i, allowed)} with {_told(dims, known)}", str(t))
        else:
            ctx.assume(want, size, Ones.NEITHER)


def _expected(i: int, allowed: tuple[_Dims, ...]) -> str:
    return f"a shape [{' or '.join(' '.join(d) for d in allowed)}] of input {i}"


def _wanted(dim: str, known: Mapping[str, IntExpr]) -> IntExpr | None:
    """The size of a dim, or None for a name that occurs the first time."""
    factor, name = _factor_and_name(dim)
    if not name:
        return const(int(factor))
    return known[name] * int(factor) if factor else known.get(name)


@lru_cache(maxsize=256)
def _factor_and_name(dim: str) -> tuple[str, str]:
    parts = re.fullmatch(r"(\d*)([a-z]*)", dim)
    if parts is None or not dim:
        raise ValueError(f"expected a number, a name or both as a dim, got {dim!r}")
    return parts[1], parts[2]


def _told(dims: _Dims, known: Mapping[str, IntExpr]) -> str:
    names = dict.fromkeys(d.lstrip("0123456789") for d in dims)
    return ", ".join(f"{n} = {known[n]}" for n in names if n in known) or "these sizes"


def match_same(ctx: InferContext, i: int, j: int) -> None:
    """Input ``i`` must have the shape of input ``j``."""
    if not ctx.has(i) or ctx.tensor_type(i).shape is None or ctx.tensor_type(j).shape is None:
        return
    own, other = ctx.shape(i), ctx.shape(j)
    unlike = any(a.is_const and b.is_const and a != b for a, b in zip(own, other, strict=False))
    if len(own) != len(other) or unlike:
        ctx.error(f"input {i} like input {j}, {ctx.value(j).type}", str(ctx.value(i).type))
    for a, b in zip(own, other, strict=True):
        ctx.assume(b, a)


def require_single(ctx: InferContext, *inputs: int) -> None:
    """These inputs must have one element, of whatever rank."""
    for i in inputs:
        if not ctx.has(i) or ctx.tensor_type(i).shape is None:
            continue
        count = product(ctx.shape(i))
        if count.is_const and count != 1:
            ctx.error(f"one element as input {i}", str(ctx.value(i).type))
        ctx.assume(count, const(1))


def require_at_most(ctx: InferContext, what: str, size: IntExpr, limit: IntExpr) -> None:
    """A size that must not be larger than another one."""
    ctx.require(decide_less(limit, size) is not True, f"{what} <= {limit}", size)
    if decide_less(limit, size) is None:
        ctx.assume(minimum(size, limit), size)
