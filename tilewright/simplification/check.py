"""Does the simplified model give what the original gives? Both are run on the same inputs, and outputs compared.

The original runs without optimisation. Floats may differ by a tolerance that depends on their type. Where they differ
by more, or integers at all, the original is run once more, with the runtime's own optimisation: what that changes of
the results is noise of the model (a sum in another order that decides which of two equal candidates is first, a
quantized value on the border of two steps), and ten times as much is allowed.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import onnx

from tilewright.core.errors import InputError, TilewrightError
from tilewright.core.suggestions import did_you_mean
from tilewright.frontend.keep import OnnxModel
from tilewright.simplification.compare import Difference, difference
from tilewright.simplification.feeds import random_inputs
from tilewright.simplification.options import SimplifyOptions
from tilewright.simplification.runners import Results, Run, Runtime, first_that_runs, open_runner
from tilewright.simplification.sizes import Env, given_sizes, likely_sizes
from tilewright.writer import save_onnx

WANTED = 2
"""Bindings of symbolic sizes that are tried."""
_NOISES = 10.0


@dataclass(frozen=True, slots=True)
class Case:
    """One set of inputs, and what the original gives for it. ``sizes``: how they are told."""

    sizes: str
    feed: Mapping[str, object]
    expected: Results


@dataclass(frozen=True, slots=True)
class Mismatch:
    """What is wrong with a model: an output of a case, or that it does not run (``output`` is "")."""

    output: str
    case: str
    difference: Difference
    tolerance: float

    def __str__(self) -> str:
        if not self.output:
            return self.difference.where
        d, at = self.difference, f" for {self.case}" if self.case else ""
        size = f"differs by {d.size:.2g}, {self.tolerance:.2g} is allowed" if math.isfinite(d.size) else "differs"
        return f"output '{self.output}' {size}{at}: {d.where}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What was compared. ``cases``: the sizes of each; ``worst``: the largest difference of floats. ``notes``: what
    could not be done, and differences that are noise."""

    runtime: Runtime | None
    cases: tuple[str, ...]
    worst: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Judge:
    """Runs models on the cases of an original. ``runtime``: None if the original cannot be run; ``notes`` say why."""

    original: Path | onnx.ModelProto
    outputs: tuple[str, ...]
    options: SimplifyOptions
    opset: int | None
    runtime: Runtime | None = None
    cases: tuple[Case, ...] = ()
    notes: tuple[str, ...] = ()
    worst: float = 0.0
    _noise: dict[tuple[str, str], float] = field(default_factory=dict)

    @classmethod
    def of(cls, original: Path | onnx.ModelProto, model: OnnxModel, options: SimplifyOptions) -> Judge:
        """``model``: what was read from ``original``. Raises InputError for sizes and inputs that do not fit."""
        outputs = model.graph.outputs
        judge = cls(original, outputs, options, options.opset)
        given = [given_sizes(model, s) for s in options.check_sizes]
        if options.check_inputs is not None:
            _require_inputs(model, options.check_inputs)
        runtime, run, why = first_that_runs(original, outputs, options.threads)
        judge.notes = (why,) if why else ()
        if run is not None:
            judge.runtime = runtime
            judge.cases = tuple(judge._cases(model, given, run))
            if not judge.cases:
                judge.runtime = None
        return judge

    def _cases(self, model: OnnxModel, given: Sequence[Env], run: Run) -> list[Case]:
        o = self.options
        if o.check_inputs is not None:
            return [Case("the inputs given", o.check_inputs, run(o.check_inputs))]
        cases: list[Case] = []
        failed: list[str] = []
        for env in given or likely_sizes(model.graph):
            try:
                feed = random_inputs(model.graph, env, o.seed + len(cases))
                cases.append(Case(_shown(env), feed, run(feed)))
            except (TilewrightError, MemoryError) as e:
                why = str(e) or "out of memory"
                failed.append(f"not run for {_shown(env) or 'random inputs'}: {why.splitlines()[0][:200]}")
            if not given and len(cases) == WANTED:
                return cases  # what did not run were guesses
        self.notes += tuple(failed)
        return cases

    def mismatch(self, model: OnnxModel) -> Mismatch | None:
        """What is wrong with a model that should give what the original gives."""
        if self.runtime is None:
            return None
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            try:
                save_onnx(model, path, self.opset)
                run = open_runner(self.runtime, path, self.outputs, self.options.threads)
                results = [run(c.feed) for c in self.cases]
            except TilewrightError as e:
                return Mismatch("", "", Difference(math.inf, str(e)), 0.0)
        found = (self._compare(c, r, name) for c, r in zip(self.cases, results, strict=True) for name in self.outputs)
        return max((m for m in found if m is not None), key=lambda m: m.difference.size, default=None)

    def _compare(self, case: Case, results: Results, name: str) -> Mismatch | None:
        d = difference(case.expected[name], results[name])
        tolerance = d.tolerance if self.options.tolerance is None or not d.tolerance else self.options.tolerance
        if d.size > tolerance and self.options.tolerance is None:
            tolerance = max(tolerance, _NOISES * self._noise_of(case, name))
            if d.size <= tolerance:
                self._note(f"output '{name}' differs as it does with and without {self.runtime}'s own optimisation")
        if d.size > tolerance:
            return Mismatch(name, case.sizes, d, tolerance)
        if d.tolerance:
            self.worst = max(self.worst, d.size)
        return None

    def _noise_of(self, case: Case, name: str) -> float:
        if not self._noise and self.runtime is not None:
            run = open_runner(self.runtime, self.original, self.outputs, self.options.threads, optimize=True)
            for c, output in itertools.product(self.cases, self.outputs):
                self._noise[c.sizes, output] = 0.0
            for c in self.cases:
                for output, x in run(c.feed).items():
                    self._noise[c.sizes, output] = difference(c.expected[output], x).size
        return self._noise[case.sizes, name]

    def _note(self, text: str) -> None:
        self.notes = tuple(dict.fromkeys((*self.notes, text)))

    def checked(self) -> Checked:
        """What was compared so far."""
        return Checked(self.runtime, tuple(c.sizes for c in self.cases), self.worst, self.notes)


def _require_inputs(model: OnnxModel, given: Mapping[str, object]) -> None:
    known = model.graph.inputs
    for name in given:
        if name not in known:
            raise InputError(
                f"check_inputs: no input {name!r}; there are {', '.join(known)}{did_you_mean(name, known)}"
            )
    if missing := [i for i in known if i not in given]:
        raise InputError(f"check_inputs: expected arrays for {', '.join(known)}, got none for {', '.join(missing)}")


def _shown(env: Env) -> str:
    return ", ".join(f"{s}={n}" for s, n in env.items())
