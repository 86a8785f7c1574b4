"""What users ask of a build, as one frozen value that is checked when it is made.

``compile`` and ``tune`` take such a value, single options as keywords, or both: a keyword counts before the value. The
classes ending in ``Keywords`` say the same to type checkers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypedDict, cast, get_args

from tilewright.autotune.lookup.apply_best import NearMisses
from tilewright.autotune.records.database import DatabaseLike, Policy
from tilewright.core.errors import InputError
from tilewright.core.index_ranges import OUT_OF_RANGE, OutOfRange
from tilewright.core.options import (
    require_choice,
    require_cpus,
    require_flag,
    require_names,
    require_number,
    require_whole,
    shown,
    with_keywords,
)
from tilewright.graph_ir.pipeline import Instrument
from tilewright.graph_ir.rules.base import Rule
from tilewright.graph_ir.rules.users import require_rules
from tilewright.lowering.implementations.base import Implementation
from tilewright.lowering.implementations.operator import Operator, require_operators
from tilewright.lowering.precision.choose_precision import Precisions, require_precision
from tilewright.machine.target import Target
from tilewright.schedule.default import require_schedule_rules
from tilewright.schedule.rules.base import ScheduleRule

Denormals: TypeAlias = Literal["keep", "flush"]
Broadcasting: TypeAlias = Literal["lazy", "ahead", "refuse", "only"]
Shapes: TypeAlias = Mapping[str, Sequence[int | str] | int]
Pins: TypeAlias = Mapping[str, str | Implementation]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """What every build of a model takes.

    ``target``: None for this machine, or a string like ``"llvm -mcpu=znver4"``; a model for a CPU that has what this
    one lacks can be looked at, and raises TargetError when run. ``threads``: how many a run uses at most; None for what
    the machine allows.
    ``input_shapes``: shapes by input name, and by symbolic dimension sizes or ranges of them: ``{"h": (8, 64)}`` has
    the least and the greatest size that calls may bring; others are refused, the build uses what follows from it.
    ``opt_level``: ``none``, ``basic``, ``extended`` or ``all``. ``disabled_pass``, ``enabled_pass``: names of passes or
    rules. ``cache``: use the object cache on disk.

    ``out_of_range``: what happens to an index outside of what it points into. ``error``: a ModelError of the build if
    the index is constant, else an InputError of the run, which names node, index and range. ``clamp``: the nearest
    element is taken. ``implementations``: what computes which node, by the node's name after the graph passes, which
    ``explain`` lists: the name of one of the operator's implementations, or an Implementation of your own.

    ``precision``: ``fp32`` computes as the model says. ``bf16`` rounds the operands of products to bfloat16 (8 bits of
    precision) where that is faster, adds in float32, and stores what such products read in 16 bits. ``bf16x3`` keeps
    operands, and takes each for the sum of two bfloat16 numbers (17 bits) where three products of these are faster than
    one of float32. ``auto`` does what tuning with ``auto`` found faster and exact enough on this machine, by the log;
    without a log it is ``fp32``. A mapping says ``fp32``, ``bf16`` or ``bf16x3`` for single nodes, named as after the
    graph passes; the others are ``fp32``.

    ``rules``: rewrites of your own (:mod:`tilewright.rules`), which run before all passes, at every level.
    ``operators``: operators of your own domains (:mod:`tilewright.operators`). ``schedule_rules``: of your own, tried
    on each nest before the compiler's; tuning searches the decisions that they ask for, too.
    """

    target: str | Target | None = None
    threads: int | None = None
    input_shapes: Shapes | None = None
    opt_level: str = "all"
    disabled_pass: str | Sequence[str] = ()
    enabled_pass: str | Sequence[str] = ()
    cache: bool = True
    out_of_range: OutOfRange = "error"
    implementations: Pins | None = None
    precision: Precisions = "fp32"
    rules: Sequence[Rule] = ()
    operators: Sequence[Operator] = ()
    schedule_rules: Sequence[ScheduleRule] = ()

    def __post_init__(self) -> None:
        for name, value in self._plain().items():
            object.__setattr__(self, name, value)

    def _plain(self) -> dict[str, object]:
        """The options under other than their given values. Raises InputError for what is not meant."""
        return {
            "disabled_pass": require_names("disabled_pass", self.disabled_pass),
            "enabled_pass": require_names("enabled_pass", self.enabled_pass),
            "cache": require_flag("cache", self.cache),
            "precision": require_precision(self.precision),
            "out_of_range": require_choice("out_of_range", self.out_of_range, OUT_OF_RANGE),
            "rules": require_rules(self.rules),
            "operators": require_operators(self.operators),
            "schedule_rules": require_schedule_rules(self.schedule_rules),
        }

    def build_keywords(self) -> BuildKeywords:
        """The options that every build takes, as keywords."""
        return cast(BuildKeywords, {f.name: getattr(self, f.name) for f in fields(BuildOptions)})

    @classmethod
    def of(cls, who: str, options: Self | None, more: Mapping[str, Any]) -> Self:
        """``options`` (by default those of the class) with ``more`` in their places. Raises InputError."""
        return with_keywords(cls, who, options, more)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions(BuildOptions):
    """What :func:`tilewright.compile` takes beside the model: :class:`BuildOptions` and these.

    ``progress``: None shows it on a terminal when the build takes longer than a second. ``instruments``: objects with
    ``before`` and ``after``, which are told of each graph pass.

    ``database``: a tuning database, or paths of logs, which must exist (default: that of the ``with database:`` block
    around the call). ``policy``: ``exact`` uses only records of this machine, ``compatible`` those of similar CPUs too,
    ``any`` those of other sizes too. ``near_misses``: ``measure`` times them against the default schedule and uses the
    faster, ``replay`` uses them, ``ignore`` does not. ``require_tuned``: the least share of run time in kernels with a
    record of their own.

    ``save_optimized``: where to write the graph that is compiled, as an ONNX model: that of ``opt_level`` after its
    passes, in the opset of the model or the lowest above it that can say it.

    ``broadcasting``: sizes that only a call tells are taken to be equal where an operator broadcasts them; for calls in
    which one of them is 1 there is a second version of the model. ``lazy`` builds it at the first such call, ``ahead``
    now; ``refuse`` builds none and refuses such calls; ``only`` builds that version alone.

    ``streams``: how many calls run at once, each on an equal share of the threads: 1 for the least time of a call that
    comes alone or waits its turn, as many as threads (more count as that) for the most calls a second. None: a call
    that comes alone has all threads, calls that come together share them. ``cpus``: a CPU, or several, for each
    thread of a run, on which it stays; but the first is that of the thread that calls, which stays where its owner has
    put it. Default: anywhere.

    ``denormals``: ``keep`` computes with numbers that are nearly zero as IEEE 754 says; ``flush`` takes them for zero
    in kernels, on all threads of a call, which some CPUs do a hundred times as fast.

    >>> options = tilewright.CompileOptions(threads=1, input_shapes={"batch": 4})
    >>> model = tilewright.compile("model.onnx", options, opt_level="basic")
    >>> print(model.inputs)
    (x: float32[4, 32],)
    >>> tilewright.CompileOptions(policy="nearest")
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: policy: expected one of exact, compatible, any, got 'nearest'
    """

    instruments: Sequence[Instrument] = ()
    progress: bool | None = None
    database: DatabaseLike | None = None
    policy: Policy = "any"
    near_misses: NearMisses = "measure"
    require_tuned: float | None = None
    broadcasting: Broadcasting = "lazy"
    save_optimized: str | Path | None = None
    streams: int | None = None
    cpus: Sequence[int | Collection[int]] = ()
    denormals: Denormals = "keep"

    def _plain(self) -> dict[str, object]:
        require_choice("policy", self.policy, get_args(Policy))
        require_choice("near_misses", self.near_misses, get_args(NearMisses))
        require_choice("denormals", self.denormals, get_args(Denormals))
        require_choice("broadcasting", self.broadcasting, get_args(Broadcasting))
        if self.progress is not None:
            require_flag("progress", self.progress)
        if not isinstance(self.save_optimized, str | Path | None):
            raise InputError(f"save_optimized: expected a path, got {shown(self.save_optimized)}")
        if self.require_tuned is not None:
            require_number("require_tuned", self.require_tuned, most=1.0)
        if self.streams is not None:
            require_whole("streams", self.streams)
        return {**BuildOptions._plain(self), "cpus": require_cpus("cpus", self.cpus)}

    def thread_count(self) -> int | None:
        """How many threads are asked for; None: what the machine allows. With ``cpus`` one for each."""
        return self.threads if self.threads is not None or not self.cpus else len(self.cpus)

    def workers(self) -> tuple[frozenset[int], ...]:
        """The CPUs of the threads that help, which are those behind the first."""
        cpus = cast("tuple[frozenset[int], ...]", self.cpus)
        return cpus[1:] or cpus


class BuildKeywords(TypedDict, total=False):
    """:class:`BuildOptions`, for type checkers."""

    target: str | Target | None
    threads: int | None
    input_shapes: Shapes | None
    opt_level: str
    disabled_pass: str | Sequence[str]
    enabled_pass: str | Sequence[str]
    cache: bool
    out_of_range: OutOfRange
    implementations: Pins | None
    precision: Precisions
    rules: Sequence[Rule]
    operators: Sequence[Operator]
    schedule_rules: Sequence[ScheduleRule]


class CompileKeywords(BuildKeywords, total=False):
    """:class:`CompileOptions`, for type checkers."""

    instruments: Sequence[Instrument]
    progress: bool | None
    database: DatabaseLike | None
    policy: Policy
    near_misses: NearMisses
    require_tuned: float | None
    broadcasting: Broadcasting
    save_optimized: str | Path | None
    streams: int | None
    cpus: Sequence[int | Collection[int]]
    denormals: Denormals
