"""Facts of operators are stated once, where they are defined: each trait is stated, used, and no module lists names."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.graph_ir.kinds import DataLayout, ElementCost, PatternKind
from tilewright.graph_ir.ops import OPS, OpDef
from tilewright.reference.evaluate import NOT_WIDENED
from tilewright.tests.sources import PACKAGE, parsed, source_files

TRAITS = {
    f.name: f.default
    for f in dataclasses.fields(OpDef)
    if f.default is not dataclasses.MISSING and f.name not in ("own", "evaluate")
}
"""``own`` is for tests, ``evaluate`` for operators of users."""

LISTS = {
    "core/plan.py": "the type of a step: the operators with bodies",
    "deploy/source/host_calls.py": "the C functions that there are, and which of them read numbers",
    "edit/operations/batch.py": "recurrent layers, and which of their operands are first states",
    "graph_ir/passes/join_steps.py": "recurrent layers and their first states; what takes a step out of a sequence",
    "graph_ir/rules/composites/cells.py": "a pattern: products",
    "graph_ir/rules/composites/channel_norms.py": "patterns: norms of channels, and what their parameters come in",
    "graph_ir/rules/composites/gate_sums.py": "patterns: products and parts of columns",
    "graph_ir/rules/files/defaults.py": "patterns: recurrent layers, what makes other shapes of zeros",
    "graph_ir/rules/activations.py": "a pattern: comparisons that choose x where it is positive",
    "graph_ir/rules/algebra.py": "a pattern: the four operations of a chain with constants",
    "graph_ir/rules/logic.py": "patterns: comparisons and their opposites, And and Or; what gives NaN for NaN only",
    "graph_ir/rules/moves/repeats.py": "patterns: what repeats, and the axes that its readers see",
    "graph_ir/rules/noops.py": "patterns",
    "graph_ir/rules/norms.py": "a pattern: norms with a scale",
    "graph_ir/rules/quantization.py": "patterns: what moves numbers, what keeps factors, what reads bytes",
    "graph_ir/rules/scales.py": "a pattern: weights whose channels can be scaled",
    "graph_ir/rules/views.py": "a pattern: chains of views",
    "graph_ir/rules/weights.py": "patterns: what is linear in a weight, what chooses rows",
    "lowering/formulas/recurrent.py": "default activations of a cell",
    "lowering/precision/narrow_moves.py": "what moves numbers or chooses one of them, and which operands",
    "quantization/operators.py": "ONNX's operators as the quantizer treats them; the room edits ONNX, not our graph",
    "reference/evaluate.py": "what a definition does with narrow floats; the room may not see the operator table",
    "reference/recurrent.py": "default activations of a cell",
    "writer/forms.py": "what older opsets say of an operator: first versions for sequences, axes from the end",
    "writer/older/norms.py": "the operators of two statistics of a norm",
    "writer/older/table.py": "the first opset of each operator that others define",
}
"""Where names of operators are listed all the same, and why."""


def lists(tree: ast.AST) -> Iterator[tuple[int, list[str]]]:
    """Displays of two operators or more: the line and the names. A table of functions by name is none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            items = node.keys if all(_is_fact(v) for v in node.values) else []
        elif isinstance(node, ast.Set | ast.List | ast.Tuple):
            items = [*node.elts]
        else:
            continue
        names = [k.value for k in items if isinstance(k, ast.Constant) and isinstance(k.value, str)]
        if len(names) >= 2 and set(names) <= set(OPS):
            yield node.lineno, names


def _is_fact(value: ast.AST) -> bool:
    return not any(isinstance(n, ast.Name | ast.Lambda) for n in ast.walk(value))


def _where(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


FILES = [p for p in source_files() if not _where(p).startswith("frontend/") and "graph_ir/ops/" not in _where(p)]
"""All but the definitions, and the converters, which say what operators they write."""

READERS = [p for p in FILES if "graph_ir.ops import" in p.read_text("utf-8")] + [PACKAGE / "graph_ir/ops/base.py"]
"""What imports the operator table; ``base`` has the predicates."""


@pytest.mark.parametrize("path", FILES, ids=_where)
def test_no_other_module_lists_operators(path: Path) -> None:
    found = list(lists(parsed(path)))
    if _where(path) in LISTS:
        assert found, f"{_where(path)} lists no operators: take it from LISTS"
    else:
        assert not found, f"{_where(path)} lists operators: {found}; make it a trait of OpDef"


def test_it_sees_lists() -> None:
    found = ("{'Add', 'Mul'}", "f(('Conv', 'Relu'))", "{'Add': 1, 'Mul': (1, 2)}")
    text = "\n".join((*found, "{'Add': f, 'Mul': g(1)}", "('Conv',)", "('a', 'Add')"))
    assert sorted(line for line, _ in lists(ast.parse(text))) == [1, 2, 3]


@pytest.mark.parametrize("trait", TRAITS)
def test_every_trait_is_stated_and_used(trait: str) -> None:
    assert any(getattr(d, trait) != TRAITS[trait] for d in OPS.values()), f"no operator states {trait}"
    reads = {n.attr for p in READERS for n in ast.walk(parsed(p)) if isinstance(n, ast.Attribute)}
    assert trait in reads, f"nothing reads {trait}"


@pytest.mark.parametrize("kind", [*ElementCost, *DataLayout])
def test_every_kind_is_stated(kind: ElementCost | DataLayout) -> None:
    assert any(kind in (d.cost, d.layout) for d in OPS.values())


def test_shape_operands_are_operands() -> None:
    assert [n for n, d in OPS.items() if any(k >= (d.max_inputs or 0) for k in d.shape_operands)] == []


def test_only_broadcasting_operators_mix_operands() -> None:
    assert [n for n, d in OPS.items() if d.mixed_operands and d.kind is not PatternKind.BROADCAST] == []
    assert [n for n, d in OPS.items() if d.is_elementwise and (d.shape_operands or d.max_outputs != 1)] == []


def test_products_and_convolutions_have_weight() -> None:
    assert [n for n, d in OPS.items() if d.kind is PatternKind.OUT_FUSABLE and not d.arithmetic] == []


def test_moves_and_views_are_not_widened() -> None:
    """They keep the bits of narrow floats also where the reference computes in float32."""
    moves = {n for n, d in OPS.items() if d.cost is ElementCost.LOAD or d.kind is PatternKind.VIEW}
    assert moves <= NOT_WIDENED
