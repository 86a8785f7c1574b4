"""A compiled model: run it, profile it, ask it what was done."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, overload

import numpy as np

from tilewright.core.errors import BroadcastError, InputError, InternalError, ResourceError, TilewrightError
from tilewright.core.io.files import TEXT, marked, require_replaceable, write_file
from tilewright.core.options import require_names, require_path, require_whole
from tilewright.core.plan import KernelStep, Plan, Segment, Step, segments
from tilewright.runtime.counting import Counts, count_kernels
from tilewright.runtime.coverage import Coverage, KernelTuning, estimated_coverage, measured_coverage
from tilewright.runtime.denormals import DenormalCount, count_denormals, counts_of, made_by_steps, named
from tilewright.runtime.executor import Executor, PlanCode, Seen
from tilewright.runtime.foreign import Foreign
from tilewright.runtime.general import GeneralVersion, may_broadcast
from tilewright.runtime.memory_report import MemoryReport, memory_report
from tilewright.runtime.outputs import GivenOutputs, OutputChecker
from tilewright.runtime.profile import KernelSpan, KernelTime, Peaks, Profile
from tilewright.runtime.resources.lanes import Lanes
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.runtime.signature import InputChecker, TensorSpec, spec_of

LOGGER = logging.getLogger("tilewright")
Out: TypeAlias = "Mapping[str, object] | None"
"""Arrays of the caller for outputs, by name."""


class Exporter(Protocol):
    """What writes a compiled model to files that run without Python."""

    def export(
        self, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], general: Any,
        is_judged_late: bool, weights: str, format_: str | None, /,
    ) -> list[Path]: ...  # fmt: skip


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What the build says of itself. ``stages``: name of a dump file -> a function that makes its text. ``types``:
    those of inputs and outputs that are no tensors, in ONNX's words. ``account``: the explanation as what JSON has.
    ``stepwise`` makes the same model, of constants that are loaded, such that each value can be looked at; ``recipe``
    gives a function and its arguments that build the model again, for copies of it."""

    explanation: Callable[[], str]
    stages: Mapping[str, Callable[[], str]]
    timings: tuple[tuple[str, float], ...] = ()
    folded_inputs: tuple[str, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)
    output_names: tuple[str, ...] = ()
    measure_peaks: Callable[[int], Peaks] | None = None
    tuning: Mapping[str, KernelTuning] = field(default_factory=dict)
    exporter: Exporter | None = None
    account: Callable[[], dict[str, Any]] = dict
    stepwise: Callable[[Mapping[str, np.ndarray]], CompiledModel] | None = None
    recipe: Callable[[], tuple[object, ...]] | None = None


class CompiledModel:
    """A model that was compiled: machine code, constants, and an account of the build.

    ``run`` may be called from several Python threads at once. A call that comes alone uses all threads of the model;
    calls that come together run side by side on a share of them each, with an arena each, and wait in the order in
    which they came. Results do not depend on how many threads there are.

    >>> model = tilewright.compile("model.onnx")
    >>> print(model.inputs, model.outputs)
    (x: float32[batch, 32],) (y: float32[batch, 10],)
    >>> x = np.ones((2, 32), np.float32)
    >>> y = np.empty((2, 10), np.float32)
    >>> model.run({"x": x}, out={"y": y})["y"] is y
    True
    >>> [k.kernel for k in model.profile({"x": x}, runs=3).kernels]
    ['k0_matmul_add_relu', 'k1_matmul']
    """

    def __init__(
        self, plan: Plan, code: PlanCode | Foreign, pool: PoolHandle, info: BuildInfo, keep_alive: object,
        general: Callable[[], CompiledModel] | None = None, streams: int | None = None,
    ) -> None:  # fmt: skip
        """``code`` is Foreign for another machine's: the model can be looked at and not run. ``streams``: how many
        calls run at once at most, each on a fixed share of the threads; None: as they come.

        ``general`` builds the version for calls whose sizes broadcast where this one takes them to be equal."""
        self._assumed = may_broadcast(plan)
        known = {b.symbol for b in plan.bindings if plan.slots[b.slot].kind in ("input", "constant")}
        self._is_judged_late = any(not a.symbols() <= known for a in self._assumed)
        if self._is_judged_late:  # the general version would start with inputs that are already changed
            plan = replace(plan, in_place=())
        self._plan = plan
        self._executor = code if isinstance(code, Foreign) else Executor(plan, code, pool)
        self._lanes: Lanes[Executor | Foreign] = Lanes(pool.threads, streams, self._executor, self._another)
        self._checker = InputChecker(plan, info.folded_inputs)
        self._pool = pool
        self._info = info
        self._keep_alive = keep_alive
        self._general = GeneralVersion(general if self._assumed else None)
        self.output_names = info.output_names or plan.outputs
        self._outputs = OutputChecker(plan, self.output_names)

    def __reduce__(self) -> tuple[object, ...]:
        """A pickled or copied model is built again, from the same file or bytes and with the same options."""
        if self._info.recipe is None:
            raise pickle.PicklingError("a compiled model is copied if `compile` built it, this one was built otherwise")
        return self._info.recipe()

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs in order, each with ``name``, ``dtype`` and ``shape``: numbers, and names or formulas of open
        sizes."""
        return tuple(self._spec(n, n) for n in self._plan.inputs)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """The outputs in order, as :attr:`inputs`."""
        return tuple(self._spec(o, n) for o, n in zip(self._plan.outputs, self.output_names, strict=True))

    def _spec(self, slot: str, name: str) -> TensorSpec:
        return replace(spec_of(self._plan, slot), name=name, type_text=self._info.types.get(name, ""))

    @property
    def threads(self) -> int:
        """How many threads a run uses at most."""
        return self._lanes.threads

    @property
    def streams(self) -> int:
        """How many calls run at once at most; further ones wait."""
        return self._lanes.streams

    def _another(self) -> Executor | Foreign:
        """What a call uses that runs beside others."""
        mine = self._executor
        return mine if isinstance(mine, Foreign) else mine.twin(replace(self._pool))

    @property
    def plan(self) -> Plan:
        """The call plan: where every value lies, and the steps of a run, native ones and those on the host."""
        return self._plan

    @property
    def in_place(self) -> dict[str, str]:
        """Outputs that are an input with some elements replaced, and that input: ``run`` takes one array for both."""
        names = dict(zip(self._plan.outputs, self.output_names, strict=True))
        return {names[o]: i for o, i in self._plan.in_place}

    @property
    def ranges(self) -> dict[str, tuple[int, int]]:
        """The least and the greatest size that a call may bring, by symbolic dimension, of those with a range."""
        return {r.what: (r.low.const, r.high.const) for r in self._plan.limits}

    @property
    def timings(self) -> tuple[tuple[str, float], ...]:
        """The stages of the build, each with the seconds that it took."""
        return self._info.timings

    @overload
    def run(self, feed: Mapping[str, object], /, *, out: Out = None) -> dict[str, np.ndarray]: ...
    @overload
    def run(
        self, output_names: Sequence[str] | None, feed: Mapping[str, object], /, *, out: Out = None
    ) -> list[np.ndarray]: ...

    def run(self, first, second=None, /, *, out=None):  # type: ignore[no-untyped-def]
        """Run the model once. ``run(feed)`` takes a dict of arrays by input name and gives a dict of arrays by output
        name. ``run(output_names, feed)`` gives a list in the order of the names, as in ONNX Runtime; of all outputs for
        None and for no names.

        ``feed``: arrays with the element types and shapes of :attr:`inputs`, or what ``numpy.asarray`` makes such
        arrays of. One that is not C-contiguous is copied. ``out``: arrays, by output name, that results are written
        into instead of new ones; they are what is returned. Such an array is C-contiguous and shares no memory with an
        input or another output. But where an output updates an input (``in_place``), it may be the very array of that
        input, and only what is new is written: a cache of keys that a language model adds a row to. After an error the
        contents of these arrays are undefined.

        Raises InputError for wrong names, element types or shapes, and for indices outside of what they point into;
        ResourceError where memory does not suffice.
        """
        if second is None:
            return dict(zip(self.output_names, self._run(first, out=out), strict=True))
        names = self.output_names if first is None else require_names("output_names", first) or self.output_names
        unknown = [n for n in names if n not in self.output_names]
        if unknown:
            raise InputError(f"outputs: unknown {', '.join(map(repr, unknown))}; expected {list(self.output_names)}")
        results = dict(zip(self.output_names, self._run(second, out=out), strict=True))
        return [results[n] for n in names]

    def _run(self, feed: Mapping[str, object], times: list[np.ndarray] | None = None, out: Out = None) -> list[object]:
        arrays = self._checker.arrays(feed)
        return self._run_arrays(arrays, times, None if out is None else self._outputs.given(out))[0]

    def _run_in_lane(
        self, arrays: Sequence[object], whole: bool, times: list[np.ndarray] | None = None,
        given: GivenOutputs | None = None, seen: Seen | None = None,
    ) -> list[object]:  # fmt: skip
        return self._lanes.run(lambda lane, threads: lane.run(arrays, times, seen, given=given, threads=threads), whole)

    def _run_arrays(
        self, arrays: Sequence[object], times: list[np.ndarray] | None = None, given: GivenOutputs | None = None,
        whole: bool = False,
    ) -> tuple[list[object], CompiledModel]:  # fmt: skip
        """The outputs, and the version of the model that gave them. ``whole``: by itself, on all threads."""
        general = self._general.known_for(arrays)
        if general is None:
            if given is not None:
                self._outputs.require_apart(given, arrays)
            try:
                return self._run_in_lane(arrays, whole, times, given), self
            except MemoryError as e:
                raise ResourceError(f"{self._plan.name}: out of memory: {e or 'an array is too large'}") from e
            except BroadcastError as e:
                error: TilewrightError = e
            except TilewrightError as e:
                if not self._is_judged_late:
                    raise
                error = e  # perhaps because of sizes that will only now turn out to broadcast
            general = self._general.serve(arrays, error)
        if times is not None:
            times.clear()
        return general._run_arrays(arrays, times, given, whole)

    def watch(self, feed: Mapping[str, object], seen: Seen) -> None:
        """Run, and let ``seen`` look at the slots after each step; in a ``stepwise`` plan that is each kernel."""
        self._run_in_lane(self._checker.arrays(feed), whole=True, seen=seen)

    def profile(self, feed: Mapping[str, object], runs: int = 10, *, counters: bool = False) -> Profile:
        """Time every kernel over ``runs`` inferences of ``feed``. Gives a profile, which prints as a table: median
        time, GFLOP/s, GB/s, and percent of the measured peaks of this machine. Raises InputError as :meth:`run` does.

        ``counters``: then run on one thread and read the CPU's counters around each kernel: cycles, instructions,
        misses of caches and branches. Where the system has none or refuses, the profile says why.

        For sizes that broadcast, those of the version that runs then.
        """
        version = self._version_for(feed)
        if version is not self:
            return version.profile(feed, runs, counters=counters)
        runs = require_whole("runs", runs)
        samples: list[list[float]] = []
        for _ in range(runs):
            times: list[np.ndarray] = []
            self._run_arrays(self._checker.arrays(feed), times, whole=True)
            samples.append([float(d) for t in times for d in np.diff(t)])
        medians = np.median(np.array(samples), axis=0) if samples[0] else np.zeros(0)
        steps = self._timed_steps()
        env = self._executor.symbols(self._checker.arrays(feed))
        kernels = tuple(
            KernelTime(
                s.kernel, s.nodes, float(seconds),
                None if s.flops is None or not s.flops.free_vars() <= env.keys() else s.flops.evaluate(env),
                None if s.bytes is None or not s.bytes.free_vars() <= env.keys() else s.bytes.evaluate(env),
                s.parallel, s.product,
            )
            for s, seconds in zip(steps, medians, strict=False)
            if isinstance(s, KernelStep)
        )  # fmt: skip
        peaks = self._info.measure_peaks(self.threads) if self._info.measure_peaks is not None else None
        denormals = self.denormals(feed)
        if denormals:
            LOGGER.warning('profile: denormal numbers, %s; see denormals="flush"', denormals[0])
        return Profile(kernels, peaks, denormals, self._counts(feed, runs) if counters else None)

    def _counts(self, feed: Mapping[str, object], runs: int) -> Counts:
        if self._info.stepwise is None or isinstance(self._executor, Foreign):
            return Counts(refusal="counters: the model cannot be run kernel by kernel")
        steps = self._info.stepwise(self._executor.constants)
        if isinstance(steps._executor, Foreign):
            raise InternalError("a stepwise model does not run here")
        pool = replace(self._pool, threads=1)
        return count_kernels(steps._executor, pool, self._checker.arrays(feed), runs)

    def denormals(self, feed: Mapping[str, object]) -> tuple[DenormalCount, ...]:
        """Where a run meets numbers of float32 and float64 that are nearly zero: inputs, constants, and what kernels,
        loops and operators of the host give, the most first."""
        if self._info.stepwise is None or isinstance(self._executor, Foreign):
            return ()
        version = self._version_for(feed)
        if version is not self:
            return version.denormals(feed)
        made, plan = made_by_steps(self._plan), self._plan
        places = {id(s): i for i, s in enumerate(plan.steps)}
        constants = self._executor.constants
        found = counts_of({**dict(zip(plan.inputs, self._checker.arrays(feed), strict=True)), **constants})

        def seen(step: Step, read: Callable[[str], object]) -> None:
            values = [read(n) for n in made.get(places[id(step)], ())]
            count = sum(count_denormals(v) for v in values)
            if count:
                size = sum(v.size for v in values if isinstance(v, np.ndarray))
                found.append(DenormalCount(*named(step), count, size))

        self._info.stepwise(constants).watch(feed, seen)
        return tuple(sorted(found, key=lambda d: -d.count))

    def _timed_steps(self) -> list[Step]:
        """The steps between whose ends clocks are read, in the order of a run."""
        found = (w for w in segments(self._plan) if isinstance(w, Segment))
        return [s for w in found for s in self._plan.steps[w.start : w.stop]]

    def run_timed(
        self, feed: Mapping[str, object], *, out: Out = None
    ) -> tuple[dict[str, np.ndarray], tuple[KernelSpan, ...]]:
        """Run once, and tell when each kernel began and ended, in seconds of ``time.monotonic``. Gives the outputs by
        name, and the spans."""
        times: list[np.ndarray] = []
        arrays = self._checker.arrays(feed)
        results, version = self._run_arrays(arrays, times, None if out is None else self._outputs.given(out))
        ends = [pair for t in times for pair in pairwise(map(float, t))]
        spans = tuple(
            KernelSpan(s.kernel, s.nodes, start, stop - start, s.parallel)
            for s, (start, stop) in zip(version._timed_steps(), ends, strict=False)
            if isinstance(s, KernelStep)
        )
        return dict(zip(self.output_names, results, strict=True)), spans  # type: ignore[arg-type]

    def _version_for(self, feed: Mapping[str, object]) -> CompiledModel:
        """The version that runs these inputs; they are run once."""
        return self._run_arrays(self._checker.arrays(feed))[1]

    def build_general(self) -> None:
        """Build the version that broadcasts now, if the model may need one. Raises what builds raise."""
        self._general.require_built()

    def export(
        self, path: str | Path, *, weights: Literal["inside", "beside"] = "inside",
        format: Literal["shared", "so", "dll", "dylib", "wasm", "a"] | None = None,  # noqa: A002 - the word for it
    ) -> list[Path]:  # fmt: skip
        """Write the model to a library that runs without Python (docs/deploy.md). Its interface is ``tilewright.h``, in
        the directory :func:`tilewright.get_include`. Gives the paths of what was written.

        ``path``: where to, with the extension of a format. ``weights``: ``inside`` the library, or in a file
        ``beside`` it, which it finds there and maps. ``format``: instead of the extension; ``shared`` is that of the
        target's shared libraries (for Linux, Windows or macOS, or a WebAssembly module), ``a`` a static library, of
        which a program can have one, with a header beside it. Needs a C compiler for the model's target: the system's,
        or the one of ``pip install tilewright[deploy]``, which has all.

        Raises UnsupportedError, with all of them, for operators that need Python, InputError where another kind of file
        is at ``path`` or the target has none of this format, TargetError for what the compiler refuses; nothing is
        written then.
        """
        if self._info.exporter is None:
            raise InputError("export: expected a model that `compile` built")
        general = None
        if self._general.exists:
            self._general.require_built()
            general = self._general.model
        exporter = None if general is None else general._info.exporter
        place = require_path("path", path)
        return self._info.exporter.export(
            place, self.inputs, self.outputs, exporter, self._is_judged_late, weights, format
        )

    def symbols(self, feed: Mapping[str, object]) -> dict[str, int]:
        """The sizes of the symbolic dimensions by name, as the shapes of the arrays in ``feed`` determine them."""
        return self._executor.symbols(self._checker.arrays(feed))

    def coverage(self, feed: Mapping[str, object] | None = None, runs: int = 5) -> Coverage:
        """What is tuned: a row for each kernel with hit, near miss or miss in the tuning database, the reason, and its
        share of the run time (0 to 1). ``str()`` of it is a table.

        With a ``feed`` the shares are measured; without, they are estimated from the records and the arithmetic.
        """
        if feed is None:
            return estimated_coverage(self._plan, self._info.tuning)
        version = self._version_for(feed)
        if version is not self:
            return version.coverage(feed, runs)
        seconds: dict[str, float] = {}
        for k in self.profile(feed, runs).kernels:
            seconds[k.kernel] = seconds.get(k.kernel, 0.0) + k.seconds
        return measured_coverage(self._plan, self._info.tuning, seconds)

    def memory(self, feed: Mapping[str, object] | None = None) -> MemoryReport:
        """Bytes of weights, and of the arena from step to step: for the sizes of ``feed``, or, without one, as far as
        they are known beforehand, with the greatest of each range. Raises InputError for a feed that does not fit."""
        if feed is None:
            return memory_report(self._plan, {symbol: high for symbol, (_, high) in self.ranges.items()})
        version = self._general.known_for(self._checker.arrays(feed)) or self
        return memory_report(version._plan, version.symbols(feed))

    def explain(self) -> str:
        """The account of the build as text (docs/explain.md): the target, what passes and fusion did and refused, and
        why; operators on the host; each kernel with its nodes and where its schedule is from; what else could have
        computed each node. The version for sizes that broadcast, if it is built, follows."""
        text = f"{self._info.explanation()}\n\n{self.memory()}"
        if not self._assumed:
            return text
        pairs = [f"  {a.node}: {a.left} with {a.right}" for a in self._assumed]
        lines = ["sizes that are taken to be equal and may also broadcast:", *pairs, f"  {self._general.state()}"]
        if (general := self._general.model) is not None:
            lines += ["", "the version that broadcasts:", *(f"  {line}" for line in general.explain().splitlines())]
        return "\n".join((text, "", *lines))

    def account(self) -> dict[str, Any]:
        """What :meth:`explain` says of the build as objects, lists, text and numbers, in seconds, bytes and counts; the
        keys are those of ``build`` in docs/json-output.md."""
        return self._info.account()

    def dump(self, directory: str | Path) -> list[Path]:
        """Write every stage of the build as text files into ``directory``; returns their paths.

        Those of the version for sizes that broadcast go into ``broadcasts`` in it, if it is built. Raises
        InputError, and writes none, if one of them would replace a file that is not from a dump.
        """
        folder = require_path("directory", directory)
        folder.mkdir(parents=True, exist_ok=True)
        paths = {folder / name: text for name, text in self._info.stages.items()}
        for path in paths:
            require_replaceable(path, TEXT)
        for path, text in paths.items():
            write_file(path, TEXT, marked(text(), ";" if path.suffix == ".ll" else "#"))
        general = self._general.model
        return list(paths) if general is None else [*paths, *general.dump(folder / "broadcasts")]
