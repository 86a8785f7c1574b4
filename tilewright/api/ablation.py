"""What each decision of a schedule is worth: the schedule with that decision as the default has it, and how much slower
it is then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.api.replay import CONFIG
from tilewright.autotune.base.measure_result import Failed, MeasureResult, Ok
from tilewright.autotune.base.space import Candidate, Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.measure.measurer import LocalMeasurer, Measurer
from tilewright.codegen.detect_cpu import require_runs_here
from tilewright.core.errors import MeasurementError
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, fragment, table, title
from tilewright.schedule.decisions import Choice

REFUSED = "refused"
"""A schedule that no rule makes: other decisions do not go with the default one."""


@dataclass(frozen=True, slots=True)
class AblationRow:
    """``label``: the decision, which was ``chosen`` and is ``default`` here. ``seconds``: of the schedule with the
    default, None if it has no time. ``ratio``: that as a multiple of the time with all decisions as chosen.
    ``failure``: why there is no time."""

    label: str
    chosen: Choice
    default: Choice | None
    seconds: float | None
    ratio: float | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Ablation:
    """``seconds``: with all decisions as chosen; ``default_seconds``: with all of them as by default, None if that has
    no time. ``rows``: the decisions that differ, the one that is worth most first. ``str()`` is the table."""

    name: str
    seconds: float
    default_seconds: float | None
    rows: tuple[AblationRow, ...]

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each decision: the fields of :class:`AblationRow`."""
        fields = AblationRow.__dataclass_fields__
        return [{name: getattr(row, name) for name in fields} for row in self.rows]

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.seconds * 1e6:.1f} us"]
        if self.default_seconds is not None:
            lines[0] += f", by default {self.default_seconds * 1e6:.1f} us"
        for r in self.rows:
            said = r.failure if r.ratio is None else f"{r.ratio:.2f} times the time"
            lines.append(f"  {r.label}: {r.default} instead of {r.chosen}: {said}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        most = max((r.ratio for r in self.rows if r.ratio is not None), default=1.0)
        rows = [
            (r.label, str(r.chosen), str(r.default), str(r.failure) if r.ratio is None else f"{r.ratio:.2f}",
             "" if r.ratio is None else Bar(r.ratio / most))
            for r in self.rows
        ]  # fmt: skip
        head = ("decision", "chosen", "default", " times as long", "")
        took = str(self).split("\n")[0].partition(": ")[2]
        return fragment(title(f"ablation of {self.name}", took), table(head, rows))


def ablate(
    task: Task, candidate: Candidate, space: Space | None = None, measurer: Measurer | None = None, rounds: int = 5
) -> Ablation:
    """Put each decision of ``candidate`` back to the default of ``space`` (by default that of the compiler's rules),
    one at a time, and measure all of these in turns, ``rounds`` samples each.

    ``measurer``: default, one of worker processes of this machine, which this call ends. Raises MeasurementError if the
    candidate itself has no time, TargetError if the target's code does not run here.

    >>> import tilewright
    >>> from tilewright.autotune.base.space import Space
    >>> from tilewright.autotune.base.task import Task
    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> A = placeholder("A", (64, 64), dtypes.float32)
    >>> double = build_func("double", [A], [compute("B", (64, 64), lambda i, j: A[i, j] + A[i, j])])
    >>> task = Task(double, tilewright.Target())
    >>> def program(s, target):
    ...     s.split(s.loops("B")[1], (None, s.sample_categorical("width", (4, 8, 16), 4)))
    >>> space = Space(double, task.target, program)
    >>> print(tilewright.ablate(task, space.with_decisions({"width": 16}), space))
    double: ... us, by default ... us
      width: 4 instead of 16: ... times the time
    """
    space = Space(task.func, task.target) if space is None else space
    default, chosen = space.default().values(), candidate.values()
    made: dict[str, Candidate | None] = {}
    for label, choice in chosen.items():
        if default.get(label) != choice:
            kept = {k: v for k, v in chosen.items() if k != label}
            made[label] = space.with_decisions({**kept, label: default[label]} if label in default else kept)
    tried = [candidate, space.default(), *(c for c in made.values() if c is not None)]
    own, by_default, *others = _measured(task, tried, measurer, rounds)
    if isinstance(own, Failed):
        raise MeasurementError(f"ablate({task.name}): the candidate: {own.kind}: {own.message}")
    results = iter(others)
    rows = []
    for label, c in made.items():
        found = None if c is None else next(results)
        seconds = found.seconds if isinstance(found, Ok) else None
        failure = REFUSED if found is None else None if isinstance(found, Ok) else str(found.kind)
        ratio = None if seconds is None else seconds / own.seconds
        rows.append(AblationRow(label, chosen[label], default.get(label), seconds, ratio, failure))
    rows.sort(key=lambda r: -(r.ratio or 0.0))
    default_seconds = by_default.seconds if isinstance(by_default, Ok) else None
    return Ablation(task.name, own.seconds, default_seconds, tuple(rows))


def _measured(
    task: Task, candidates: Sequence[Candidate], measurer: Measurer | None, rounds: int
) -> Sequence[MeasureResult]:
    if measurer is not None:
        return measurer.remeasure(task, candidates, rounds)
    require_runs_here(task.target, f"ablate({task.name})")
    with LocalMeasurer(CONFIG) as own:
        return own.remeasure(task, candidates, rounds)
