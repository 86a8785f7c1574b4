"""The checked-in status of every case, and the comparison with a run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from tilewright.tests.conformance.runner import STATUSES

EXPECTED = Path(__file__).with_name("expected.json")
EXPORTED = Path(__file__).with_name("expected_exported.json")
WRITTEN = {level: Path(__file__).with_name(f"expected_written_{level}.json") for level in ("none", "basic", "extended")}
"""By the passes before the model was written."""
UPDATE = "python -m tilewright.tests.conformance --update"


def read_expected(path: Path = EXPECTED) -> dict[str, str]:
    """Case -> result of the last update."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def write_expected(results: Mapping[str, str], path: Path = EXPECTED) -> None:
    """Replace the results of the cases that were run."""
    merged = {**read_expected(path), **results}
    path.write_text(json.dumps(dict(sorted(merged.items())), indent=0) + "\n", encoding="utf-8")


def status(result: str) -> str:
    """The first word of a result."""
    return result.partition(":")[0]


def changes(results: Mapping[str, str], expected: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Regressions and improvements, a line each. A case that is not expected at all counts as a change to look at."""
    worse, better = [], []
    for name, result in sorted(results.items()):
        before = expected.get(name, "failing: not in expected.json")
        distance = STATUSES.index(status(result)) - STATUSES.index(status(before))
        if distance:
            (worse if distance > 0 else better).append(f"{name}: expected {before!r}, got {result!r}")
    return worse, better


def counts_text(results: Mapping[str, str]) -> str:
    """How many cases have each status, by kind and in total."""
    kinds = dict.fromkeys(n.partition("/")[0] for n in results)
    rows = [(k, Counter(status(r) for n, r in results.items() if n.startswith(f"{k}/"))) for k in kinds]
    rows.append(("total", Counter(status(r) for r in results.values())))
    lines = [f"{'':20}{'cases':>8}" + "".join(f"{s:>13}" for s in STATUSES)]
    lines += [f"{k:20}{c.total():>8}" + "".join(f"{c[s]:>13}" for s in STATUSES) for k, c in rows]
    return "\n".join(lines)
