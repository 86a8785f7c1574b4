"""What the CPU counts while kernels run: each kernel call on one thread, between two stops of Python."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.core.console import table
from tilewright.core.errors import MeasurementError
from tilewright.core.extras import dataframe
from tilewright.core.html.pieces import fragment, remark, title
from tilewright.core.html.pieces import table as html_table
from tilewright.core.plan import KernelStep, Step
from tilewright.runtime.executor import Executor
from tilewright.runtime.resources.counters import Counters
from tilewright.runtime.resources.thread_pool import PoolHandle

_HEAD = ("kernel", " cycles", " instructions", " per cycle", " L1 misses", " LLC misses", " branch misses", "nodes")
_NAMES = ("l1_misses", "llc_misses", "branch_misses")


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """One kernel call. ``counts``: by event, medians over runs; without those that could not be counted."""

    kernel: str
    nodes: tuple[str, ...]
    counts: Mapping[str, float]

    @property
    def instructions_per_cycle(self) -> float | None:
        """None if one of them is not known."""
        cycles, instructions = self.counts.get("cycles"), self.counts.get("instructions")
        return None if not cycles or instructions is None else instructions / cycles


@dataclass(frozen=True, slots=True)
class Counts:
    """All kernel calls of an inference on one thread, in order. ``refusal``: why there are none; ``refused``: why some
    events are missing, by event. ``str()`` is the table."""

    kernels: tuple[KernelCounts, ...] = ()
    refusal: str = ""
    refused: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join([*([table(_HEAD, self._rows())] if self.kernels else []), *self._remarks()])

    def to_dicts(self) -> list[dict[str, object]]:
        """A row for each kernel call: ``kernel``, ``nodes``, each event that was counted, and
        ``instructions_per_cycle``."""
        rows: list[dict[str, object]] = []
        for k in self.kernels:
            head = {"kernel": k.kernel, "nodes": ", ".join(k.nodes)}
            rows.append({**head, **k.counts, "instructions_per_cycle": k.instructions_per_cycle})
        return rows

    def to_dataframe(self) -> Any:
        """:meth:`to_dicts` as a pandas.DataFrame (the extra ``plots``)."""
        return dataframe(self.to_dicts())

    def pieces(self) -> list[str]:
        """What a page shows of it."""
        rows = [html_table(_HEAD, self._rows())] if self.kernels else []
        return [
            title("counted on one thread", f"{len(self.kernels)} kernel calls"),
            *rows,
            *map(remark, self._remarks()),
        ]

    def _repr_html_(self) -> str:
        return fragment(*self.pieces())

    def _remarks(self) -> list[str]:
        if self.refusal:
            return [self.refusal, "a model of the inner loops instead: tilewright inspect MODEL --stage ports"]
        reasons = [f"no {name.replace('_', ' ')}: {why}" for name, why in self.refused.items()]
        return ["counted on one thread, user code only; medians of several runs", *reasons]

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for k in sorted(self.kernels, key=lambda k: -k.counts.get("cycles", 0.0)):
            ratio = k.instructions_per_cycle
            cells = (_whole(k.counts.get("cycles")), _whole(k.counts.get("instructions")))
            per_cycle = "" if ratio is None else f"{ratio:.2f}"
            misses = (_whole(k.counts.get(n)) for n in _NAMES)
            rows.append((k.kernel, *cells, per_cycle, *misses, ", ".join(k.nodes)[:60]))
        return rows


class _Counting(Executor):
    """An executor beside another one, whose native calls are counted."""

    def __init__(self, inner: Executor, pool: PoolHandle, counters: Counters) -> None:
        vars(self).update(vars(inner.twin(pool)))
        self._entries = {w: counters.around(f) for w, f in self._entries.items()}  # type: ignore[misc]


def count_kernels(
    stepwise: Executor, pool: PoolHandle, arrays: Sequence[object], runs: int,
    make: Callable[[], Counters] = Counters,
) -> Counts:  # fmt: skip
    """What each kernel call of a ``stepwise`` plan counts. ``pool``: of one thread. ``arrays``: the inputs."""
    try:
        counters = make()
    except MeasurementError as e:
        return Counts(refusal=str(e))
    with counters:
        executor = _Counting(stepwise, pool, counters)
        samples: list[list[dict[str, float]]] = []
        steps: list[KernelStep] = []

        def seen(step: Step, read: Callable[[str], object]) -> None:
            found = counters.take()
            if isinstance(step, KernelStep):
                samples[-1].append(found)
                steps.append(step)

        for _ in range(runs + 1):  # caches are cold in the first
            samples.append([])
            steps.clear()
            counters.take()
            executor.run(arrays, seen=seen, threads=1)
        return Counts(
            tuple(
                KernelCounts(s.kernel, s.nodes, _medians([of_run[i] for of_run in samples[1:]]))
                for i, s in enumerate(steps)
            ),
            refused=dict(counters.refused),
        )


def _medians(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for s in samples for name in s)
    return {name: statistics.median(s[name] for s in samples if name in s) for name in names}


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"
