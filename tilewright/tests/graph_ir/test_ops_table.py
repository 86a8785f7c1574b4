"""The operator table is complete and consistent."""

from __future__ import annotations

import pytest

from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS

onnx_defs = pytest.importorskip("onnx.defs")

# newest operators that are always expanded from their ONNX function body, or exist only in old models
EXPANDED = {
    "Attention", "LinearAttention", "NegativeLogLikelihoodLoss", "RotaryEmbedding", "SequenceMap",
    "SoftmaxCrossEntropyLoss", "Scatter", "Upsample",
}  # fmt: skip


def _newest() -> dict[str, object]:
    best: dict[str, object] = {}
    for s in onnx_defs.get_all_schemas_with_history():
        if s.domain == "" and (s.name not in best or s.since_version > best[s.name].since_version):
            best[s.name] = s
    return best


def test_every_onnx_operator_is_in_the_table_or_expanded() -> None:
    assert sorted(set(_newest()) - set(OPS) - EXPANDED) == []


def test_every_operator_is_onnx_or_says_that_it_is_not() -> None:
    newest = _newest()
    assert [n for n, d in OPS.items() if (n in newest) == d.own] == []


def test_arity_is_that_of_onnx() -> None:
    for name, schema in _newest().items():
        if name in OPS:
            op = OPS[name]
            assert op.min_inputs == schema.min_input, name
            most = None if schema.max_input > 1000 else schema.max_input
            assert op.max_inputs == most, name
            most = None if schema.max_output > 1000 else schema.max_output
            assert op.max_outputs == most, name


def test_host_operators_say_why() -> None:
    assert [n for n, d in OPS.items() if (d.kind is PatternKind.HOST) != (d.host is not None)] == []


def test_names_are_keys() -> None:
    assert [n for n, d in OPS.items() if d.name != n] == []
