"""What was done to a model, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tilewright.core.console import table
from tilewright.graph_ir.passes.base import Refused
from tilewright.simplification.simplify import Simplified

_REASONS = 5
"""Reasons of refusals that short text has."""


def operator_table(done: Simplified) -> str:
    """Nodes by operator, before and after."""
    names = dict.fromkeys((*done.before, *done.after))
    rows = [(n, str(done.before.get(n, 0)), str(done.after.get(n, 0)), _change(done, n)) for n in names]
    total = ("all", str(sum(done.before.values())), str(sum(done.after.values())), "")
    return table(("operator", " before", " after", " change"), [*rows, total])


def _change(done: Simplified, name: str) -> str:
    n = done.after.get(name, 0) - done.before.get(name, 0)
    return f"{n:+d}" if n else ""


def refusal_text(done: Simplified, full: bool) -> str:
    """What was refused and why: how often for each reason, or with ``full`` each."""
    found = done.refusals()
    if full:
        return "\n".join(f"refused {r.what} at {r.node}: {r.reason}" for r in found)
    counts: Counter[tuple[str, str]] = Counter((r.what, r.reason) for r in found)
    lines = [f"refused {what} x{n}: {why}" for (what, why), n in counts.most_common(_REASONS)]
    if len(counts) > _REASONS:
        lines.append(f"and {len(counts) - _REASONS} other reasons (-v lists all)")
    return "\n".join(lines)


def check_text(done: Simplified) -> str:
    """What the comparison with the original said."""
    c = done.checked
    if c is None:
        return "not checked against the original"
    notes = [f"note: {n}" for n in c.notes]
    if c.runtime is None:
        return "\n".join([*notes, "not checked against the original, which does not run"])
    cases = "; ".join(s for s in c.cases if s)
    where = f" for {cases}" if cases else ""
    return "\n".join([*notes, f"checked against the original in {c.runtime}{where}: largest difference {c.worst:.1e}"])


def summary(done: Simplified, full: bool = False) -> str:
    """The account of a run."""
    before, after = done.bytes
    unread = [f"unread inputs: {', '.join(done.unread)}"] if done.unread else []
    parts = [
        operator_table(done), *([done.report.explain()] if full else [refusal_text(done, False)]), *unread,
        check_text(done),
        f"{sum(done.before.values())} -> {sum(done.after.values())} nodes, {before / 1e6:.2f} -> {after / 1e6:.2f} MB, "
        f"opset {done.opset}, {done.seconds:.1f} s",
    ]  # fmt: skip
    return "\n".join(p for p in parts if p)


def to_json(done: Simplified) -> dict[str, Any]:
    """The account as JSON's types."""
    c = done.checked
    return {
        "before": dict(done.before),
        "after": dict(done.after),
        "bytes": {"before": done.bytes[0], "after": done.bytes[1]},
        "opset": done.opset,
        "seconds": done.seconds,
        "fired": dict(Counter(f.what for r in done.report.records for f in r.log.fired)),
        "refused": [_refused(r) for r in done.refusals()],
        "unread_inputs": list(done.unread),
        "checked": None if c is None else {
            "runtime": c.runtime, "cases": list(c.cases), "worst": c.worst, "notes": list(c.notes)
        },
    }  # fmt: skip


def _refused(r: Refused) -> dict[str, str]:
    return {"what": r.what, "node": r.node, "reason": r.reason}
