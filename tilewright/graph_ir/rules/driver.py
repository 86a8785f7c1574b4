"""Runs rules over a graph to a fixpoint: a worklist of nodes, rules indexed by the operator at their root."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tilewright.core.errors import InternalError
from tilewright.graph_ir.ir import Graph, Node, UnknownType
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.passes.editor import GraphEditor
from tilewright.graph_ir.rules.base import NOT_HERE, Match, Rule, matches

STEPS_PER_NODE = 30


class EndlessRules(InternalError):
    """Rules that do not come to an end; ``rule`` is the last one that fired, after ``fired`` rewrites."""

    def __init__(self, graph: str, rule: str, node: str, fired: int) -> None:
        super().__init__(f"graph '{graph}': rules do not come to an end; the last was '{rule}' at '{node}'")
        self.rule, self.fired = rule, fired


def rule_pass(name: str, level: Level, rules: Sequence[Rule], optional: bool = False) -> Pass:
    """A pass that runs ``rules``; its exactness is that of the least exact rule that it runs by itself."""
    order = list(Exactness)
    own = [r.exactness for r in rules if r.exactness is not Exactness.APPROXIMATE]
    worst = max(own, key=order.index, default=Exactness.BIT_EXACT)
    table = tuple(rules)
    names = tuple(r.name for r in rules)
    return Pass(name, level, worst, lambda graph, ctx: rewrite(graph, table, ctx), optional, names)


def rewrite(graph: Graph, rules: Sequence[Rule], ctx: PassContext) -> Graph:
    """The graph after no rule fires any more. Raises EndlessRules, with the last rule, if that never happens.

    Approximate rules fire only when ``ctx.enabled`` names them.
    """
    index: dict[str, list[Rule]] = {}
    for r in rules:
        if r.name in ctx.disabled or (r.exactness is Exactness.APPROXIMATE and r.name not in ctx.enabled):
            continue
        for op in r.root_ops:
            index.setdefault(op, []).append(r)
    if not any(n.op in index for n in graph.nodes):
        return graph
    ed = GraphEditor(graph, ctx)
    queue: deque[int] = deque(ed.nodes)
    queued = set(queue)
    budget = STEPS_PER_NODE * len(graph.nodes) + 200
    while queue:
        k = queue.popleft()
        queued.discard(k)
        node = ed.nodes.get(k)
        if node is None:
            continue
        rule = _fire_one(ed, k, node, index.get(node.op, ()), ctx)
        if rule is None:
            continue
        budget -= 1
        if budget < 0:
            raise EndlessRules(graph.name, rule.name, node.name, len(ctx.log.fired))
        for t in ed.take_touched():
            for near in ed.neighbourhood(t):
                if near not in queued:
                    queued.add(near)
                    queue.append(near)
    return ed.finish()


def _fire_one(ed: GraphEditor, k: int, node: Node, rules: Sequence[Rule], ctx: PassContext) -> Rule | None:
    for rule in rules:
        for m in matches(rule, ed, node):
            if any(isinstance(ed.value(v).type, UnknownType) for v in (*m.names.values(), *node.outputs) if v):
                continue  # guards ask for types
            reason = _refusal(rule, m)
            if reason is not None:
                if reason != NOT_HERE:
                    ctx.log.refuse(rule.name, node.name, reason)
                continue
            ed.set_anchor(k)
            changed, first = ed.changed, len(ed.touched)
            new = rule.build(m)
            if new is None:
                continue
            made = [ed.nodes[t] for t in ed.touched[first:] if t in ed.nodes]
            if (why := _refused_node(made, new, ctx)) is not None:
                ctx.log.refuse(rule.name, node.name, why)
                ed.drop_if_dead(*(o for n in made for o in n.outputs))
                del ed.touched[first:]
                ed.changed = changed
                continue
            _install(ed, node, new)
            ctx.log.fire(rule.name, node.name)
            return rule
    return None


def _refused_node(made: Sequence[Node], new: str | tuple[str, ...] | Node, ctx: PassContext) -> str | None:
    """Why one of the nodes that a rule has made must not be there."""
    if ctx.refuses is None:
        return None
    nodes = (*made, new) if isinstance(new, Node) else made
    return next((why for n in nodes if (why := ctx.refuses(n)) is not None), None)


def _refusal(rule: Rule, m: Match) -> str | None:
    if rule.exclusive and m.inner:
        inside = {n.name for n in m.inner} | {m.root.name}
        for n in m.inner:
            for o in n.outputs:
                if o and (m.editor.is_output(o) or any(u.name not in inside for u in m.editor.users(o))):
                    if rule.guard is not None and rule.guard(m) == NOT_HERE:
                        return NOT_HERE
                    return f"'{o}' is also used elsewhere"
    return None if rule.guard is None else rule.guard(m)


def _install(ed: GraphEditor, node: Node, new: str | tuple[str, ...] | Node) -> None:
    if isinstance(new, Node):
        ed.replace_node(node, new)
        return
    for old, name in zip(node.outputs, (new,) if isinstance(new, str) else new, strict=False):
        if old and name:
            ed.replace_uses(old, name)
    for o in node.outputs:
        if o:
            ed.drop_if_dead(o)
            break
