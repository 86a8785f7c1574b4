"""Shape and type inference with symbolic dims, and data propagation through shape arithmetic.

``infer_graph`` computes every value's type from the graph's inputs and constants; earlier entries for node outputs
are not trusted. A size that depends on the data is a fresh symbol ``u0, u1, ...`` (numbered in node order, so the
same graph gives the same names), which the runtime binds from the actual array. What foreign nodes give, and what is
computed from values of unknown type, has the type that the graph recorded, if any. How two dims that must agree are
merged is written down in :mod:`tilewright.graph_ir.ops.shapes`; :func:`with_broadcasts` is for those that may also
broadcast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, as_var, const
from tilewright.core.arith.named import short
from tilewright.core.errors import InternalError, ModelError, ResourceError
from tilewright.core.limits import MAX_ELEMENTS
from tilewright.graph_ir.explicit_broadcasts import Repeated, repeat_operands
from tilewright.graph_ir.ir import Constant, Graph, Node, TensorType, Type, UnknownType, Value, node_reads, walk_graphs
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.ops import is_known, op_def
from tilewright.graph_ir.ops.base import MAX_DATA, Data, FreshSymbols, InferContext, Inferred, UnknownRank
from tilewright.graph_ir.symbols import symbols_in_all, type_symbols, value_symbols

_EXACT_IN_FLOAT32 = 1 << 24
_END = 1 << 63


def infer_graph(graph: Graph, since: Graph | None = None) -> Graph:
    """The graph with an entry in ``values`` for every name, subgraphs included. Raises ModelError.

    ``since``: an inferred graph that this one was made from. Its values hold where a node is the same object, reads
    what it read there, and has the values recorded that it had; symbols of sizes that depend on the data keep their
    names then.
    """
    if since is None:
        return _infer(graph, {}, {}, _Run(FreshSymbols(_symbols_in_use(graph), graph.broadcasts)))
    taken = _symbols_in_use(graph) | symbols_in_all(since)
    return _infer(graph, {}, {}, _Run(FreshSymbols(taken, graph.broadcasts), since=_Since.of(since)))


def with_broadcasts(graph: Graph) -> Graph:
    """The graph for dims of unknown relation that broadcast: every operand that may have to be repeated, because a dim
    of it may turn out to be 1, goes through ``BroadcastTo``. Other operators see dims that agree. Raises ModelError.
    """
    symbols = FreshSymbols(_symbols_in_use(graph), broadcasts=True)
    return _infer(graph, {}, {}, _Run(symbols, NameSupply(graph)))


def infer_node(
    node: Node,
    values: Mapping[str, Value],
    constants: Mapping[str, Constant],
    symbols: FreshSymbols | None = None,
) -> tuple[Value, ...]:
    """Values of one node's outputs from its inputs'. Fresh symbols are from ``symbols``, or avoid the inputs'."""
    if symbols is None:
        symbols = FreshSymbols(s for v in values.values() for s in value_symbols(v))
    return _infer_node(node, values, constants, _Run(symbols)).outputs


def constant_value(name: str, c: Constant) -> Value:
    """The value of a constant: its type, and its elements where small and whole."""
    dims = tuple(const(d) for d in c.shape)
    return Value(name, TensorType(dtypes.from_numpy(c.dtype), dims), _elements(c))


def _elements(c: Constant) -> Data | None:
    if c.size > MAX_DATA or (c.size == 0 and len(c.shape) != 1):
        return None
    array = c.array
    if array.dtype.kind in "iub":
        return _in_64_bits(tuple(const(int(x)) for x in array.reshape(-1)))
    if array.dtype in (np.float32, np.float64):
        flat = array.reshape(-1)
        whole = np.isfinite(flat) & (np.abs(np.nan_to_num(flat)) <= _EXACT_IN_FLOAT32)
        if not whole.all() or (flat != np.floor(flat)).any() or (np.signbit(flat) & (flat == 0)).any():
            return None
        return tuple(const(int(x)) for x in flat)
    return None


def _symbols_in_use(graph: Graph) -> set[str]:
    found: set[str] = set()
    for name in graph.inputs:
        if name in graph.values:
            found |= type_symbols(graph.values[name].type)
    if any(n.domain for g in walk_graphs(graph) for n in g.nodes):  # recorded types may count
        found |= symbols_in_all(graph)
    return found


@dataclass(frozen=True, slots=True)
class _Since:
    """An inferred graph that another one was made from."""

    graph: Graph
    nodes: Mapping[str, Node]

    @staticmethod
    def of(graph: Graph) -> _Since:
        return _Since(graph, {n.name: n for n in graph.nodes})

    def constant(self, name: str, c: Constant) -> Value:
        """The value of a constant of the new graph."""
        return self.graph.values[name] if self.graph.constants.get(name) is c else constant_value(name, c)

    def holds(
        self, node: Node, recorded: Mapping[str, Value], scope: Mapping[str, Value], constants: Mapping[str, Constant]
    ) -> bool:
        """True if what the old graph says of the node's results holds, and the new one records nothing else."""
        old, given = self.graph.values, self.graph.constants
        return (
            self.nodes.get(node.name) is node
            and all(recorded.get(o) is old.get(o) for o in node.outputs if o)
            and all(scope.get(i) is old.get(i) and constants.get(i) is given.get(i) for i in node_reads(node))
        )


@dataclass(frozen=True, slots=True)
class _Run:
    """One inference. ``names``: set if operands that may broadcast are to be made explicit. ``since``: see
    :func:`infer_graph`."""

    symbols: FreshSymbols
    names: NameSupply | None = None
    since: _Since | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    """A node with its outputs; ``repeated``: operands that it needs repeated first."""

    node: Node
    outputs: tuple[Value, ...]
    repeated: Repeated


def _infer(
    graph: Graph,
    outer: Mapping[str, Value],
    outer_constants: Mapping[str, Constant],
    run: _Run,
    input_types: Sequence[Type | None] | None = None,
) -> Graph:
    """Infer one graph in the scope of ``outer``."""
    local: dict[str, Value] = {}
    since = None if outer else run.since
    for i, name in enumerate(graph.inputs):
        given = None if input_types is None else input_types[i]
        if given is not None:
            local[name] = Value(name, given)
        elif name in graph.values:
            local[name] = graph.values[name]
        else:
            raise ModelError(f"graph '{graph.name}': expected a type for input '{name}', got none")
    for name, c in graph.constants.items():
        local[name] = constant_value(name, c) if since is None else since.constant(name, c)
    scope: dict[str, Value] = {**outer, **local} if outer else local
    constants = {**outer_constants, **graph.constants} if outer_constants else dict(graph.constants)
    around, run.symbols.assumed = run.symbols.assumed, {}
    nodes = []
    held: set[str] = set()
    changed = False
    for node in graph.nodes:
        if since is not None and since.holds(node, graph.values, scope, constants):
            nodes.append(node)
            held.add(node.name)
            scope.update((o, since.graph.values[o]) for o in node.outputs if o)
            continue
        for done in _infer_explicit(node, scope, constants, run):
            changed |= done.node is not node
            nodes.append(done.node)
            for v in done.outputs:
                if isinstance(v.type, UnknownType):
                    v = graph.values.get(v.name, v)
                if since is not None and v == since.graph.values.get(v.name):
                    v = since.graph.values[v.name]  # what reads it holds, too
                scope[v.name] = v
                if outer:
                    local[v.name] = v
    assumed, run.symbols.assumed = run.symbols.assumed, around
    if run.names is None:
        before = graph.assumptions if since is None else (a for a in since.graph.assumptions if a.node in held)
        assumed = dict.fromkeys((*before, *assumed))
    for name in graph.outputs:
        if name not in scope:
            raise ModelError(f"graph '{graph.name}': expected a definition of output '{name}', got none")
        if name not in local:
            local[name] = scope[name]
    return graph.replace(
        values=local, nodes=tuple(nodes) if changed else graph.nodes, assumptions=tuple(assumed),
        broadcasts=run.symbols.broadcasts,
    )  # fmt: skip


def _infer_explicit(node: Node, scope: dict[str, Value], constants: Mapping[str, Constant], run: _Run) -> list[_Node]:
    """The node inferred; before it, where broadcasts are made explicit, those that repeat operands of it (whose values
    are in ``scope`` then)."""
    done = _infer_node(node, scope, constants, run)
    if run.names is None or not done.repeated:
        return [done]
    ranks = {i: len(scope[node.inputs[i]].shape) for i in done.repeated}
    *before, node = repeat_operands(node, done.repeated, ranks, run.names)
    out = []
    for n in (*before, node):
        out.append(_infer_node(n, scope, constants, run))
        scope.update((v.name, v) for v in out[-1].outputs)
    if out[-1].repeated:
        raise InternalError(f"node '{node.name}' ({node.op}): its operands still have to be repeated")
    return out


def _infer_node(node: Node, scope: Mapping[str, Value], constants: Mapping[str, Constant], run: _Run) -> _Node:
    op = op_def(node)
    if not node.domain and not is_known(node):
        raise ModelError(f"node '{node.name}' ({node.op}): expected a known operator, got ai.onnx")
    _require_count(node, "inputs", len(node.inputs), op.min_inputs, op.max_inputs)
    _require_count(node, "outputs", len(node.outputs), op.min_outputs, op.max_outputs)
    inputs: list[Value | None] = []
    known: list[Constant | None] = []
    for i in node.inputs:
        if not i:
            inputs.append(None)
            known.append(None)
            continue
        if i not in scope:
            raise ModelError(f"node '{node.name}' ({node.op}): expected a definition of input '{i}', got none")
        inputs.append(scope[i])
        known.append(constants.get(i))

    def subgraph(g: Graph, types: Sequence[Type | None]) -> Graph:
        return _infer(g, scope, constants, run, types)

    if node.domain or any(v is not None and isinstance(v.type, UnknownType) for v in inputs):
        bodies = {k: subgraph(g, [g.values[i].type if i in g.values else UnknownType() for i in g.inputs])
                  for k, g in node.subgraphs()}  # fmt: skip
        node = node.with_attrs(**bodies) if bodies else node
        return _Node(node, tuple(Value(o, UnknownType()) for o in node.outputs if o), {})
    ctx = InferContext(node, tuple(inputs), known, run.symbols, subgraph)
    before = ctx.made_count()
    try:
        inferred = op.infer(ctx)
    except UnknownRank:
        types = op.dtypes(ctx) if op.dtypes is not None else (ctx.dtype(0),)
        inferred = tuple(Inferred(TensorType(types[min(k, len(types) - 1)], None)) for k in range(len(node.outputs)))
    if len(inferred) < len(node.outputs):
        ctx.error(f"at most {len(inferred)} outputs", str(len(node.outputs)))
    _require_sizes(ctx, inferred)
    if made := ctx.made_since(before):
        inferred = _with_readable_sizes(inferred, made, run.symbols)
    if ctx.new_attrs:
        node = node.with_attrs(**ctx.new_attrs)
    pairs = zip(node.outputs, inferred, strict=False)
    values = tuple(Value(o, _with_short_sizes(r.type), _in_64_bits(r.data), r.known) for o, r in pairs if o)
    return _Node(node, values, ctx.repeated)


def _with_readable_sizes(inferred: Sequence[Inferred], made: Set[str], symbols: FreshSymbols) -> tuple[Inferred, ...]:
    """With a symbol of its own for each size that is a formula of symbols ``made`` here which no size or element is by
    itself: a run reads symbols from values, and from ``u // 2 + 1`` it cannot tell ``u``."""
    shapes = [r.type.shape or () for r in inferred if isinstance(r.type, TensorType)]
    read = {as_var(d) for d in (*chain(*shapes), *chain(*(r.data or () for r in inferred)))}
    hidden = made - read
    own: dict[IntExpr, IntExpr] = {}
    for d in chain(*shapes):
        if not hidden.isdisjoint(d.free_vars()) and d not in own:
            own[d] = symbols.fresh()
    return tuple(
        replace(r, type=TensorType(r.type.dtype, tuple(own.get(d, d) for d in r.type.shape)))
        if own and isinstance(r.type, TensorType) and r.type.shape else r
        for r in inferred
    )  # fmt: skip


def _with_short_sizes(t: Type) -> Type:
    """The type with names for sizes that are long formulas."""
    if not isinstance(t, TensorType) or t.shape is None:
        return t
    shape = tuple(map(short, t.shape))
    return t if all(a is b for a, b in zip(shape, t.shape, strict=True)) else TensorType(t.dtype, shape)


def _in_64_bits(data: Data | None) -> Data | None:
    """Known elements, unless numbers among them leave the range of int64, where arithmetic at run time wraps around."""
    return None if data is not None and any(not -_END <= d.const < _END for d in data) else data


def _require_sizes(ctx: InferContext, inferred: Sequence[Inferred]) -> None:
    for r in inferred:
        if not isinstance(r.type, TensorType) or r.type.shape is None:
            continue
        ctx.require_rank(len(r.type.shape))
        count = 1
        for d in r.type.shape:
            if not d.terms:
                if d.const < 0:
                    ctx.error("sizes >= 0", str(r.type))
                count *= d.const or 1
        if count > MAX_ELEMENTS:
            raise ResourceError(f"{ctx.who}: expected a result of at most {MAX_ELEMENTS} elements, got {r.type}")


def _require_count(node: Node, what: str, got: int, least: int, most: int | None) -> None:
    if got < least or (most is not None and got > most):
        wanted = f"at least {least}" if most is None else str(least) if least == most else f"{least} to {most}"
        raise ModelError(f"node '{node.name}' ({node.op}): expected {wanted} {what}, got {got}")
