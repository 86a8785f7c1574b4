"""Einsum as MatMul, Mul, Transpose and ReduceSum, and one of three operands or more as several of two.

The kernels of products, attention, scales and integer products are found by patterns of MatMul. An Einsum has a kernel
of its own, which reads its operands and writes its result in any order of their axes without copies, but packs
constants in each run. So it stays where a product would need a copy that it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_letters

from tilewright.core.arith.expr import IntExpr, product
from tilewright.core.dtypes import DType
from tilewright.graph_ir.ops.layers.linear import parse_equation
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, Match, P, Rule, tensor_shape
from tilewright.graph_ir.rules.contractions.einsum_plan import Labels, Moved, Plan, Term, plans, view_of
from tilewright.graph_ir.rules.views import reshape

_TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32", "uint64")
"""Those that MatMul and ReduceSum take as well."""
_NARROW = ("float16", "bfloat16")
_ASSUMED = 128
"""What a size that is not known counts as where orders are compared."""


def _terms(m: Match) -> tuple[list[Term], Term] | str:
    """The terms of the operands and of the result; or why they say too little."""
    shapes = [tensor_shape(m.editor.value(i)) for i in m.root.inputs]
    out = m.out_shape
    known = [s for s in shapes if s is not None]
    if out is None or len(known) != len(shapes):
        return NOT_HERE
    equation = str(m.root.attr("equation", ""))
    labels, result = parse_equation(equation, [len(s) for s in known])
    if any(len(set(t)) != len(t) for t in (*labels, result)):
        return f"a label stands twice in a term of {equation!r}"
    terms: list[Term] = [dict(zip(t, s, strict=True)) for t, s in zip(labels, known, strict=True)]
    return terms, dict(zip(result, out, strict=True))


def _dtype(m: Match) -> DType:
    return m.editor.value(m.root.inputs[0]).dtype


def _cheapest(m: Match) -> Plan | str:
    """The plan with the fewest copies, of those the one with the fewest nodes; or why there is none."""
    if len(m.root.inputs) > 2:
        return NOT_HERE
    found = _terms(m)
    if isinstance(found, str):
        return found
    if (t := _dtype(m).name) not in _TYPES:
        return f"MatMul and ReduceSum have no {t}"
    terms, out = found
    free = [m.editor.constant(i) is not None and m.editor.use_count(i) == 1 for i in m.root.inputs]
    every = [p for p in plans(terms, out, free) if t not in _NARROW or not _rounds_between(p)]
    if every:
        return min(every, key=lambda p: (p.copies, p.nodes))
    if (label := _uneven(terms, out)) is not None:
        return f"sizes {', '.join(str(t[label]) for t in terms)} of label {label} may differ"
    return f"{t} would be rounded between two sums" if t in _NARROW else "a view would have more than one open size"


def _rounds_between(plan: Plan) -> bool:
    """True if the sums are not those of one node, which adds in a wider type."""
    return bool(plan.op) and (bool(plan.summed) or any(moved.summed for _, moved in plan.operands))


def _uneven(terms: list[Term], out: Term) -> str | None:
    """A label that is summed, and whose sizes in two terms need not be equal."""
    first, *others = terms
    return next((x for x, d in first.items() for t in others if x in t and x not in out and t[x] != d), None)


def _is_one_node(m: Match) -> str | None:
    plan = _cheapest(m)
    return NOT_HERE if isinstance(plan, str) or plan.nodes > 1 else None


def _needs_no_copy(m: Match) -> str | None:
    plan = _cheapest(m)
    if isinstance(plan, str):
        return plan
    if plan.copies and not any(moved.summed for _, moved in plan.operands):
        return f"{plan.copies} tensors would be copied to lie as MatMul has them"
    return None


def _as_nodes(m: Match) -> str:
    plan = _cheapest(m)
    if isinstance(plan, str):
        return m.output
    parts = [_move(m, m.root.inputs[k], moved) for k, moved in plan.operands]
    out = m.op(plan.op, *parts) if plan.op else parts[0]
    out = _sum(m, out, plan.summed)
    out = _move(m, out, plan.result)
    return m.op("Identity", out) if out in m.root.inputs else out


def _sum(m: Match, x: str, axes: tuple[int, ...]) -> str:
    return m.op("ReduceSum", x, m.const([*axes]), keepdims=0) if axes else x


def _move(m: Match, x: str, moved: Moved) -> str:
    x, at = _sum(m, x, moved.summed), moved.source
    if moved.first is not None:
        x, at = _view(m, x, at, moved.first), moved.first
    if moved.perm is not None:
        x, at = m.op("Transpose", x, perm=moved.perm), tuple(at[p] for p in moved.perm)
    return x if moved.last is None else _view(m, x, at, moved.last)


def _view(m: Match, x: str, source: tuple[IntExpr, ...], target: tuple[IntExpr, ...]) -> str:
    op, operand = view_of(source, target) or ("Reshape", [])
    return reshape(m, x, source, target) if op == "Reshape" else m.op(op, x, m.const(operand))


# -- three operands or more -------------------------------------------------------------------------------------------
def _many(m: Match) -> tuple[list[Term], Term] | str:
    if len(m.root.inputs) < 3:
        return NOT_HERE
    found = _terms(m)
    if isinstance(found, str):
        return found
    terms, out = found
    if _dtype(m).name in _NARROW:
        return f"{_dtype(m)} would be rounded between two sums"
    sizes: dict[str, IntExpr] = {}
    for t in terms:
        for x, d in t.items():
            if sizes.setdefault(x, d) != d:
                return f"sizes {sizes[x]}, {d} of label {x} may differ"
    return NOT_HERE if len(sizes) > len(ascii_letters) else (terms, out)


def _pairs(terms: list[Term], out: Term) -> Iterator[tuple[int, int, Labels]]:
    """Two places, and the labels of their product that others need."""
    for k, a in enumerate(terms):
        for n in range(k + 1, len(terms)):
            readers = [out, *(t for i, t in enumerate(terms) if i not in (k, n))]
            kept = {x: None for x in (*a, *terms[n]) if any(x in t for t in readers)}
            order = next((t for t in readers if all(x in t for x in kept)), kept)
            yield k, n, tuple(x for x in order if x in kept)


def _cost(terms: list[Term], pair: tuple[int, int, Labels]) -> tuple[int, int]:
    """Of the product of two terms, multiply-adds and the size of its result."""
    k, n, kept = pair
    sizes = {**terms[k], **terms[n]}

    def assumed(labels: Iterator[str]) -> int:
        size = product(sizes[x] for x in labels)
        return size.evaluate(dict.fromkeys(size.free_vars(), _ASSUMED))

    return assumed(iter(sizes)), assumed(iter(kept))


def _two_first(m: Match) -> str:
    found = _many(m)
    if isinstance(found, str):
        return m.output
    terms, out = found
    k, n, kept = min(_pairs(terms, out), key=lambda pair: _cost(terms, pair))
    letters = dict(zip(dict.fromkeys(x for t in terms for x in t), ascii_letters, strict=False))

    def term(labels: Iterator[str]) -> str:
        return "".join(letters[x] for x in labels)

    left, right = term(iter(terms[k])), term(iter(terms[n]))
    pair = m.op("Einsum", m.root.inputs[k], m.root.inputs[n], equation=f"{left},{right}->{term(iter(kept))}")
    rest = [i for i in range(len(terms)) if i != n]
    operands = [pair if i == k else m.root.inputs[i] for i in rest]
    names = ",".join(term(iter(kept if i == k else terms[i])) for i in rest)
    return m.op("Einsum", *operands, equation=f"{names}->{term(iter(out))}")


_EINSUM = P("Einsum", "x", rest=True)

RULES: tuple[Rule, ...] = (
    Rule(
        "einsum_as_one_node",
        "Einsum --> MatMul, Mul, Transpose or ReduceSum where one node does it; axes of constants move at build time",
        _EINSUM,
        _as_nodes,
        _is_one_node,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "einsum_as_product",
        "Einsum(x, y) --> MatMul(x', y') or Mul, with Transpose, ReduceSum and views, where no tensor has to be copied",
        _EINSUM,
        _as_nodes,
        _needs_no_copy,
        Exactness.REASSOCIATING,
    ),
    Rule(
        "einsum_of_pairs",
        "Einsum(x, y, z) --> Einsum(Einsum(x, y), z), the cheapest two first",
        _EINSUM,
        _two_first,
        lambda m: found if isinstance(found := _many(m), str) else None,
        Exactness.REASSOCIATING,
    ),
)
