"""Tile and Expand move below what does not see them, and go where what reads them broadcasts.

An Expand and a broadcasting operator ``f``, whatever the sizes ``s`` are::

    f(Expand(x, s), y) == Expand(f(x, y), s)

for both sides have the shape that ``x``, ``y`` and ``s`` broadcast to. A Tile is the same along axes on which the
other operands have size 1, or are repeated by the same Tile. Where ``f(x, y)`` has the whole shape by itself, nothing
is left to repeat. All of this where the sizes are known to agree: those that are only assumed to are compared in each
call, with the size of what is repeated. Softmax and norms of rows, reductions and products see a repetition only along
the axes that they work on; the greatest or least of repeated numbers is that of the numbers.

A repetition moves only if all that read it let it through, or need none: else it has to be there, too. Where an
operator moves, adds or drops axes, the repetition behind it has its operand's elements in other places; if they are
known at run time only, they are gathered there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.core.arith.expr import ONE, IntExpr
from tilewright.graph_ir.ir import Node, Shape
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS
from tilewright.graph_ir.ops.arithmetic import OPS as BROADCASTING
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import (
    NOT_HERE,
    Match,
    P,
    Rule,
    fixed_shape,
    int_attr,
    ints_attr,
    known_elements,
    known_ints,
    tensor_shape,
)

_REPEATS = ("Tile", "Expand")
_ELEMENTWISE = tuple(n for n, d in OPS.items() if d.is_elementwise)
_CASTS = ("Cast", "CastLike")
_ROWWISE = tuple(n for n, d in OPS.items() if d.rowwise)
_REDUCTIONS = tuple(n for n, d in OPS.items() if d.kind is PatternKind.REDUCTION and n.startswith("Reduce"))
_IDEMPOTENT = ("ReduceMax", "ReduceMin")
_DROPPED = ""


@dataclass(frozen=True, slots=True)
class _Repeat:
    """A Tile or Expand of ``source``; its shapes before and behind, and the operand that says how much."""

    node: Node
    source: str
    inner: Shape
    outer: Shape
    amount: str

    @property
    def axes(self) -> tuple[int, ...]:
        """Axes of the result along which elements may come more than once."""
        inner = _aligned(self.inner, len(self.outer))
        return tuple(k for k, (a, b) in enumerate(zip(inner, self.outer, strict=True)) if a != b)


def _aligned(shape: Shape, rank: int) -> Shape:
    return (ONE,) * (rank - len(shape)) + shape


def _repeat(ed: GraphEditor, name: str) -> _Repeat | None:
    """The Tile or Expand that gives ``name``, if the ranks are known."""
    node = ed.producer(name)
    if node is None or node.op not in _REPEATS or node.domain:
        return None
    inner, outer = tensor_shape(ed.value(node.inputs[0])), tensor_shape(ed.value(name))
    if inner is None or outer is None:
        return None
    return _Repeat(node, node.inputs[0], inner, outer, node.inputs[1])


def _common(shapes: Sequence[Shape]) -> Shape | None:
    """What the shapes broadcast to; None if the sizes do not tell for certain."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[IntExpr] = []
    for dims in zip(*(_aligned(s, rank) for s in shapes), strict=True):
        real = [d for d in dims if d.value() != 1]
        if any(d != real[0] for d in real[1:]):
            return None
        out.append(real[0] if real else ONE)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class _Picked:
    """The elements of the value ``name`` at ``places``; None is the number 1."""

    name: str
    places: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class _Sunk:
    """A reader of a repetition without it: ``inputs`` in the place of its own, then a repetition of the result by the
    value ``amount`` (of the operator ``by``), by elements of a value, or by numbers; ``by`` "" if none is needed."""

    inputs: tuple[str, ...]
    by: str = _DROPPED
    amount: str | tuple[int, ...] | _Picked = ()


def _sunk(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    """How ``node``, which reads the repetition, does without; or why not."""
    if node.domain or len([o for o in node.outputs if o]) != 1:
        return f"{node.op} does not let a repetition through"
    if node.op in BROADCASTING or node.op in _ELEMENTWISE or (node.op in _CASTS and node.inputs[0] == _of(repeat)):
        return _elementwise(ed, node, repeat)
    if node.op in _ROWWISE:
        return _rows(ed, node, repeat)
    if node.op in _REDUCTIONS:
        return _reduced(ed, node, repeat)
    if node.op == "MatMul":
        return _product(ed, node, repeat)
    if node.op in ("Transpose", "Unsqueeze"):
        return _moved(ed, node, repeat)
    return f"{node.op} does not let a repetition through"


def _of(repeat: _Repeat) -> str:
    return repeat.node.outputs[0]


def _elementwise(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    whole = tensor_shape(ed.value(node.outputs[0]))
    if whole is None:
        return NOT_HERE
    twins = [i for i in dict.fromkeys(node.inputs) if i and _is_twin(ed, i, repeat)]
    inputs, shapes, given = [], [], []
    for i in node.inputs:
        twin = _repeat(ed, i) if i in twins else None
        shape = twin.inner if twin is not None else tensor_shape(ed.value(i)) if i else ()
        if shape is None:
            return NOT_HERE
        given.append(shape if twin is None else twin.outer)
        inputs.append(i if twin is None else twin.source)
        shapes.append(shape)
    if node.op in _CASTS:
        shapes, given = shapes[:1], given[:1]
    left = _common(shapes)
    if left is None:
        return "another operand has sizes of its own along an axis of the repetition"
    if node.op not in BROADCASTING and left != shapes[0]:
        return f"{node.op} does not broadcast its first operand"
    if _common(given) != whole:
        return "calls compare its size with that of another operand"
    if left == whole:
        return _Sunk(tuple(inputs))
    if repeat.node.op == "Expand":
        return _Sunk(tuple(inputs), "Expand", repeat.amount)
    others = [tensor_shape(ed.value(i)) or () for i in node.inputs if i and i not in twins]
    return _by_tile(ed, repeat, tuple(inputs), others, whole)


def _is_twin(ed: GraphEditor, name: str, repeat: _Repeat) -> bool:
    """True for the repetition itself and for one of something else by the same operand; for a Tile, of the same sizes
    along the axes that it repeats."""
    if name == _of(repeat):
        return True
    other = _repeat(ed, name)
    if other is None or other.node.op != repeat.node.op:
        return False
    if other.amount != repeat.amount:
        a, b = known_elements(ed, other.amount), known_elements(ed, repeat.amount)
        if a is None or a != b:
            return False
    return repeat.node.op == "Expand" or all(other.inner[k] == repeat.inner[k] for k in {*other.axes, *repeat.axes})


def _by_tile(
    ed: GraphEditor, repeat: _Repeat, inputs: tuple[str, ...], others: Sequence[Shape], whole: Shape
) -> _Sunk | str:
    """A Tile behind the operator: along repeated axes all other operands have size 1, or bring the size themselves."""
    rank = len(whole)
    shift = rank - len(repeat.outer)
    kept = list[int]()
    for k in repeat.axes:
        sizes = {_aligned(s, rank)[k + shift] for s in others}
        if sizes <= {ONE}:
            kept.append(k)
        elif repeat.inner[k].value() != 1:
            return f"another operand has a size of its own along axis {k}"
    if not kept:
        return NOT_HERE
    if kept == list(repeat.axes) and not shift:
        return _Sunk(inputs, "Tile", repeat.amount)
    amount = _amount_at(ed, repeat, [*(None,) * shift, *(k if k in kept else None for k in range(len(repeat.outer)))])
    return amount if isinstance(amount, str) else _Sunk(inputs, "Tile", amount)


def _rows(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    rank = len(repeat.outer)
    axis = int_attr(node, "axis", -1) % max(rank, 1)
    seen = [axis] if node.op in ("Softmax", "LogSoftmax") else [*range(axis, rank)]
    if node.inputs[0] != _of(repeat) or not set(seen).isdisjoint(repeat.axes):
        return f"{node.op} sees the repetition along axis {axis}"
    if len(repeat.inner) != rank:
        return "the repetition adds axes"
    if any((s := tensor_shape(ed.value(i))) is None or len(s) > rank - axis for i in node.inputs[1:] if i):
        return f"a scale or shift of {node.op} is more than a row"
    return _Sunk((repeat.source, *node.inputs[1:]), repeat.node.op, repeat.amount)


def _reduced(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    rank = len(repeat.outer)
    given = known_ints(ed, node.inputs[1]) if len(node.inputs) > 1 and node.inputs[1] else ()
    if given is None or node.inputs[0] != _of(repeat) or len(repeat.inner) != rank:
        return f"{node.op} does not let a repetition through"
    if not given and int_attr(node, "noop_with_empty_axes", 0):
        return NOT_HERE
    axes = sorted({a % rank for a in given} or range(rank))
    seen = set(axes) & set(repeat.axes)
    if seen and (node.op not in _IDEMPOTENT or any(not _positive(ed, repeat, k) for k in seen)):
        return f"{node.op} sees the repetition along axis {min(seen)}"
    left = [k for k in repeat.axes if k not in axes]
    inputs = (repeat.source, *node.inputs[1:])
    if not left:
        return _Sunk(inputs)
    kept = [k for k in range(rank) if int_attr(node, "keepdims", 1) or k not in axes]
    amount = _amount_at(ed, repeat, [k if k in left else None for k in kept])
    return amount if isinstance(amount, str) else _Sunk(inputs, repeat.node.op, amount)


def _positive(ed: GraphEditor, repeat: _Repeat, axis: int) -> bool:
    """True if the repetition leaves something of the axis."""
    amount = known_ints(ed, repeat.amount)
    return amount is not None and _aligned_amount(amount, len(repeat.outer))[axis] > 0


def _amount_at(ed: GraphEditor, repeat: _Repeat, axes: Sequence[int | None]) -> tuple[int, ...] | _Picked | str:
    """The operand of a repetition whose axes are ``axes`` of this one's result, None those that are not repeated; a
    reason if its length is not known."""
    rank, amount = len(repeat.outer), known_ints(ed, repeat.amount)
    repeated = [k if k in repeat.axes else None for k in axes]
    if amount is not None:
        aligned = _aligned_amount(amount, rank)
        return tuple(1 if k is None else aligned[k] for k in repeated)
    length = fixed_shape(tensor_shape(ed.value(repeat.amount)))
    if length is None:
        return "how many axes it repeats is known at run time only"
    shift = rank - length[0]
    return _picked(ed, repeat.amount, tuple(None if k is None or k < shift else k - shift for k in repeated))


def _picked(ed: GraphEditor, name: str, places: tuple[int | None, ...]) -> _Picked:
    """Elements of ``name``; if that was gathered for a repetition, of what it was gathered from."""
    gather = ed.producer(name)
    if gather is None or gather.op != "Gather" or gather.domain or int_attr(gather, "axis", 0) != 0:
        return _Picked(name, places)
    source, indices = gather.inputs[0], known_ints(ed, gather.inputs[1])
    joined, length = ed.producer(source), fixed_shape(tensor_shape(ed.value(source)))
    if indices is None or length is None or min(indices, default=0) < 0:
        return _Picked(name, places)
    last = None
    if joined is not None and joined.op == "Concat" and known_ints(ed, joined.inputs[-1]) == (1,):
        last = length[0] - 1
        source = joined.inputs[0] if len(joined.inputs) == 2 else source
    inner = [None if k is None else indices[k] for k in places]
    return _Picked(source, tuple(None if k == last else k for k in inner))


def _aligned_amount(amount: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(amount)) + amount


def _product(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    """The left operand of a product with a matrix, repeated along axes in front of the last one."""
    other = tensor_shape(ed.value(node.inputs[1]))
    rank = len(repeat.outer)
    if node.inputs[0] != _of(repeat) or node.inputs[1] == _of(repeat) or other is None or len(other) != 2:
        return "MatMul sees the repetition of its operand"
    if rank - 1 in repeat.axes or len(repeat.inner) < 2:
        return "MatMul sees a repetition along its last axis"
    amount = _amount_at(ed, repeat, range(rank))
    return amount if isinstance(amount, str) else _Sunk((repeat.source, node.inputs[1]), repeat.node.op, amount)


def _moved(ed: GraphEditor, node: Node, repeat: _Repeat) -> _Sunk | str:
    rank = len(repeat.outer)
    if len(repeat.inner) != rank or node.inputs[0] != _of(repeat):
        return "the repetition adds axes"
    axes: list[int | None] = [*range(rank)]
    if node.op == "Transpose":
        axes = [*(ints_attr(node, "perm") or reversed(range(rank)))]
    elif (new := known_ints(ed, node.inputs[1])) is not None:
        for a in sorted(a % (rank + len(new)) for a in new):
            axes.insert(a, None)
    else:
        return NOT_HERE
    amount = _amount_at(ed, repeat, axes)
    return amount if isinstance(amount, str) else _Sunk((repeat.source, *node.inputs[1:]), repeat.node.op, amount)


# -- the rules ------------------------------------------------------------------------------------------------------
def _found(m: Match) -> tuple[_Repeat, _Sunk] | str:
    """The first repetition among the root's operands that can move or go; else the reason of the last one."""
    ed, reason = m.editor, NOT_HERE
    for name in dict.fromkeys(m.root.inputs):
        repeat = _repeat(ed, name) if name else None
        if repeat is None or not repeat.axes:
            continue
        sunk = _sunk(ed, m.root, repeat)
        if isinstance(sunk, _Sunk) and sunk.by:
            kept = _kept_by(ed, repeat)
            sunk = kept or sunk
        if isinstance(sunk, _Sunk):
            return repeat, sunk
        reason = sunk or reason
    return reason


def _kept_by(ed: GraphEditor, repeat: _Repeat) -> str:
    """Why the repetition has to be there in any case; "" if all that read it let it through."""
    name = _of(repeat)
    if ed.is_output(name):
        return f"'{name}' is an output"
    for reader in ed.users(name):
        if any(True for _ in reader.subgraphs()) or isinstance(_sunk(ed, reader, repeat), str):
            return f"'{name}' is also read by {reader.op} '{reader.name}', which sees the repetition"
    return ""


def _guard(m: Match) -> str | None:
    found = _found(m)
    return found if isinstance(found, str) else None


def _sink(m: Match) -> str:
    found = _found(m)
    if isinstance(found, str):
        return m.output
    _, sunk = found
    new = m.op(m.root.op, *sunk.inputs, **dict(m.root.attrs))
    if not sunk.by:
        return new
    return m.op(sunk.by, new, _operand(m, sunk.amount))


def _operand(m: Match, amount: str | tuple[int, ...] | _Picked) -> str:
    if isinstance(amount, str):
        return amount
    if not isinstance(amount, _Picked):
        return m.const(list(amount))
    (length,) = m.editor.value(amount.name).shape
    if amount.places == tuple(range(length.const)):
        return amount.name
    elements = m.op("Concat", amount.name, m.const([1]), axis=0) if None in amount.places else amount.name
    return m.op("Gather", elements, m.const([length.const if k is None else k for k in amount.places]), axis=0)


RULES: tuple[Rule, ...] = (
    Rule(
        "repeat_below_elementwise",
        "f(Expand(x, s), y) --> Expand(f(x, y), s), and Tile; f(x, y) where y has all the sizes",
        P((*_ELEMENTWISE, *_CASTS), rest=True),
        _sink,
        _guard,
    ),
    Rule(
        "repeat_below_rows",
        "f(Expand(x, s)) --> Expand(f(x), s) for Softmax, norms and reductions along other axes, and Tile; ReduceMax"
        " and ReduceMin along the same",
        P((*_ROWWISE, *_REDUCTIONS), rest=True),
        _sink,
        _guard,
    ),
    Rule(
        "repeat_below_moves",
        "Transpose(Expand(x, s)) --> Expand(Transpose(x), s'), Unsqueeze, and Tile",
        P(("Transpose", "Unsqueeze"), rest=True),
        _sink,
        _guard,
    ),
    Rule(
        "repeat_below_matmul",
        "MatMul(Expand(x, s), w) --> Expand(MatMul(x, w), s') for a matrix w, and Tile; not along the last axis",
        P("MatMul", rest=True),
        _sink,
        _guard,
        Exactness.REASSOCIATING,
    ),
)
