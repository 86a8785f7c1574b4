"""How a Transpose moves from an operator's inputs to its outputs, one function an operator family.

Throughout, ``y = Transpose(a, q)`` is called *y with the alternative a*; ``perm`` is the inverse of ``q``, so that
``a == Transpose(y, perm)`` and axis ``k`` of ``a`` is axis ``perm[k]`` of ``y``. A move gives, for each output of the
node, the value in the alternative layout and its perm, or a reason why not ("" where nothing could move).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilewright.core.arith.expr import product
from tilewright.graph_ir.ir import Node, Shape, TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import op_def
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import int_attr, ints_attr, known_ints, tensor_shape
from tilewright.graph_ir.rules.views import reshape_target

Perm: TypeAlias = tuple[int, ...]
Moved: TypeAlias = "list[tuple[str, Perm]] | str"

FLATTEN_WEIGHT_BYTES = 1 << 30


def inverse(perm: Perm) -> Perm:
    """The permutation that undoes ``perm``."""
    out = [0] * len(perm)
    for k, p in enumerate(perm):
        out[p] = k
    return tuple(out)


def channels_last_perm(rank: int) -> Perm:
    """N, C, spatial... to N, spatial..., C."""
    return (0, *range(2, rank), 1)


@dataclass(frozen=True, slots=True)
class Mover:
    """An editor and the policy: ``eager`` moves through nodes with several operands even if that only breaks even,
    provided the alternative is channels-last."""

    ed: GraphEditor
    eager: bool

    def alternative(self, name: str) -> tuple[str, Perm] | None:
        """``(a, perm)`` if ``name`` is a Transpose of ``a``."""
        node = self.ed.producer(name)
        shape = self.shape(name)
        if node is None or node.op != "Transpose" or shape is None:
            return None
        q = ints_attr(node, "perm") or tuple(reversed(range(len(shape))))
        return node.inputs[0], inverse(q)

    def shape(self, name: str) -> Shape | None:
        return tensor_shape(self.ed.value(name))

    def moved(self, name: str, perm: Perm) -> str:
        """``name`` in the layout ``perm``; of rank ``len(perm)`` (leading ones are added)."""
        ed, shape = self.ed, self.shape(name)
        if shape is None or all(d.value() == 1 for d in shape):
            return name
        rank = len(perm)
        array = ed.array(name)
        if array is not None:
            full = array.reshape((1,) * (rank - array.ndim) + array.shape)
            return ed.add_constant(np.transpose(full, perm), f"{name}.moved")
        alt = self.alternative(name)
        if alt is not None and len(alt[1]) == rank:
            back = inverse(alt[1])
            combined = tuple(back[p] for p in perm)
            return alt[0] if combined == tuple(range(rank)) else self.transpose(alt[0], combined)
        if len(shape) < rank:
            axes = ed.add_constant(np.arange(rank - len(shape), dtype=np.int64), f"{name}.axes")
            name = ed.add("Unsqueeze", (name, axes), hint=f"{name}.ranked")[0]
        return self.transpose(name, perm)

    def transpose(self, name: str, perm: Perm) -> str:
        return self.ed.add("Transpose", (name,), {"perm": perm}, hint=f"{name}.moved")[0]

    def cheap_to_turn(self, name: str, out_shape: Shape) -> bool:
        """True for constants and for operands that broadcast (they are smaller than the result)."""
        shape = self.shape(name)
        if self.ed.constant(name) is not None or shape is None or len(shape) < len(out_shape):
            return True
        return any(a.value() == 1 and b.value() != 1 for a, b in zip(shape, out_shape, strict=True))

    def worth(self, perm: Perm, operands: list[str], out_shape: Shape) -> str | None:
        """None if moving through a node with these operands pays; else the reason."""
        have = [n for n in operands if (alt := self.alternative(n)) is not None and alt[1] == perm]
        lack = [n for n in operands if n not in have and not self.cheap_to_turn(n, out_shape)]
        if self.eager and perm == channels_last_perm(len(perm)):
            enough = len(lack) <= len(have)
            return None if enough else f"{len(lack)} operands would need a Transpose, {len(have)} have one"
        if lack:
            return f"operand '{lack[0]}' would need a Transpose"
        shared = [n for n in have if self.ed.use_count(n) > operands.count(n)]
        return f"'{shared[0]}' has other readers" if shared else None


def move(mover: Mover, node: Node) -> Moved:
    """The node in an alternative layout of its operands."""
    handler = _HANDLERS.get(node.op)
    if handler is not None:
        return handler(mover, node)
    op = op_def(node)
    if op.kind is PatternKind.REDUCTION and op.shape_operands:
        return _reduce(mover, node)
    if op.is_elementwise and len(node.outputs) == 1:
        return _elementwise(mover, node)
    return ""


def _first_alternative(mover: Mover, names: tuple[str, ...], rank: int) -> Perm | None:
    for n in names:
        alt = mover.alternative(n) if n else None
        if alt is not None and len(alt[1]) == rank:
            return alt[1]
    return None


def _elementwise(mover: Mover, node: Node) -> Moved:
    out = mover.shape(node.outputs[0])
    perm = None if out is None else _first_alternative(mover, node.inputs, len(out))
    if out is None or perm is None:
        return ""
    reason = mover.worth(perm, [i for i in node.inputs if i], out)
    if reason is not None:
        return reason
    if any(i and mover.shape(i) is None for i in node.inputs):
        return "an operand's rank is unknown"
    inputs = tuple(mover.moved(i, perm) if i else "" for i in node.inputs)
    return [(_again(mover, node, inputs)[0], perm)]


def _quantize(mover: Mover, node: Node) -> Moved:
    alt = mover.alternative(node.inputs[0])
    if alt is None:
        return ""
    a, perm = alt
    reason = mover.worth(perm, [node.inputs[0]], mover.shape(node.inputs[0]) or ())
    if reason is not None or int_attr(node, "block_size", 0):
        return reason or "blocked quantization"
    scale = mover.shape(node.inputs[1])
    if scale is None:
        return "the scale's rank is unknown"
    attrs = dict(node.attrs)
    if scale:
        attrs["axis"] = perm.index(int_attr(node, "axis", 1) % len(perm))
    return [(mover.ed.add(node.op, (a, *node.inputs[1:]), attrs, hint=node.outputs[0])[0], perm)]


def _look_up(mover: Mover, node: Node) -> Moved:
    alt = _one_operand(mover, node)
    return alt if isinstance(alt, str) else [(_again(mover, node, (alt[0], node.inputs[1]))[0], alt[1])]


def _again(mover: Mover, node: Node, inputs: tuple[str, ...], **changes: object) -> tuple[str, ...]:
    attrs = dict(node.attrs) | changes
    return mover.ed.add(node.op, inputs, attrs, hint=node.outputs[0], n_outputs=len(node.outputs), stands_for=node)  # type: ignore[arg-type]


def _concat(mover: Mover, node: Node) -> Moved:
    out = mover.shape(node.outputs[0])
    perm = None if out is None else _first_alternative(mover, node.inputs, len(out))
    if out is None or perm is None:
        return ""
    reason = mover.worth(perm, list(node.inputs), out)
    if reason is not None:
        return reason
    axis = int_attr(node, "axis", 0) % len(perm)
    inputs = tuple(mover.moved(i, perm) for i in node.inputs)
    return [(_again(mover, node, inputs, axis=perm.index(axis))[0], perm)]


def _one_operand(mover: Mover, node: Node) -> tuple[str, Perm] | str:
    """The first operand's alternative, if moving through a node that reads it pays."""
    alt = mover.alternative(node.inputs[0])
    if alt is None:
        return ""
    reason = mover.worth(alt[1], [node.inputs[0]], mover.shape(node.inputs[0]) or ())
    return alt if reason is None else reason


def _along_axis(default: int) -> Callable[[Mover, Node], Moved]:
    """Operators with one ``axis`` attribute that keep the rank (Softmax, Split, ...)."""

    def run(mover: Mover, node: Node) -> Moved:
        alt = _one_operand(mover, node)
        if isinstance(alt, str):
            return alt
        a, perm = alt
        axis = perm.index(int_attr(node, "axis", default) % len(perm))
        outs = _again(mover, node, (a, *node.inputs[1:]), axis=axis)
        return [(o, perm) for o in outs]

    return run


def _const_ints(mover: Mover, values: list[int], hint: str) -> str:
    return mover.ed.add_constant(np.asarray(values, dtype=np.int64), hint)


def _slice(mover: Mover, node: Node) -> Moved:
    alt = _one_operand(mover, node)
    if isinstance(alt, str):
        return alt
    a, perm = alt
    starts = mover.shape(node.inputs[1])
    given = node.inputs[3] if len(node.inputs) > 3 else ""
    axes = known_ints(mover.ed, given) if given else None
    if axes is None and not given and starts is not None and starts[0].is_const:
        axes = tuple(range(starts[0].const))
    if axes is None:
        return "the axes are not known"
    new = _const_ints(mover, [perm.index(x % len(perm)) for x in axes], f"{node.outputs[0]}.axes")
    return [(_again(mover, node, (a, node.inputs[1], node.inputs[2], new, *node.inputs[4:]))[0], perm)]


def _pad(mover: Mover, node: Node) -> Moved:
    alt = _one_operand(mover, node)
    if isinstance(alt, str):
        return alt
    a, perm = alt
    rank = len(perm)
    given = node.inputs[3] if len(node.inputs) > 3 else ""
    value = node.inputs[2] if len(node.inputs) > 2 else ""
    if given:
        axes = known_ints(mover.ed, given)
        if axes is None:
            return "the axes are not known"
        new = _const_ints(mover, [perm.index(x % rank) for x in axes], f"{node.outputs[0]}.axes")
        return [(_again(mover, node, (a, node.inputs[1], value, new))[0], perm)]
    pads = known_ints(mover.ed, node.inputs[1])
    if pads is None:
        return "the pads are not known"
    turned = [pads[p] for p in perm] + [pads[rank + p] for p in perm]
    name = _const_ints(mover, turned, f"{node.outputs[0]}.pads")
    return [(_again(mover, node, (a, name, *((value,) if value else ())))[0], perm)]


def _reduced(mover: Mover, node: Node, a: str, perm: Perm, axes: tuple[int, ...], **changes: object) -> Moved:
    """A reduction over ``axes`` of the original, as one over the alternative."""
    if int_attr(node, "keepdims", 1):
        out_perm = perm
    else:
        kept = [x for x in range(len(perm)) if x not in axes]
        out_perm = tuple(kept.index(p) for p in perm if p not in axes)
    if "axis" in changes:
        return [(_again(mover, node, (a,), **changes)[0], out_perm)]
    new = _const_ints(mover, sorted(perm.index(x) for x in axes), f"{node.outputs[0]}.axes")
    return [(_again(mover, node, (a, new))[0], out_perm)]


def _reduce(mover: Mover, node: Node) -> Moved:
    alt = _one_operand(mover, node)
    if isinstance(alt, str):
        return alt
    a, perm = alt
    given = node.inputs[1] if len(node.inputs) > 1 else ""
    axes = known_ints(mover.ed, given) if given else ()
    if axes is None:
        return "the axes are not known"
    if not axes:
        if int_attr(node, "noop_with_empty_axes", 0):
            return ""
        axes = tuple(range(len(perm)))
    return _reduced(mover, node, a, perm, tuple(x % len(perm) for x in axes))


def _arg_reduce(mover: Mover, node: Node) -> Moved:
    alt = _one_operand(mover, node)
    if isinstance(alt, str):
        return alt
    a, perm = alt
    axis = int_attr(node, "axis", 0) % len(perm)
    return _reduced(mover, node, a, perm, (axis,), axis=perm.index(axis))


def _transpose(mover: Mover, node: Node) -> Moved:
    alt = mover.alternative(node.inputs[0])
    if alt is None:
        return ""
    a, perm = alt
    q = ints_attr(node, "perm") or tuple(reversed(range(len(perm))))
    back = inverse(perm)  # y axis k is a axis back[k]
    combined = tuple(back[k] for k in q)
    if combined == tuple(range(len(perm))):
        return [(a, combined)]
    return [(mover.transpose(a, combined), tuple(range(len(perm))))]


def _view(mover: Mover, node: Node) -> Moved:
    """The reshape family: groups of axes that are split or joined stay together in the alternative."""
    alt = mover.alternative(node.inputs[0])
    source, target = mover.shape(node.inputs[0]), mover.shape(node.outputs[0])
    if alt is None or source is None or target is None:
        return ""
    a, perm = alt
    order = view_order(source, target, perm)
    if order is None:
        return _flatten_into_product(mover, node, a, perm, source, target)
    reason = mover.worth(perm, [node.inputs[0]], source)
    if reason is not None and order != tuple(range(len(target))):
        return reason
    alt_source, alt_target = tuple(source[p] for p in perm), tuple(target[k] for k in order)
    dims = reshape_target(alt_source, alt_target)
    if dims is None:
        return "more than one unknown dim in the result"
    shape = _const_ints(mover, dims, f"{node.outputs[0]}.shape")
    attrs = {"allowzero": 1} if any(d.is_const and d.const == 0 for d in alt_target) else {}
    return [(mover.ed.add("Reshape", (a, shape), attrs, hint=node.outputs[0])[0], order)]


def view_groups(source: Shape, target: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Source axes and the target axes that hold the same elements, in order; None if the dims do not line up."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        best: tuple[int, int] | None = None
        for total in range(2, len(source) - i + len(target) - j + 1):
            for n in range(max(1, total - (len(target) - j)), min(total - 1, len(source) - i) + 1):
                if product(source[i : i + n]) == product(target[j : j + total - n]):
                    best = (n, total - n)
                    break
            if best:
                break
        if best is None:
            return None
        groups.append((list(range(i, i + best[0])), list(range(j, j + best[1]))))
        i, j = i + best[0], j + best[1]
    if any(d.value() != 1 for d in (*source[i:], *target[j:])) or not groups:
        return None
    groups[-1][0].extend(range(i, len(source)))
    groups[-1][1].extend(range(j, len(target)))
    return groups


def view_order(source: Shape, target: Shape, perm: Perm) -> Perm | None:
    """Target axes in the order they have when the source lies in layout ``perm``; None if a group is torn apart."""
    groups = view_groups(source, target)
    if groups is None:
        return None
    place = inverse(perm)
    real = [p for p in perm if source[p].value() != 1]
    placed: list[tuple[int, list[int]]] = []
    for src, dst in groups:
        axes = [x for x in src if source[x].value() != 1]
        if axes:
            at = real.index(axes[0])
            if real[at : at + len(axes)] != axes:
                return None
            placed.append((place[axes[0]], dst))
        else:
            placed.append((place[src[0]], dst))
    return tuple(k for _, dst in sorted(placed, key=lambda t: t[0]) for k in dst)


def _flatten_into_product(mover: Mover, node: Node, a: str, perm: Perm, source: Shape, target: Shape) -> Moved:
    """``MatMul(Flatten(y), w)`` reads ``Flatten(a)`` and a weight with its rows in the alternative's order."""
    ed, out = mover.ed, node.outputs[0]
    reason = "axes that the layout has moved apart are joined"
    readers = ed.users(out)
    if not mover.eager or len(target) != 2 or len(readers) != 1 or readers[0].op != "MatMul" or ed.is_output(out):
        return reason
    product_node = readers[0]
    w = ed.constant(product_node.inputs[1])
    sizes = [d.value() for d in source[1:]]
    if w is None or len(w.shape) != 2 or product_node.inputs[0] != out or perm[0] != 0 or None in sizes:
        return reason
    if source[0] != target[0] or w.nbytes > FLATTEN_WEIGHT_BYTES:
        return reason
    if ed.use_count(product_node.inputs[1]) > 1:
        return "the weight behind the Flatten has other readers"
    dims = reshape_target(tuple(source[p] for p in perm), target)
    if dims is None:
        return reason
    spatial = tuple(int(s) for s in sizes if s is not None)
    turned = permuted_rows(w.array, spatial, tuple(p - 1 for p in perm[1:]))
    rows = ed.add_constant(turned, f"{product_node.inputs[1]}.rows")
    flat = ed.add("Reshape", (a, _const_ints(mover, dims, f"{out}.shape")), hint=out)[0]
    new = ed.add("MatMul", (flat, rows), hint=product_node.outputs[0], stands_for=product_node)[0]
    ed.replace_uses(product_node.outputs[0], new)
    ed.drop_if_dead(product_node.outputs[0])
    return []


def permuted_rows(w: np.ndarray, sizes: tuple[int, ...], perm: Perm) -> np.ndarray:
    """``w[rows, n]`` with rows, counted as an index over ``sizes``, in the order of the transposed index."""
    n = w.shape[1]
    if w.strides[0] < w.strides[1]:
        turned = w.T.reshape(n, *sizes).transpose(0, *(p + 1 for p in perm))
        return np.ascontiguousarray(turned).reshape(n, -1).T
    return np.ascontiguousarray(w.reshape(*sizes, n).transpose(*perm, len(perm))).reshape(-1, n)


def is_tensor_of_rank(ed: GraphEditor, name: str, low: int) -> bool:
    """True if ``name`` is a tensor of known rank at least ``low``."""
    t = ed.value(name).type
    return isinstance(t, TensorType) and t.shape is not None and len(t.shape) >= low


_HANDLERS: dict[str, Callable[[Mover, Node], Moved]] = {
    "Concat": _concat,
    "Softmax": _along_axis(-1),
    "LogSoftmax": _along_axis(-1),
    "Hardmax": _along_axis(-1),
    "LpNormalization": _along_axis(-1),
    "Split": _along_axis(0),
    "Slice": _slice,
    "Pad": _pad,
    "ArgMax": _arg_reduce,
    "ArgMin": _arg_reduce,
    "Transpose": _transpose,
    "Reshape": _view,
    "Flatten": _view,
    "Squeeze": _view,
    "Unsqueeze": _view,
    "QuantizeLinear": _quantize,
    "DequantizeLinear": _quantize,
    "LookUp": _look_up,
}
