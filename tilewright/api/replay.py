"""A trace step by step: the function after each step, what the step changed, its prediction and its time."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.autotune.base.measure_result import MeasureResult, Ok
from tilewright.autotune.base.space import Candidate
from tilewright.autotune.base.task import Task
from tilewright.autotune.cost_model.cost_model import CostModel, HeuristicModel
from tilewright.autotune.cost_model.predict import FeatureCache, ModelScore
from tilewright.autotune.measure.measurer import LocalMeasurer, Measurer
from tilewright.autotune.measure.time_evaluator import EvaluatorConfig
from tilewright.codegen.detect_cpu import parse_target, require_runs_here
from tilewright.core.errors import InputError
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import Bar, Cell, code, details, fragment, table, title
from tilewright.core.options import as_whole, shown
from tilewright.machine.target import Target
from tilewright.schedule.base import Primitive
from tilewright.schedule.trace import Trace, step_text
from tilewright.tensor_ir.ir import Func

DECLARED = "as declared"
CONFIG = EvaluatorConfig(repeat=5, slow_factor=0.0)
"""What is measured step by step is slow at first, and that is what is asked."""


@dataclass(frozen=True, slots=True)
class State:
    """The function after step ``number``, 0: as it was declared. ``step``: that step; ``trace``: all until then.
    ``before``: the function before the step."""

    number: int
    step: Primitive | None
    trace: Trace
    func: Func
    before: Func

    @property
    def text(self) -> str:
        """The step in the text form of traces."""
        return DECLARED if self.step is None else step_text(self.step)

    def changes(self) -> list[str]:
        """The lines that the step took out (``- ``) and put in (``+ ``)."""
        old, new = (str(f).splitlines() for f in (self.before, self.func))
        return [line for line in difflib.ndiff(old, new) if line[:2] in ("- ", "+ ")]

    def __str__(self) -> str:
        return str(self.func)

    def _repr_html_(self) -> str:
        parts = [title(f"step {self.number}", self.text), code(str(self.func))]
        if self.step is not None:
            parts.append(details("what changed", code("\n".join(self.changes()))))
        return fragment(*parts)


class Replay:
    """The states of ``func`` under ``trace``, and a place among them: :meth:`step` goes on, :meth:`undo` back.

    ``target``: a CPU or its description (default: this machine). ``dims``: sizes of the function's dims, to predict
    and to measure with. Raises ScheduleError, with the number of the step, for a trace that does not replay.

    >>> import tilewright
    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> A = placeholder("A", (20,), dtypes.float32)
    >>> s = tilewright.Schedule(build_func("double", [A], [compute("B", (20,), lambda i: A[i] + A[i])]))
    >>> s.vectorize(s.split("B_i", (None, 8))[1])
    >>> replay = s.replay()
    >>> [state.text for state in replay]
    ['as declared', 'split("B_i", factors=(None, 8))', 'vectorize("B_i_1")']
    >>> print("\\n".join(replay[2].changes()))
    -         for B_i_1 in range(min(-B_i_0*8 + 20, 8)):
    +         for B_i_1 in vectorized(min(-B_i_0*8 + 20, 8)):
    """

    def __init__(
        self, func: Func, trace: Trace, target: str | Target | None = None, dims: Mapping[str, int] | None = None
    ) -> None:
        self.func = func
        self.trace = trace
        self.target = parse_target(target)
        self.dims = dict(dims or {})
        self._position = 0
        self._states = _states(func, trace)
        self._predicted: tuple[float, ...] | None = None
        self._measured: tuple[MeasureResult, ...] | None = None

    # -- the states ------------------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """The number of states, one more than there are steps."""
        return len(self._states)

    def __iter__(self) -> Iterator[State]:
        return iter(self._states)

    def __getitem__(self, number: int) -> State:
        return self._states[number]

    @property
    def current(self) -> State:
        """The state where the replay stands, at first that before every step."""
        return self._states[self._position]

    def step(self, count: int = 1) -> State:
        """Go on by ``count`` steps; the state then. Raises InputError beyond the last one."""
        return self.go(self._position + _count("step", count))

    def undo(self, count: int = 1) -> State:
        """Go back by ``count`` steps; the state then. Raises InputError before the first one."""
        return self.go(self._position - _count("undo", count))

    def go(self, number: int) -> State:
        """Go to the state after step ``number``; that state. Raises InputError if there is none."""
        found = as_whole(number)
        if found is None or not 0 <= found < len(self):
            raise InputError(f"replay: expected the number of a state, 0 to {len(self) - 1}, got {shown(number)}")
        self._position = found
        return self.current

    # -- what they take --------------------------------------------------------------------------------------------
    def predict(self, model: CostModel | None = None) -> tuple[float, ...]:
        """The score of each state by a cost model, higher for faster (default: the roofline of its features, which has
        not to be trained)."""
        score = ModelScore(model or HeuristicModel(), FeatureCache(self.func, self.target, self._task().dims))
        self._predicted = tuple(float(x) for x in score([self._candidate(s) for s in self]))
        return self._predicted

    def measure(self, measurer: Measurer | None = None) -> tuple[MeasureResult, ...]:
        """The time of each state, or why it has none. ``measurer``: default, one of worker processes of this machine,
        which this call ends. Raises TargetError if the target's code does not run here."""
        task, candidates = self._task(), [self._candidate(s) for s in self]
        if measurer is not None:
            self._measured = tuple(measurer.measure(task, candidates))
            return self._measured
        require_runs_here(self.target, f"replay({self.func.name})")
        with LocalMeasurer(CONFIG) as own:
            self._measured = tuple(own.measure(task, candidates))
        return self._measured

    # -- what is shown ---------------------------------------------------------------------------------------------
    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each state: ``number``, ``step``, and where it is known ``predicted``, ``seconds`` and
        ``failure``."""
        rows: list[dict[str, object]] = []
        for state in self:
            found = None if self._measured is None else self._measured[state.number]
            failed = None if found is None or isinstance(found, Ok) else str(found.kind)
            rows.append({
                "number": state.number, "step": state.text,
                "predicted": None if self._predicted is None else self._predicted[state.number],
                "seconds": found.seconds if isinstance(found, Ok) else None, "failure": failed,
            })  # fmt: skip
        return rows

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def __str__(self) -> str:
        """Each step, with the lines that it took out and put in."""
        lines = [str(self.func).rstrip("\n")]
        for state in self._states[1:]:
            lines += ["", f"# {state.number}. {state.text}", *state.changes()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows: list[Sequence[Cell]] = []
        times = [r["seconds"] for r in self.to_dicts() if isinstance(r["seconds"], float)]
        longest = max(times, default=1.0)
        for row in self.to_dicts():
            seconds, predicted = row["seconds"], row["predicted"]
            took = f"{seconds * 1e6:,.1f}" if isinstance(seconds, float) else str(row["failure"] or "")
            cells: list[Cell] = [str(row["number"]), str(row["step"]), took]
            cells.append(Bar(seconds / longest) if isinstance(seconds, float) else "")
            cells.append(f"{predicted:.2f}" if isinstance(predicted, float) else "")
            rows.append(cells)
        head = (" step", "", " us", "time", " predicted")
        here = f"step {self._position} of {len(self) - 1}"
        return fragment(title(f"replay of {self.func.name}", here), table(head, rows), code(str(self.current)))

    def _task(self) -> Task:
        return Task(self.func, self.target, self.dims)

    def _candidate(self, state: State) -> Candidate:
        return Candidate((), state.trace, state.func)


def _states(func: Func, trace: Trace) -> tuple[State, ...]:
    trace.apply(func)  # an error says which step it is of how many
    states = [State(0, None, Trace(), func, func)]
    for number, step in enumerate(trace.steps, 1):
        before = states[-1]
        states.append(State(number, step, before.trace.then(step), step.apply(before.func), before.func))
    return tuple(states)


def _count(who: str, count: object) -> int:
    number = as_whole(count)
    if number is None or number < 0:
        raise InputError(f"{who}: expected a number of steps, got {shown(count)}")
    return number
