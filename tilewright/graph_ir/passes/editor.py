"""A graph that can be edited in place while rules run, with users and producers kept up to date.

The editor is private to passes: it starts from a :class:`Graph` and :meth:`GraphEditor.finish` gives a new one, in
topological order, without dead nodes and unused constants. Types of new values are inferred on the spot. Where a
rewrite tells what a symbol that inference made stands for, it is replaced in all values.
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tilewright.core.arith.expr import IntExpr, as_var, const
from tilewright.core.errors import InternalError, VerifyError
from tilewright.graph_ir.inference import constant_value, infer_node
from tilewright.graph_ir.ir import (
    Attribute,
    Constant,
    Graph,
    Node,
    TensorType,
    UnknownType,
    Value,
    make_attrs,
    node_reads,
)
from tilewright.graph_ir.ops.base import OpDef
from tilewright.graph_ir.ops.shapes import is_fresh
from tilewright.graph_ir.passes.base import PassContext, rename_captures, with_inputs
from tilewright.graph_ir.symbols import graph_with, value_symbols, value_with


class GraphEditor:
    """Mutable view of one graph (not of its subgraphs). Node ids are small integers that are never reused."""

    def __init__(self, graph: Graph, ctx: PassContext) -> None:
        self.graph = graph
        self.ctx = ctx
        self.values: dict[str, Value] = dict(graph.values)
        self.constants: dict[str, Constant] = dict(graph.constants)
        self.nodes: dict[int, Node] = {}
        self.changed = False
        self._order: dict[int, int] = {}
        self._producer: dict[str, int] = {}
        self._users: dict[str, dict[int, int]] = {}
        self._outputs: list[str] = list(graph.outputs)
        self._output_places: dict[str, list[int]] = {}
        for i, o in enumerate(graph.outputs):
            self._output_places.setdefault(o, []).append(i)
        self._anchor = 0
        self.sharpened: set[str] = set()
        self._known: dict[str, IntExpr] = {}
        self._assumed = frozenset(s for a in graph.assumptions for s in a.symbols())
        self._mentions: dict[str, dict[str, None]] | None = None
        self._last_id = len(graph.nodes)
        self.touched: list[int] = []
        self._first_names: dict[str, str] = {}
        for i, n in enumerate(graph.nodes):
            self._insert(i, n, i)

    # -- questions -----------------------------------------------------------------------------------------------
    def producer(self, name: str) -> Node | None:
        """The node of this graph that defines ``name``."""
        k = self._producer.get(name)
        return None if k is None else self.nodes[k]

    def node_id(self, node: Node) -> int:
        """The id of a node that is in the graph."""
        for o in node.outputs:
            if o in self._producer:
                return self._producer[o]
        raise InternalError(f"node '{node.name}' is not in the graph being edited")

    def user_ids(self, name: str) -> tuple[int, ...]:
        return tuple(self._users.get(name, ()))

    def users(self, name: str) -> list[Node]:
        """Nodes that read ``name`` (each once), subgraph reads included."""
        return [self.nodes[k] for k in self._users.get(name, ())]

    def is_output(self, name: str) -> bool:
        return name in self._output_places

    def use_count(self, name: str) -> int:
        """Number of reads, a graph output counting as one."""
        return sum(self._users.get(name, {}).values()) + len(self._output_places.get(name, ()))

    def value(self, name: str) -> Value:
        v = self.values.get(name) or self.ctx.outer_values.get(name)
        if v is None:
            raise VerifyError(f"value '{name}' has no entry in the values of graph '{self.graph.name}'")
        return v

    def array(self, name: str) -> np.ndarray | None:
        """The array of ``name`` if it is a constant here or in a graph around this one."""
        c = self.constant(name)
        return None if c is None else c.array

    def constant(self, name: str) -> Constant | None:
        """What ``name`` stands for if it is a constant here or in a graph around this one."""
        return self.constants.get(name) or self.ctx.outer_constants.get(name)

    # -- edits ---------------------------------------------------------------------------------------------------
    def add(
        self,
        op: str,
        inputs: Iterable[str],
        attrs: Mapping[str, Attribute] | None = None,
        hint: str = "",
        n_outputs: int = 1,
        domain: str = "",
        stands_for: Node | None = None,
        definition: OpDef | None = None,
    ) -> tuple[str, ...]:
        """A new node; the names of its outputs. Its place is found when the graph is finished. If ``stands_for`` is
        gone by then, the node has its name: users know nodes by the names of their model. ``definition``: of an
        operator that is not ours."""
        inputs = tuple(inputs)
        base = hint or op.lower()
        outputs = tuple(self.ctx.names.fresh(base) for _ in range(n_outputs))
        name = self.ctx.names.fresh(f"{base}.node")
        node = Node(op, inputs, outputs, make_attrs(attrs or {}), name, domain, definition)
        if stands_for is not None:
            self._first_names[node.name] = self._first_names.get(stands_for.name, stands_for.name)
        for v in self._infer(node, {}):
            self._set_value(v)
        k = self._next_id()
        self._insert(k, node, self._anchor)
        self.touched.append(k)
        self.changed = True
        return outputs

    def add_constant(self, array: np.ndarray | Constant, hint: str = "const") -> str:
        """A new constant; its name."""
        name = self.ctx.names.fresh(hint)
        self.constants[name] = array if isinstance(array, Constant) else Constant(array)
        self.values[name] = constant_value(name, self.constants[name])
        self.changed = True
        return name

    def set_anchor(self, k: int) -> None:
        """New nodes stand before node ``k`` among nodes that are ready."""
        self._anchor = self._order[k]

    def replace_uses(self, old: str, new: str) -> None:
        """Readers of ``old``, and graph outputs, read ``new`` instead. ``old`` stays defined while its node lives."""
        if old != new:
            self.replace_all_uses({old: new})

    def replace_all_uses(self, renames: Mapping[str, str]) -> None:
        """As :meth:`replace_uses` for each old name, none of which is a new one; each reader is rewritten once."""
        readers: dict[int, None] = {}
        for old, new in renames.items():
            self._merge_value(old, new)
            readers |= dict.fromkeys(self.user_ids(old))
        for k in readers:
            self.touched.append(k)
            if len(renames) == 1 and not any(True for _ in self.nodes[k].subgraphs()):
                self._replace_inputs(k, *next(iter(renames.items())))
                continue
            node = self.nodes[k]
            subgraphs = {key: (g, rename_captures(g, renames)) for key, g in node.subgraphs()}
            changes: dict[str, Attribute] = {key: new for key, (g, new) in subgraphs.items() if new is not g}
            self._forget_reads(k)
            node = node.with_attrs(**changes) if changes else node
            self.nodes[k] = with_inputs(node, tuple(renames.get(i, i) for i in node.inputs))
            self._record_reads(k)
        for old, new in renames.items():
            places = self._output_places.pop(old, None)
            if places is not None:
                self._output_places.setdefault(new, []).extend(places)
                for i in places:
                    self._outputs[i] = new
        self.changed |= bool(renames)

    def replace_node(self, old: Node, new: Node) -> None:
        """``new`` defines the same outputs in ``old``'s place (other operator, inputs or attributes)."""
        if old.outputs != new.outputs:
            raise InternalError(f"replace_node('{old.name}'): outputs differ: {old.outputs} and {new.outputs}")
        k = self.node_id(old)
        self._forget_reads(k)
        dropped = set(node_reads(old))
        self.infer_again(new)
        self.nodes[k] = new
        self._record_reads(k)
        self.touched.append(k)
        for name in dropped:
            self.drop_if_dead(name)
        self.changed = True

    def drop_if_dead(self, *names: str) -> None:
        """Removes the nodes that define ``names`` if none of their outputs is used, then their now unused producers."""
        todo = [*names]
        kept: dict[int, None] = {}
        while todo:
            k = self._producer.get(todo.pop())
            if k is None:
                continue
            node = self.nodes[k]
            if any(self.use_count(o) for o in node.outputs if o):
                kept[k] = None
                continue
            reads = set(node_reads(node))
            self._forget_reads(k)
            del self.nodes[k]
            del self._order[k]
            for o in node.outputs:
                self._producer.pop(o, None)
                self.values.pop(o, None)
            self.changed = True
            todo.extend(sorted(reads))
        for k in kept:
            for o in self.nodes[k].outputs if k in self.nodes else ():
                self.touched.extend(self.user_ids(o))

    def refine(self, name: str, known: str, perm: tuple[int, ...]) -> None:
        """``name`` is ``known`` transposed by ``perm``: what is known of the dims of one holds for the other."""
        v, k = self.values.get(name), self.values.get(known)
        if v is None or k is None or name in self.graph.inputs or name in self.constants:
            return
        if isinstance(k.type, TensorType) and k.type.shape is not None:
            shape = tuple(k.type.shape[p] for p in perm)
            self._set_value(_narrowed(v, Value(known, TensorType(k.type.dtype, shape))))

    def infer_again(self, node: Node, constants: Mapping[str, np.ndarray] | None = None) -> None:
        """Record what inference tells of a node's outputs now, with ``constants`` besides those of the graph."""
        before = len(self.ctx.names.symbols.made)
        values = self._infer(node, constants or {})
        made = frozenset(self.ctx.names.symbols.made[before:])
        for v in values:
            old = self.values.get(v.name)
            new = v if old is None else _narrowed(v, old, made)
            if new != old:
                self._set_value(new)
                self.sharpened.add(v.name)
                self.changed = True
                if old is not None:
                    self._equate(old, new)

    def sizes_are(self, name: str, shape: Sequence[int]) -> None:
        """``name`` was evaluated and has this shape: symbols that its node made for sizes are numbers from now on."""
        v = self.value(name)
        if isinstance(v.type, TensorType):
            self._equate(v, Value(name, TensorType(v.dtype, tuple(const(d) for d in shape))))

    def drop_constant(self, name: str) -> None:
        """Forgets a constant that nothing reads."""
        if self.use_count(name) == 0:
            del self.constants[name]
            del self.values[name]

    def take_touched(self) -> list[int]:
        """Ids of nodes added or changed since the last call."""
        out = [k for k in dict.fromkeys(self.touched) if k in self.nodes]
        self.touched.clear()
        return out

    def neighbourhood(self, k: int) -> set[int]:
        """The node, the producers of what it reads and the readers of what it defines."""
        node = self.nodes[k]
        near = {k} | {self._producer[i] for i in node.inputs if i in self._producer}
        for o in node.outputs:
            near.update(self.user_ids(o))
        return near

    def make_constant(self, name: str, array: np.ndarray | Constant) -> None:
        """``name`` becomes a constant; its node goes if that was its last used output."""
        self.replace_uses(name, self.add_constant(array, name))
        self.drop_if_dead(name)

    def finish(self) -> Graph:
        """The edited graph; the graph given at first if nothing changed."""
        if not self.changed:
            return self.graph
        self._settle_outputs()
        order = self._topological()
        nodes = self._with_first_names([self.nodes[k] for k in order])
        used = {i for n in nodes for i in node_reads(n)} | set(self.graph.outputs)
        constants = {k: c for k, c in self.constants.items() if k in used}
        defined = {*self.graph.inputs, *self.graph.outputs, *constants, *(o for n in nodes for o in n.outputs if o)}
        values = {k: v for k, v in self.values.items() if k in defined}
        done = self.graph.replace(nodes=nodes, values=values, constants=constants)
        return graph_with(done, self._known) if self._known else done

    # -- inside --------------------------------------------------------------------------------------------------
    def _with_first_names(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        taken = {n.name for n in nodes}
        out = []
        for n in nodes:
            name = self._first_names.get(n.name, n.name)
            if name not in taken:
                taken.add(name)
                n = dataclasses.replace(n, name=name)
            out.append(n)
        return tuple(out)

    def _next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _insert(self, k: int, node: Node, order: int) -> None:
        self.nodes[k] = node
        self._order[k] = order
        for o in node.outputs:
            if o:
                self._producer[o] = k
        self._record_reads(k)

    def _record_reads(self, k: int) -> None:
        for i in node_reads(self.nodes[k]):
            uses = self._users.setdefault(i, {})
            uses[k] = uses.get(k, 0) + 1

    def _forget_reads(self, k: int) -> None:
        for i in set(node_reads(self.nodes[k])):
            self._users[i].pop(k, None)

    def _replace_inputs(self, k: int, old: str, new: str) -> None:
        """Node ``k``, perhaps one of very many inputs, reads ``new`` where it read ``old``."""
        inputs = list(self.nodes[k].inputs)
        count, at = self._users[old].pop(k), -1
        for _ in range(count):
            at = inputs.index(old, at + 1)
            inputs[at] = new
        self.nodes[k] = with_inputs(self.nodes[k], tuple(inputs))
        uses = self._users.setdefault(new, {})
        uses[k] = uses.get(k, 0) + count

    def _infer(self, node: Node, more: Mapping[str, np.ndarray]) -> tuple[Value, ...]:
        reads = tuple(node_reads(node))
        scope = {i: self.value(i) for i in reads}
        constants = {i: c for i in reads if (c := self.constant(i)) is not None}
        for i, array in more.items():
            constants[i] = Constant(array)
            scope[i] = constant_value(i, constants[i])
        return infer_node(node, scope, constants, self.ctx.names.symbols)

    def _merge_value(self, old: str, new: str) -> None:
        """What is known of ``old`` is known of ``new``, and the other way round."""
        a = self.values.get(old)
        if a is None:
            return
        b = self.value(new)
        if new in self.values and new not in self.graph.inputs and new not in self.constants:
            self._set_value(_narrowed(b, a))
        self._equate(a, b)

    def _equate(self, old: Value, new: Value) -> None:
        """Both are one tensor: a symbol that inference made for the first becomes what the second says instead.

        Not a symbol that an assumption names, unless the tensor's own node made it: the two may be equal only because
        calls compare, and with the symbol replaced everywhere there would be nothing left to compare.
        """
        if not isinstance(old.type, TensorType) or not isinstance(new.type, TensorType):
            return
        pairs = [*zip(old.type.shape or (), new.type.shape or (), strict=False)]
        pairs += zip(old.data or (), new.data or (), strict=False)
        for a, b in pairs:
            a, b = a.substitute(self._known), b.substitute(self._known)
            for one, other, holder in ((a, b, old), (b, a, new)):
                symbol = as_var(one)
                if symbol is None or not is_fresh(one) or symbol in other.free_vars():
                    continue
                if symbol not in self._assumed or self._made_by_its_node(symbol, holder.name):
                    self._replace_symbol(symbol, other)
                    break

    def _made_by_its_node(self, symbol: str, name: str) -> bool:
        """Whether nothing that the producer of ``name`` reads mentions the symbol."""
        node = self.producer(name)
        reads = () if node is None else node_reads(node)
        return not any(i in self.values and symbol in value_symbols(self.values[i]) for i in reads)

    def _replace_symbol(self, symbol: str, known: IntExpr) -> None:
        if self._mentions is None:
            self._mentions = {}
            for v in self.values.values():
                self._note_symbols(v)
        one = {symbol: known}
        self._known = {s: e.substitute(one) for s, e in self._known.items()} | one
        if symbol in self._assumed:
            self._assumed |= known.free_vars()
        for name in self._mentions.pop(symbol, ()):
            found = self.values.get(name)
            if found is not None and (new := value_with(found, one)) is not found:
                self._set_value(new)
                self.sharpened.add(name)
                self.touched.extend(self.user_ids(name))
        self.changed = True

    def _set_value(self, v: Value) -> None:
        v = value_with(v, self._known)
        self.values[v.name] = v
        if self._mentions is not None:
            self._note_symbols(v)

    def _note_symbols(self, v: Value) -> None:
        if self._mentions is not None:
            for s in value_symbols(v):
                self._mentions.setdefault(s, {})[v.name] = None

    def _settle_outputs(self) -> None:
        """Output names are the caller's: rename the values that now stand for them, or add an Identity."""
        taken: set[str] = set(self.graph.inputs)
        for want, have in zip(self.graph.outputs, self._outputs, strict=True):
            if want == have:
                taken.add(want)
        for want, have in zip(self.graph.outputs, list(self._outputs), strict=True):
            if want == have:
                continue
            if want in self._producer:
                self._rename(want, self.ctx.names.fresh(want))
            if have in self.constants and have not in taken:
                self.constants[want] = self.constants[have]
                self.values[want] = dataclasses.replace(self.values[have], name=want)
            elif have in self._producer and have not in taken and len(self._output_places.get(have, ())) == 1:
                self._rename(have, want)
            else:
                self.values[want] = dataclasses.replace(self.value(have), name=want)
                node = Node("Identity", (have,), (want,), (), self.ctx.names.fresh(f"{want}.identity"))
                self._insert(self._next_id(), node, len(self.graph.nodes))
            taken.add(want)

    def _rename(self, old: str, new: str) -> None:
        k = self._producer.pop(old)
        node = self.nodes[k]
        self.nodes[k] = dataclasses.replace(node, outputs=tuple(new if o == old else o for o in node.outputs))
        self._producer[new] = k
        self.values[new] = dataclasses.replace(self.values.pop(old), name=new)
        self.replace_uses(old, new)

    def _topological(self) -> list[int]:
        """Node ids so that producers come first; the original order where that leaves a choice."""
        waiting: dict[int, int] = {}
        ready: list[tuple[int, int]] = []
        readers: dict[int, list[int]] = {}
        for k, n in self.nodes.items():
            needs = {self._producer[i] for i in node_reads(n) if i in self._producer}
            for p in needs:
                readers.setdefault(p, []).append(k)
            waiting[k] = len(needs)
            if not needs:
                heapq.heappush(ready, (self._order[k], k))
        out: list[int] = []
        while ready:
            _, k = heapq.heappop(ready)
            out.append(k)
            for r in readers.get(k, ()):
                waiting[r] -= 1
                if waiting[r] == 0:
                    heapq.heappush(ready, (self._order[r], r))
        if len(out) != len(self.nodes):
            stuck = sorted(self.nodes[k].name for k, w in waiting.items() if w)[:5]
            raise InternalError(f"graph '{self.graph.name}': a rewrite made a cycle through nodes {', '.join(stuck)}")
        return out


def _narrowed(v: Value, known: Value, made: frozenset[str] = frozenset()) -> Value:
    """``v`` with the dims and elements that ``known`` (the same tensor) knows better than symbols ``made`` just now."""
    if isinstance(v.type, UnknownType):
        return dataclasses.replace(known, name=v.name)
    if not isinstance(v.type, TensorType) or not isinstance(known.type, TensorType):
        return v
    a, b = v.type.shape, known.type.shape
    data = v.data if v.data is not None else known.data
    shape = a
    if a is None or b is None or len(a) != len(b):
        shape = a if a is not None else b
    else:
        shape = tuple(_better(x, y, made) for x, y in zip(a, b, strict=True))
    return dataclasses.replace(v, type=TensorType(v.type.dtype, shape), data=data)


def _better(a: IntExpr, b: IntExpr, made: frozenset[str]) -> IntExpr:
    if a.is_const:
        return a
    return b if b.is_const or as_var(a) in made or (is_fresh(a) and not is_fresh(b)) else a
