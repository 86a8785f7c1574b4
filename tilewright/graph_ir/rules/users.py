"""Rules that users bring along: run as the compiler's own, and held to what these promise.

A result of another type or shape than what it stands for is not put in place; the log names the rule. A rule that never
ends, or gives something else than a rule gives, raises RuleError with its name; whatever its functions raise has a note
that says which rule it was, and where.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice

from tilewright.core.arith.expr import IntExpr
from tilewright.core.errors import InputError, ModelError, RuleError
from tilewright.core.options import shown
from tilewright.graph_ir.inference import infer_node
from tilewright.graph_ir.ir import Graph, Node, TensorType, Type, UnknownType, node_reads
from tilewright.graph_ir.ops.shapes import is_fresh
from tilewright.graph_ir.passes.base import Exactness, Level, Pass, PassContext
from tilewright.graph_ir.pipeline import FUSED_PASSES, PASSES, PassReport, run_passes
from tilewright.graph_ir.rules.base import Match, Rule
from tilewright.graph_ir.rules.driver import EndlessRules, rewrite

PASS = "user_rules"
"""The name of the pass that runs them."""


def apply_rules(graph: Graph, rules: Iterable[Rule]) -> tuple[Graph, PassReport]:
    """The graph after no rule of ``rules`` fires any more, and what fired and what was refused.

    Who gives a rule wants it: approximate ones fire too. Rules may make foreign nodes. Raises InputError for what is
    no rule, RuleError for a rule that does not end, with its name.

    >>> from tilewright.rules import P, Rule, apply_rules
    >>> rule = Rule("sigmoid", "Relu(x) --> Sigmoid(x)", P("Relu", "x"), lambda m: m.op("Sigmoid", m["x"]))
    >>> graph = tilewright.compile("model.onnx", stop_after="import")
    >>> new, report = apply_rules(graph, [rule])
    >>> report.fired("sigmoid"), [node.op for node in new.nodes]
    (1, ['MatMul', 'Add', 'Sigmoid', 'MatMul'])
    """
    return run_passes(graph, Level.NONE, passes=(user_pass(rules, foreign=True),))


def require_rules(rules: object) -> tuple[Rule, ...]:
    """``rules`` as rules with names that no other rule or pass has. Raises InputError."""
    given = (rules,) if isinstance(rules, Rule) else rules
    if not isinstance(given, Iterable):
        raise InputError(f"rules: expected a list of rules, got {shown(rules)}")
    out = tuple(given)
    names = {PASS, *(n for p in (*PASSES, *FUSED_PASSES) for n in (p.name, *p.rules))}
    for r in out:
        if not isinstance(r, Rule):
            raise InputError(f"rules: expected a Rule, got {shown(r)}")
        if r.name in names or not r.name:
            raise InputError(f"rules: expected a name that no other rule or pass has, got {r.name!r}")
        names.add(r.name)
    return out


def user_pass(rules: Iterable[Rule], foreign: bool = False) -> Pass:
    """The pass that runs rules of a user, at every level. ``foreign``: they may make nodes of other domains."""
    own = require_rules(rules)
    held = tuple(_held(r, foreign) for r in own)
    wanted = frozenset(r.name for r in own)
    order = list(Exactness)
    worst = max((r.exactness for r in own), key=order.index, default=Exactness.BIT_EXACT)

    def run(graph: Graph, ctx: PassContext) -> Graph:
        try:
            return rewrite(graph, held, dataclasses.replace(ctx, enabled=ctx.enabled | wanted))
        except EndlessRules as e:
            raise RuleError(f"rule '{e.rule}' does not come to an end: it is the last of {e.fired} rewrites") from e

    return Pass(PASS, Level.NONE, worst, run, rules=tuple(r.name for r in own))


def _held(rule: Rule, foreign: bool) -> Rule:
    """The rule, which is watched."""
    guard = None if rule.guard is None else partial(_guard, rule)
    return dataclasses.replace(rule, build=partial(_build, rule, foreign), guard=guard)


def _guard(rule: Rule, m: Match) -> str | None:
    with _Told(rule, m.root):
        answer = rule.guard(m) if rule.guard is not None else None
    if answer is not None and not isinstance(answer, str):
        raise RuleError(f"{_who(rule, m.root)}: expected a reason or None of its guard, got {shown(answer)}")
    return answer


def _build(rule: Rule, foreign: bool, m: Match) -> str | tuple[str, ...] | Node | None:
    editor = m.editor
    before = len(editor.nodes)
    try:
        with _Told(rule, m.root):
            new = rule.build(m)
    except ModelError as e:
        raise RuleError(f"{_who(rule, m.root)}: {e}") from e
    if new is None:
        return None
    made = [*islice(editor.nodes.values(), before, None)]
    for n in (*made, *((new,) if isinstance(new, Node) else ())):
        if n.domain and not foreign:
            raise RuleError(f"{_who(rule, m.root)}: expected operators that a build knows, got {n.domain}::{n.op}")
    reason = _mismatch(rule, m, new) or _circle(m, made, new)
    if reason is None:
        return new
    editor.ctx.log.refuse(rule.name, m.root.name, reason)
    editor.drop_if_dead(*(o for n in reversed(made) for o in n.outputs if o))
    return None


def _who(rule: Rule, node: Node) -> str:
    return f"rule '{rule.name}' at node '{node.name}' ({node.op})"


class _Told:
    """Whatever is raised inside has a note that says which rule it was."""

    def __init__(self, rule: Rule, node: Node) -> None:
        self._text = f"in {_who(rule, node)}"

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            error.add_note(self._text)


def _mismatch(rule: Rule, m: Match, new: object) -> str | None:
    """Why what the rule gives cannot stand for the results of the root; None if it can. Raises RuleError for what is no
    value."""
    old = {o: m.editor.value(o).type for o in m.root.outputs if o}
    for o, t in _given(rule, m, new):
        if (want := old.get(o)) is not None and not _same(want, t):
            return f"its result for '{o}' is {t}, expected {want}"
    return None


def _circle(m: Match, made: list[Node], new: str | tuple[str, ...] | Node) -> str | None:
    """Why the result cannot be put in place: it is computed from what it would replace."""
    if isinstance(new, Node):
        return None
    old = {o for o in m.root.outputs if o}
    given = {n for n in ((new,) if isinstance(new, str) else new) if n}
    todo = [*made, *(p for n in given - {*m.names.values()} if (p := m.editor.producer(n)) is not None)]
    seen: set[str] = set()
    while todo:
        for i in node_reads(todo.pop()):
            if i in old:
                return f"its result is computed from '{i}', which it would replace"
            if i not in seen and i not in m.names.values() and (p := m.editor.producer(i)) is not None:
                seen.add(i)
                todo.append(p)
    return None


def _given(rule: Rule, m: Match, new: object) -> Iterator[tuple[str, Type]]:
    editor = m.editor
    if isinstance(new, Node):
        if new.outputs != m.root.outputs:
            raise RuleError(f"{_who(rule, m.root)}: expected a node that defines {m.root.outputs}, got {new.outputs}")
        reads = tuple(node_reads(new))
        known = {i: c for i in reads if (c := editor.constant(i)) is not None}
        for v in infer_node(new, {i: editor.value(i) for i in reads}, known):
            yield v.name, v.type
        return
    names = (new,) if isinstance(new, str) else new
    if not isinstance(names, tuple) or not all(isinstance(n, str) for n in names) or len(names) > len(m.root.outputs):
        raise RuleError(f"{_who(rule, m.root)}: expected a value for each result of the node, got {shown(new)}")
    for o, name in zip(m.root.outputs, names, strict=False):
        if o and name:
            found = editor.values.get(name) or editor.ctx.outer_values.get(name)
            if found is None:
                raise RuleError(f"{_who(rule, m.root)}: expected the name of a value, got {name!r}")
            yield o, found.type


def _same(want: Type, got: Type) -> bool:
    """False if the types differ, as far as they are known."""
    if isinstance(want, UnknownType) or isinstance(got, UnknownType):
        return True
    if not isinstance(want, TensorType) or not isinstance(got, TensorType):
        return type(want) is type(got)
    if want.dtype != got.dtype:
        return False
    if want.shape is None or got.shape is None:
        return True
    return len(want.shape) == len(got.shape) and all(map(_may_be_equal, want.shape, got.shape))


def _may_be_equal(a: IntExpr, b: IntExpr) -> bool:
    """True for equal sizes, and where one is a size that only a run tells."""
    return a == b or ((a - b).value() is None and (is_fresh(a) or is_fresh(b)))
