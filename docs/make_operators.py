#!/usr/bin/env python3
"""Writes docs/reference/operators.md: every ONNX operator, what runs it, and the opsets it is read from.

python docs/make_operators.py            write the page
python docs/make_operators.py --check    exit status 1 if the page is out of date

The page depends on the version of the onnx package, which knows the operators.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import onnx
from generated import GeneratedPage, note
from onnx import defs

from tilewright.frontend.ops.rule import Rule
from tilewright.frontend.report import refusal
from tilewright.frontend.schemas import NEWEST_OPSET, signature
from tilewright.frontend.table import CONVERTERS
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops import OPS
from tilewright.lowering.backend import is_taken
from tilewright.lowering.table import TABLE

MADE_WITH = "onnx "
OLDEST = 7
SHOWN = 8
CONTRIB = "com.microsoft"

HEAD = f"""\
# Operators

{note(__file__)}

{{counts}} Opsets are the versions of the standard, from {OLDEST} on, in which a model
may use the operator; models of older ones run where the form of their operators is the same. The newest is
{NEWEST_OPSET}, of {MADE_WITH}{onnx.__version__}. What a model needs and this build lacks is reported all at once,
before anything is built.

What runs an operator:

- **native**: kernels. Where the size of a result depends on data, or not even a rank is known, an operator that only
  moves elements runs on the host instead; one with arithmetic is refused. `explain` says which, and why.
- **view**: nothing; the same bytes under another shape.
- **converted**: the frontend writes it in terms of the operators named.
- **expanded**: as the standard defines it, by other operators.
- **control**: the call plan runs its subgraphs.
- **host**: numpy, and why.

An operator with several ways to compute it lists them; [`implementations=`](../add-an-implementation.md) pins one, and
tuning chooses by measurement. Element types are those of the standard.
"""


def render() -> str:
    """The page."""
    standard = sorted({s.name for s in defs.get_all_schemas_with_history() if s.domain == ""})
    rows = [(op, *_standard(op)) for op in standard]
    missing = sum(how.startswith("no") for _, how, _, _ in rows)
    counts = f"{len(rows) - missing} of the {len(rows)} operators of ONNX run, and {len(_contrib())} of `{CONTRIB}`."
    lines = [HEAD.format(counts=counts), "## ONNX", "", "| operator | runs | | opsets |", "|---|---|---|---|"]
    lines += [f"| {op} | {how} | {more} | {opsets} |" for op, how, more, opsets in rows]
    lines += [
        "", f"## {CONTRIB}", "", "Operators that ONNX Runtime's exporters and quantizers write; all are converted.", "",
        "| operator | into |", "|---|---|",
    ]  # fmt: skip
    lines += [f"| {op} | {_listed(_made(rules))} |" for op, rules in _contrib().items()]
    lines += [
        "", "An operator of another domain is refused by name. [A rule of your own](../rules.md) can replace it in a "
        "graph that is edited, and a model may define it as a function.",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _contrib() -> dict[str, tuple[Rule, ...]]:
    return {op: rules for (domain, op), rules in sorted(CONVERTERS.items()) if domain == CONTRIB}


def _made(rules: Iterable[Rule]) -> list[str]:
    """The operators that converters emit, each once."""
    return list(dict.fromkeys(m for r in rules for m in r.makes))


def _listed(ops: list[str]) -> str:
    more = len(ops) - SHOWN
    return ", ".join(ops) if more <= 1 else f"{', '.join(ops[:SHOWN])} and {more} others"


def _standard(op: str) -> tuple[str, str, str]:
    """What runs it, more about that, and the opsets."""
    opsets = [v for v in range(OLDEST, NEWEST_OPSET + 1) if _works(op, v)]
    if not opsets:
        return "no", refusal(op, "", NEWEST_OPSET, is_taken), ""
    return (*_how(op, opsets[-1]), _ranges(opsets))


def _works(op: str, version: int) -> bool:
    sig = signature(op, "", version)
    return sig is not None and not refusal(op, "", version, is_taken)


def _how(op: str, newest: int) -> tuple[str, str]:
    definition = OPS.get(op)
    if op in TABLE and (definition is None or definition.kind not in (PatternKind.HOST, PatternKind.VIEW)):
        ways = [i.name for i in TABLE[op]]
        return "native", "" if len(ways) == 1 else ", ".join(f"`{w}`" for w in ways)
    if definition is not None and definition.kind is PatternKind.VIEW:
        return "view", ""
    if definition is not None and definition.kind is PatternKind.CONTROL:
        return "control", ""
    if is_taken(op) and definition is not None:
        return "host", definition.host or "no kernel"
    if ("", op) in CONVERTERS:
        return "converted", _listed(_made(CONVERTERS["", op]))
    return "expanded", ""


def _ranges(versions: list[int]) -> str:
    """``7-9, 13-28``."""

    def runs() -> Iterator[tuple[int, int]]:
        start = versions[0]
        for a, b in zip(versions, [*versions[1:], 0], strict=True):
            if b != a + 1:
                yield start, a
                start = b

    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs())


def comparable(have: str, want: str) -> tuple[str, str]:
    """Another version of the onnx package knows other operators."""
    return (have, want) if f"{MADE_WITH}{onnx.__version__}." in have else ("", "")


PAGE = GeneratedPage(__file__, "reference/operators.md", render, comparable)

if __name__ == "__main__":
    sys.exit(PAGE.main())
