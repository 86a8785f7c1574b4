"""Matrix products in one canonical form: MatMul with an Add behind it; chains of them in the cheapest order."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from tilewright.core.arith.bounds import is_nonneg
from tilewright.core.arith.expr import ONE, ZERO, IntExpr, product, var
from tilewright.graph_ir.ir import Shape
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.fold_constants import GROWTH_BYTES
from tilewright.graph_ir.rules.base import NOT_HERE, C, Either, Match, Operand, P, Rule, int_attr, tensor_shape


def _factor(m: Match, key: str) -> float:
    v = m.root.attr(key, 1.0)
    return float(v) if isinstance(v, int | float) else 1.0


def _matrix(m: Match, name: str, transposed: bool) -> str:
    """The operand as it enters MatMul. A constant is turned by a view, never by a copy."""
    if not transposed:
        return name
    constant = m.editor.constant(name)
    if constant is not None:
        return m.editor.add_constant(constant.transposed(), f"{name}.T")
    return m.op("Transpose", name, perm=(1, 0))


def _scaled(m: Match, name: str, factor: float) -> str:
    if factor == 1.0:
        return name
    array = m.editor.array(name)
    if array is not None:
        return m.editor.add_constant((array * np.asarray(factor)).astype(array.dtype), f"{name}.scaled")
    dtype = m.editor.value(m.root.inputs[0]).dtype.numpy
    return m.op("Mul", name, m.editor.add_constant(np.asarray(factor, dtype=dtype), f"{name}.factor"))


def product_and_bias(m: Match) -> str:
    """A Gemm as MatMul and, where it has a third operand, Add."""
    a = _matrix(m, m.root.inputs[0], bool(int_attr(m.root, "transA", 0)))
    b = _matrix(m, m.root.inputs[1], bool(int_attr(m.root, "transB", 0)))
    product, beta = _scaled(m, m.op("MatMul", a, b), _factor(m, "alpha")), _factor(m, "beta")
    bias = m.root.inputs[2] if len(m.root.inputs) > 2 else ""
    return m.op("Add", product, _scaled(m, bias, beta)) if bias and beta != 0.0 else product


def _whole_factors(m: Match) -> str | None:
    if m.dtype("a").is_integer and not (_factor(m, "alpha").is_integer() and _factor(m, "beta").is_integer()):
        return "alpha or beta is a fraction and the matrices are integers"
    return None


def _one_factor(m: Match) -> str | None:
    if m.dtype("x").name not in ("float32", "float64", "bfloat16"):
        return "the unscaled product could leave the range of the element type" if m.dtype("x").is_float else NOT_HERE
    if m.constant("c").size != 1:
        return "the factor is not one number"
    if m.shape("x") is None or m.shape("x") != m.editor.value(m.node("scaled").outputs[0]).shape:
        return NOT_HERE
    return None


def _scale_after(m: Match) -> str:
    c = m.array("c").reshape(())
    operands = (m["x"], m["y"]) if m.root.inputs[0] == m.node("scaled").outputs[0] else (m["y"], m["x"])
    return m.op("Mul", m.op("MatMul", *operands), m.editor.add_constant(c, f"{m.output}.factor"))


@dataclass(frozen=True, slots=True)
class _Product:
    """A part of a chain in some order: what it costs in multiply-adds, and what makes it."""

    cost: IntExpr
    shape: Shape
    numbers: int | None
    """Of a part that only constants make, how many; such a part costs a run nothing."""
    made: str | tuple[_Product, _Product]


_CHAIN = 8
"""Operands of a chain whose orders are compared."""


def _leaves(m: Match, name: str, above: int = 0) -> list[str]:
    """The operands of the chain of products, each read by the next one only, that ends in ``name``. ``above``: how many
    of its products are behind this one; of a longer chain, the last ones are looked at."""
    ed, node = m.editor, m.editor.producer(name)
    if node is None or node.op != "MatMul" or node.domain or above == _CHAIN - 1:
        return [name]
    if above and (ed.use_count(name) != 1 or ed.is_output(name)):
        return [name]
    return [leaf for i in node.inputs for leaf in _leaves(m, i, above + 1)]


def _leaf(m: Match, name: str) -> _Product | None:
    shape, constant = tensor_shape(m.editor.value(name)), m.editor.constant(name)
    if shape is None or len(shape) < 2:
        return None
    if constant is not None and m.editor.use_count(name) > 1 and constant.nbytes > GROWTH_BYTES:
        constant = None  # it would be in memory twice
    return _Product(ZERO, shape, None if constant is None else constant.size, name)


def _joined(a: _Product, b: _Product) -> _Product | None:
    """The product of two parts; None if the sizes do not say what their leading dims broadcast to, or if both are
    constants whose product has more numbers than they have."""
    batch: list[IntExpr] = []
    rank = max(len(a.shape), len(b.shape))
    for x, y in zip(_padded(a.shape, rank)[:-2], _padded(b.shape, rank)[:-2], strict=True):
        if x != y and 1 not in (x.value(), y.value()):
            return None
        batch.append(y if x.value() == 1 else x)
    shape = (*batch, a.shape[-2], b.shape[-1])
    if a.numbers is not None and b.numbers is not None:
        size = product(shape).value()
        return _Product(ZERO, shape, size, (a, b)) if size is not None and size <= a.numbers + b.numbers else None
    return _Product(a.cost + b.cost + product(shape) * a.shape[-1], shape, None, (a, b))


def _padded(shape: Shape, rank: int) -> Shape:
    return (ONE,) * (rank - len(shape)) + shape


def _in_given_order(m: Match, name: str, leaves: set[str]) -> _Product | None:
    if name in leaves:
        return _leaf(m, name)
    node = m.editor.producer(name)
    parts = [_in_given_order(m, i, leaves) for i in node.inputs] if node is not None else []
    a, b = parts if len(parts) == 2 else (None, None)
    return None if a is None or b is None else _joined(a, b) or _unjoined(a, b)


def _unjoined(a: _Product, b: _Product) -> _Product | None:
    """The product of two constants that is not worth its memory, computed in each run."""
    if a.numbers is None or b.numbers is None:
        return None
    return _joined(dataclasses.replace(a, numbers=None), b)


def _is_at_most(a: IntExpr, b: IntExpr) -> bool:
    """True if ``a <= b`` for all sizes; of what is empty, the cost does not matter."""
    d = b - a
    return is_nonneg(d.substitute({s: var(s) + 1 for s in d.free_vars()}), {})


def _cheapest(parts: list[_Product]) -> _Product | str | None:
    """The cheapest order; the sizes on which it depends, as a reason; or None."""
    best: dict[tuple[int, int], _Product] = {(k, k + 1): p for k, p in enumerate(parts)}
    for width in range(2, len(parts) + 1):
        for i in range(len(parts) - width + 1):
            for k in range(i + 1, i + width):
                a, b = best.get((i, k)), best.get((k, i + width))
                made = None if a is None or b is None else _joined(a, b)
                if made is None:
                    continue
                other = best.get((i, i + width))
                if other is None or _is_at_most(made.cost, other.cost):
                    best[i, i + width] = made
                elif not _is_at_most(other.cost, made.cost):
                    return f"the cheaper order depends on {', '.join(sorted((other.cost - made.cost).free_vars()))}"
    return best.get((0, len(parts)))


def _better_order(m: Match) -> _Product | str:
    ed = m.editor
    if ed.use_count(m.output) == 1 and not ed.is_output(m.output) and ed.users(m.output)[0].op == "MatMul":
        return NOT_HERE  # the chain goes on, and is seen from its end
    names = _leaves(m, m.output)
    if not 3 <= len(names) <= _CHAIN or len(set(names)) != len(names):
        return NOT_HERE
    leaves = [_leaf(m, n) for n in names]
    now = _in_given_order(m, m.output, set(names))
    if now is None or any(x is None for x in leaves):
        return NOT_HERE
    found = _cheapest([x for x in leaves if x is not None])
    if found is None or isinstance(found, str):
        return found or NOT_HERE
    return found if found.cost != now.cost and _is_at_most(found.cost, now.cost) else NOT_HERE


def _chain(m: Match) -> str | None:
    found = _better_order(m)
    return found if isinstance(found, str) else None


def _reorder(m: Match) -> str:
    def make(p: _Product) -> str:
        if isinstance(p.made, str):
            return p.made
        return m.op("MatMul", make(p.made[0]), make(p.made[1]))

    found = _better_order(m)
    return m.output if isinstance(found, str) else make(found)


def _gemm(*operands: Operand) -> P:
    return P("Gemm", *operands)


_SCALED = P("Mul", "x", C("c"), at="scaled")

RULES: tuple[Rule, ...] = (
    Rule(
        "gemm_bias",
        "Gemm(a, b, c) --> Add(MatMul(a', b') * alpha, c * beta)",
        _gemm("a", "b", "c"),
        product_and_bias,
        _whole_factors,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "gemm",
        "Gemm(a, b) --> MatMul(a', b') * alpha",
        _gemm("a", "b", None),
        product_and_bias,
        _whole_factors,
        Exactness.REASSOCIATING,
    ),
    *(
        Rule(
            f"scale_after_matmul_{side}",
            "MatMul(x * c, y) --> MatMul(x, y) * c, c one number",
            P("MatMul", _SCALED, "y") if side == "left" else P("MatMul", "y", _SCALED),
            _scale_after,
            _one_factor,
            Exactness.REASSOCIATING,
            exclusive=True,
        )
        for side in ("left", "right")
    ),
)

CHAINS: tuple[Rule, ...] = (
    Rule(
        "matmul_chain",
        "MatMul(MatMul(a, b), c) --> MatMul(a, MatMul(b, c)), or back, and longer chains: the order with the fewest"
        " multiply-adds; products of constants cost nothing where they have no more numbers than their operands",
        Either(P("MatMul", P("MatMul", "a", "b"), "c"), P("MatMul", "a", P("MatMul", "b", "c"))),
        _reorder,
        _chain,
        Exactness.REASSOCIATING,
    ),
)
