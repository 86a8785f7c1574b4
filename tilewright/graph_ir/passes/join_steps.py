"""Recurrent layers one behind the other, on the same weights, as one over all their steps.

    y0, h0, c0 = LSTM(x0, w, r, b, h, c)        y, h1, c1 = LSTM(Concat(x0, x1), w, r, b, h, c)
    y1, h1, c1 = LSTM(x1, w, r, b, h0, c0)      y0, y1 = parts of y

A loop over an LSTMCell or GRUCell that an exporter unrolled is such a chain. The products of all inputs become one, and
the recurrence one kernel. Inputs that are the steps of one value need no Concat, results that are stacked no Slice.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.core.arith.expr import ONE
from tilewright.graph_ir.ir import Graph, Node, Shape
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import int_attr, known_ints, tensor_shape
from tilewright.graph_ir.rules.views import VIEWS

_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""The operands that are the first states."""


def join_steps(graph: Graph, ctx: PassContext) -> Graph:
    """The graph with one recurrent layer for each chain of them."""
    if sum(n.op in _STATES and not n.domain for n in graph.nodes) < 2:
        return graph
    ed = GraphEditor(graph, ctx)
    for k in list(ed.nodes):
        node = ed.nodes.get(k)
        if node is None or node.op not in _STATES or node.domain:
            continue
        chain = _chain(ed, node)
        if len(chain) > 1:
            ed.set_anchor(ed.node_id(chain[-1]))
            _join(ed, chain)
            ctx.log.fire("join_steps", node.name)
    return ed.finish()


def _chain(ed: GraphEditor, first: Node) -> list[Node]:
    """The layers that can be one with ``first``, which is the first of them."""
    chain, computed = [first], set[str]()
    while (after := _next(ed, chain[-1])) is not None:
        computed = computed or _computed_from(ed, first)
        if after.inputs[0] in computed:
            ed.ctx.log.refuse("join_steps", after.name, f"its input depends on '{chain[-1].name}'")
            break
        chain.append(after)
    return chain


def _computed_from(ed: GraphEditor, node: Node) -> set[str]:
    """All values that are computed from results of ``node``."""
    todo, found = [o for o in node.outputs if o], set[str]()
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(o for u in ed.users(name) for o in u.outputs if o)
    return found


def _next(ed: GraphEditor, node: Node) -> Node | None:
    """The layer that goes on from the last states of ``node``; None without one that can be one with it."""
    ends = _ends(ed, node)
    readers = [u for v in ends[0] for u in ed.users(v) if u.op == node.op and not u.domain]
    after = next(
        (u for u in readers if all(_operand(u, k) in e for k, e in zip(_STATES[u.op], ends, strict=True))), None
    )
    if after is None:
        return None
    reason = _difference(ed, node, after)
    for inner in ends[1:]:
        others = [u for v in inner for u in ed.users(v) if u is not after and not set(u.outputs) & set(inner)]
        if others or any(ed.is_output(v) for v in inner):
            reason = reason or f"the memory behind '{node.name}' is also used elsewhere"
    if reason is not None:
        ed.ctx.log.refuse("join_steps", after.name, reason)
    return after if reason is None else None


def _ends(ed: GraphEditor, node: Node) -> tuple[list[str], ...]:
    """For each state the values that are the last one: results, and these with other axes of size 1."""
    names = [*node.outputs, "", ""][: 1 + len(_STATES[node.op])]
    hidden = [names[1], names[0] if _steps(ed, node) == 1 else ""]
    return tuple(_views(ed, [o for o in own if o]) for own in (hidden, names[2:])[: len(_STATES[node.op])])


def _views(ed: GraphEditor, names: list[str]) -> list[str]:
    """The values, and all that are the same elements in the same order."""
    for name in names:  # grows as it runs
        names.extend(u.outputs[0] for u in ed.users(name) if _is_view(u) and u.inputs[0] == name)
    return names


def _is_view(node: Node) -> bool:
    return node.op in VIEWS and not node.domain


def _operand(node: Node, k: int) -> str:
    return node.inputs[k] if k < len(node.inputs) else ""


def _steps(ed: GraphEditor, node: Node) -> int | None:
    shape = tensor_shape(ed.value(node.inputs[0]))
    return shape[0].value() if shape else None


def _difference(ed: GraphEditor, node: Node, after: Node) -> str | None:
    """Why two layers are not one over the steps of both."""
    for n in (node, after):
        if n.attr("direction", "forward") != "forward" or n.attr("layout", 0):
            return f"'{n.name}' runs another way than forward over its first axis"
        if _operand(n, 4):
            return f"'{n.name}' has sequences of several lengths"
        if _steps(ed, n) is None:
            return f"the number of steps of '{n.name}' is not known"
    own, other = ({k: v for k, v in n.attrs if k != "hidden_size"} for n in (node, after))
    if own != other:
        return f"'{after.name}' has other attributes than '{node.name}'"
    if not all(_is_same(ed, _operand(node, k), _operand(after, k)) for k in (1, 2, 3, 7)):
        return f"'{after.name}' has other weights than '{node.name}'"
    return None


def _is_same(ed: GraphEditor, a: str, b: str) -> bool:
    if a == b:
        return True
    first, second = (ed.constant(i) if i else None for i in (a, b))
    if first is None or second is None or first.shape != second.shape or first.dtype != second.dtype:
        return False
    return bool(np.array_equal(first.array, second.array))


def _join(ed: GraphEditor, chain: Sequence[Node]) -> None:
    first, last = chain[0], chain[-1]
    counts = [_steps(ed, n) or 0 for n in chain]
    xs = [n.inputs[0] for n in chain]
    x = _whole(ed, xs, counts) or _add(ed, "Concat", xs, axis=0)
    used = [k for k, o in enumerate(last.outputs) if o and ed.use_count(o)]
    made = ed.add(
        first.op, (x, *first.inputs[1:]), dict(first.attrs), first.outputs[0] or first.name, max([1, *used]) + 1,
        stands_for=first,
    )  # fmt: skip
    _unstack(ed, chain, made[0])
    at = 0
    for node, count in zip(chain, counts, strict=True):
        parts = [*node.outputs, "", ""]
        if parts[0] and ed.use_count(parts[0]):
            is_last_state = node is last and count == 1
            one = _add(ed, "Unsqueeze", (made[1], _ints(ed, 0))) if is_last_state else None
            ed.replace_uses(parts[0], one or _slice(ed, made[0], at, at + count))
        at += count
        if node is not last and parts[1] and ed.use_count(parts[1]):
            ed.replace_uses(parts[1], _add(ed, "Squeeze", (_slice(ed, made[0], at - 1, at), _ints(ed, 1))))
    for old, new in [*zip(last.outputs, made, strict=False)][1:]:
        if old:
            ed.replace_uses(old, new)
    ed.drop_if_dead(*(o for n in reversed(chain) for o in n.outputs if o))


def _add(ed: GraphEditor, op: str, inputs: Sequence[str], **attrs: int | tuple[int, ...]) -> str:
    return ed.add(op, inputs, attrs, hint=f"{inputs[0]}.{op.lower()}")[0]


def _ints(ed: GraphEditor, *numbers: int) -> str:
    return ed.add_constant(np.array(numbers, np.int64), "ints")


def _slice(ed: GraphEditor, x: str, start: int, stop: int) -> str:
    return _add(ed, "Slice", (x, _ints(ed, start), _ints(ed, stop), _ints(ed, 0)))


def _unstack(ed: GraphEditor, chain: Sequence[Node], y: str) -> None:
    """What puts the new states of all single steps beside each other reads ``y``, the states of all steps, instead."""
    ends = [_ends(ed, n)[0] for n in chain]
    shape = tensor_shape(ed.value(chain[0].inputs[0])) or ()
    for value in ends[0]:
        for user in ed.users(value):
            if user.op != "Concat" or len(user.inputs) != len(chain) or user.inputs[0] != value:
                continue
            if any(i not in e for i, e in zip(user.inputs, ends, strict=True)):
                continue
            stacked = _stacked(ed, y, tensor_shape(ed.value(value)) or (), int_attr(user, "axis", 0), shape[1:2])
            if stacked:
                ed.replace_uses(user.outputs[0], stacked)
                ed.drop_if_dead(user.outputs[0])


def _stacked(ed: GraphEditor, y: str, part: Shape, axis: int, batch: Shape) -> str:
    """``y`` as parts of one step look when they are joined along an axis; "" for another axis than that of the step."""
    if len(part) == 4 and part[:3] == (ONE, ONE, *batch) and axis in (0, -4):
        return y
    if len(part) != 3 or axis % 3 == 2 or part[axis % 3] != ONE or part[1 - axis % 3] != batch[0]:
        return ""
    steps = _add(ed, "Squeeze", (y, _ints(ed, 1)))
    return steps if axis % 3 == 0 else _add(ed, "Transpose", (steps,), perm=(1, 0, 2))


def _whole(ed: GraphEditor, xs: Sequence[str], counts: Sequence[int]) -> str:
    """The value, steps first, of which ``xs`` are the steps one by one; "" if they are of several, or out of order."""
    found = [_step_of(ed, x) for x in xs]
    if any(n != 1 for n in counts) or None in found:
        return ""
    source, axis, start = found[0] or ("", 0, 0)
    if any(f != (source, axis, start + k) for k, f in enumerate(found)):
        return ""
    steps = (tensor_shape(ed.value(source)) or ())[axis].value()
    turned = _add(ed, "Transpose", (source,), perm=(1, 0, 2)) if axis else source
    return turned if steps == len(xs) else _slice(ed, turned, start, start + len(xs))


def _step_of(ed: GraphEditor, x: str) -> tuple[str, int, int] | None:
    """The value [steps, batch, width] or [batch, steps, width], its axis of steps, and which one of them ``x`` is."""
    want, node, name = tensor_shape(ed.value(x)), ed.producer(x), x
    while node is not None and _is_view(node):
        name = node.inputs[0]
        node = ed.producer(name)
    if node is None or node.domain or want is None or node.op not in ("Gather", "Slice", "Split"):
        return None
    source = tensor_shape(ed.value(node.inputs[0]))
    if source is None or len(source) != 3:
        return None
    axis, start = _position(ed, node, name)
    if axis not in (0, 1) or start is None:
        return None
    steps = source[axis].value()
    if start < 0 and steps is None:
        return None
    kept = tuple(d for k, d in enumerate(source) if k != axis)
    return (node.inputs[0], axis, start % steps if steps else start) if kept == want[1:] else None


def _position(ed: GraphEditor, node: Node, name: str) -> tuple[int | None, int | None]:
    """The axis that a part is taken from, and where; None for several, or what only a run tells."""
    if node.op == "Gather":
        index = known_ints(ed, node.inputs[1])
        return int_attr(node, "axis", 0) % 3, index[0] if index is not None and len(index) == 1 else None
    if node.op == "Split":
        axis = int_attr(node, "axis", 0) % 3
        sizes = {shape[axis].value() if (shape := tensor_shape(ed.value(o))) else None for o in node.outputs}
        return axis, node.outputs.index(name) if sizes == {1} else None
    starts, axes = (known_ints(ed, i) if i else None for i in (node.inputs[1], _operand(node, 3)))
    if starts is None or axes is None or len(axes) != 1:
        return None, None
    return axes[0] % 3, starts[0]


JOIN_STEPS = Pass("join_steps", Level.EXTENDED, Exactness.REASSOCIATING, join_steps)
