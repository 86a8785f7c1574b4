"""Rewrites on graphs as exporters write them: ONNX as text, with fixed sizes and with symbolic ones.

In a text, ``$N`` is a size: a number in the static form, a symbol in the dynamic one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from tilewright.frontend import from_onnx
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.passes.base import Exactness, Level
from tilewright.graph_ir.pipeline import PassReport, Verify, run_passes
from tilewright.graph_ir.text import constants_of, parse_graph, print_graph
from tilewright.tests.graph_ir.rewriting import RULES, TOLERANCE, assert_same_numbers, ops

FORMS = ("static", "dynamic")
DIMS = {"$B": 2, "$N": 5, "$M": 7, "$H": 8, "$W": 6}


@dataclass(frozen=True, slots=True)
class Case:
    """``rules`` that fire on the model ``text``, and the operators that are left. ``dynamic``: in that form, if they
    are others; the rules need not fire in the static form then. ``sizes``: of all symbols, in turn."""

    name: str
    text: str
    rules: tuple[str, ...]
    left: str
    dynamic: str | None = None
    level: Level = Level.EXTENDED
    enabled: tuple[str, ...] = ()
    sizes: tuple[int, ...] = (1, 3, 8)
    opset: int = 17

    def wanted(self, form: str) -> list[str]:
        return (self.left if form == "static" or self.dynamic is None else self.dynamic).split()


def read(text: str, form: str, opset: int = 17) -> Graph:
    """The imported graph of a text in one of FORMS."""
    for name, size in DIMS.items():
        text = text.replace(name, str(size) if form == "static" else name[1:].lower())
    return from_onnx(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]>\n{text}'))


def rewritten(case: Case, form: str) -> tuple[Graph, Graph, PassReport]:
    """The graph before and after the passes, and the report; verified, printed and parsed, computed at all sizes."""
    before = read(case.text, form, case.opset)
    after, report = run_passes(before, case.level, instruments=(Verify(),), enabled=case.enabled)
    text = print_graph(after)
    assert print_graph(parse_graph(text, constants_of(after))) == text
    fired = {f.what for r in report.records for f in r.log.fired} & set(RULES)
    order = list(Exactness)
    worst = max((RULES[r].exactness for r in fired), key=order.index, default=Exactness.BIT_EXACT)
    assert_same_numbers(before, after, TOLERANCE[worst], case.sizes)
    return before, after, report


def require_rewritten(case: Case, form: str) -> None:
    """The rules of the case fire, and leave what it says."""
    _, after, report = rewritten(case, form)
    if form == "dynamic" or case.dynamic is None:
        assert not {r for r in case.rules if not report.fired(r)}
    assert ops(after) == case.wanted(form)


def require_kept(
    text: str, form: str, rule: str, reason: str, level: Level = Level.EXTENDED, sizes: tuple[int, ...] = (1, 3, 8),
    enabled: tuple[str, ...] = (),
) -> None:  # fmt: skip
    """``rule`` does not fire on the model, and says why (nothing, where ``reason`` is empty)."""
    _, _, report = rewritten(Case(rule, text, (), "", level=level, sizes=sizes, enabled=enabled), form)
    assert not report.fired(rule)
    refusals: Sequence[str] = report.refusals(rule)
    assert any(reason in r for r in refusals) if reason else not refusals
