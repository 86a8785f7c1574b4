"""The call plan: what a compiled model does at run time, as data. Lowering makes it, codegen and runtime read it.

A plan is a list of steps over named slots. Consecutive kernel steps form one native segment: one machine-code entry
runs them all, so a plan without host steps is one native call. Nothing here refers to an IR.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from tilewright.core.arith.expr import IntExpr, const
from tilewright.core.arith.minmax import maximum
from tilewright.core.assumptions import Assumption
from tilewright.core.dtypes import DType
from tilewright.core.errors import InternalError
from tilewright.core.index_ranges import OutOfRange, out_of_range
from tilewright.core.io.stored import Content

SlotKind: TypeAlias = Literal["input", "output", "constant", "temp", "host"]
Offsets: TypeAlias = tuple[tuple[int, IntExpr], ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A value's storage.

    ``kind``: input and output are the caller's arrays; constant is in ``Plan.constants``; temp lies in the arena; host
    is an array that a host step returns (its shape is known only then) or a sequence, optional or string value.
    ``alias``: the slot whose bytes this one shares from the start (a reshape view, or an in-place result); the alias
    chain ends in a slot without alias, which owns the storage. ``shape`` None: known only at run time.
    """

    name: str
    dtype: DType
    shape: tuple[IntExpr, ...] | None
    kind: SlotKind
    alias: str | None = None

    def shape_values(self, env: Mapping[str, int]) -> tuple[int, ...]:
        """The shape under a binding of the symbols."""
        return tuple(d.evaluate(env) for d in self.shape or ())


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One call of a compiled function. ``args``: slots in the order of its parameters, then of its workspaces.
    ``dims``: the function's integer parameters as expressions over the plan's symbols. ``nodes``: the graph nodes it
    computes (for messages). ``parallel``: False if only one thread has work in it. ``offsets``: by position in
    ``args``, how many bytes behind the beginning of its slot an argument begins. ``product``: the scalar operation on
    words of narrow elements that it sums up, "" where its arithmetic is plain. ``same``: the positions of two arguments
    of which the second becomes a copy of the first: there is nothing to do where both are at the same address."""

    kernel: str
    args: tuple[str, ...]
    dims: tuple[IntExpr, ...]
    nodes: tuple[str, ...]
    parallel: bool = False
    flops: IntExpr | None = None
    bytes: IntExpr | None = None
    offsets: Offsets = ()
    product: str = ""
    same: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class CheckStep:
    """A look at indices, in native code: do the elements of ``slot`` lie in ``low .. high``, both included? If not, the
    segment ends here, and ``worst``, a slot of one uint64, has the largest distance of an element above ``low``,
    modulo 2^64. Of ``count`` elements, ``stride`` apart, the first is the one at ``offset``.

    ``where`` and ``what`` are the node and what it calls its indices, for the message."""

    slot: str
    worst: str
    count: IntExpr
    stride: int
    offset: int
    low: IntExpr
    high: IntExpr
    where: str
    what: str

    @property
    def dims(self) -> tuple[IntExpr, ...]:
        """The integers of the native call; the last is how many values are allowed."""
        return self.count, const(self.stride), const(self.offset), self.low, maximum(self.high - self.low + 1, 0)


@dataclass(frozen=True, slots=True)
class Requirement:
    """What must hold of sizes alone: ``value``, an index that is known at build time, lies in ``low .. high``, both
    included, unless there are no indices (``count`` is 0). None: there is something to index."""

    value: IntExpr | None
    low: IntExpr
    high: IntExpr
    count: IntExpr
    where: str
    what: str

    def free_vars(self) -> frozenset[str]:
        parts = (self.low, self.high, self.count, *(() if self.value is None else (self.value,)))
        return frozenset().union(*(e.free_vars() for e in parts))

    def violation(self, env: Mapping[str, int]) -> str | None:
        """The message if it does not hold."""
        low, high, count = (e.evaluate(env) for e in (self.low, self.high, self.count))
        value = None if self.value is None else self.value.evaluate(env)
        if count == 0 or (low <= high if value is None else low <= value <= high):
            return None
        return out_of_range(self.where, self.what, low, high, f"{count} of them" if value is None else value)


SIZES_DOMAIN = "sizes"


Once: TypeAlias = "tuple[tuple[IntExpr, ...] | None, ...] | None"
"""See :class:`HostStep`."""


@dataclass(frozen=True, slots=True)
class HostStep:
    """An operator that runs on the host, by name, and why. ``attrs`` values are plain Python and numpy objects.
    ``inputs`` may contain "" for an absent optional. In the domain ``SIZES_DOMAIN`` the outputs are not the operator's
    results but their shapes, as int64 vectors.

    ``once``: set for a step that depends on the sizes of the plan's inputs alone and runs once for each set of them,
    before everything else: for each operand its shape if only that is read, else None.

    ``definition``: what the operator means, of one that a user brought along: attributes, operands and the number of
    results, to the results."""

    op: str
    domain: str
    attrs: tuple[tuple[str, Any], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    node: str
    reason: str
    once: Once = None
    definition: Callable[[Mapping[str, object], Sequence[object], int], list[object]] | None = None


@dataclass(frozen=True, slots=True)
class ControlStep:
    """``If``, ``Loop`` or ``Scan``: host control around plans. ``captures`` of a body are read from the outer slots."""

    op: Literal["If", "Loop", "Scan"]
    attrs: tuple[tuple[str, Any], ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    bodies: tuple[Plan, ...]
    node: str


Step: TypeAlias = KernelStep | CheckStep | HostStep | ControlStep
NativeStep: TypeAlias = KernelStep | CheckStep


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a symbol's value is read at run time: ``axis`` of the slot's shape, or ``element`` of its flat contents."""

    symbol: str
    slot: str
    axis: int | None = None
    element: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Slots, steps and symbol bindings. ``captures``: slots of the enclosing plan that this body reads by name;
    ``symbols``: symbols of it that this body needs and does not bind.

    ``bindings`` are applied as soon as their slot exists: first those of inputs, then after each step. ``assumptions``:
    what the plan's own steps take for granted of sizes, checked as soon as the symbols are bound. ``broadcasts``: sizes
    may broadcast where an assumption says so; False: they must be equal. ``requirements``: what must hold of indices
    that are known beforehand. ``out_of_range``: what other indices outside their range lead to. ``stepwise``: every
    native step is a segment, so that what it wrote can be looked at before the next one runs. ``in_place``: pairs of an
    output and an input that may be the same memory: the output is then the input with some elements replaced.
    ``packed``: constants that were made from others, for kernels to read. ``limits``: what the user says of the sizes
    of inputs, checked before anything else. ``flushes``: native steps, those of its bodies too, take denormal numbers
    for zero.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    slots: Mapping[str, Slot]
    steps: tuple[Step, ...]
    constants: Mapping[str, Content]
    bindings: tuple[Binding, ...] = ()
    captures: tuple[str, ...] = ()
    assumptions: tuple[Assumption, ...] = ()
    broadcasts: bool = False
    symbols: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    out_of_range: OutOfRange = "error"
    stepwise: bool = False
    in_place: tuple[tuple[str, str], ...] = ()
    packed: tuple[str, ...] = ()
    limits: tuple[Requirement, ...] = ()
    flushes: bool = False


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps ``start .. stop-1`` of a plan, all of them native: one entry function."""

    start: int
    stop: int


def segments(plan: Plan) -> tuple[Segment | int, ...]:
    """The plan as the runtime walks it: segments of native steps, and indices of host and control steps in between.

    A segment also ends where a symbol is bound from the contents of a slot that it wrote.
    """
    late = {b.slot for b in plan.bindings if plan.slots[b.slot].kind not in ("input", "constant", "host")}
    out: list[Segment | int] = []
    start = 0
    for i, step in enumerate(plan.steps):
        if not isinstance(step, NativeStep):
            if start < i:
                out.append(Segment(start, i))
            out.append(i)
            start = i + 1
        elif plan.stepwise or (isinstance(step, KernelStep) and late.intersection(step.args)):
            out.append(Segment(start, i + 1))
            start = i + 1
    if start < len(plan.steps):
        out.append(Segment(start, len(plan.steps)))
    return tuple(out)


def needed_symbols(plan: Plan) -> set[str]:
    """Symbols that a run needs: in sizes of native steps and of storage, in what must hold of sizes, and in bodies."""
    exprs = [d for s in plan.slots.values() if s.kind in ("temp", "output") for d in s.shape or ()]
    needed: set[str] = set()
    for step in plan.steps:
        if isinstance(step, NativeStep):
            exprs += step.dims
            exprs += [o for _, o in step.offsets] if isinstance(step, KernelStep) else []
        elif isinstance(step, ControlStep):
            needed.update(*(body.symbols for body in step.bodies))
        else:
            exprs += [d for shape in step.once or () for d in shape or ()]
            exprs += [d for o in step.outputs if o and step.once for d in plan.slots[o].shape or ()]
    return needed.union(*(d.free_vars() for d in exprs), *(r.free_vars() for r in plan.requirements))


def require_bound(plan: Plan) -> None:
    """Raise InternalError when a kernel needs a symbol that nothing binds."""
    bound = {b.symbol for b in plan.bindings}.union(plan.symbols)
    for step in plan.steps:
        if isinstance(step, KernelStep):
            missing = {v for d in (*step.dims, *(o for _, o in step.offsets)) for v in d.free_vars()} - bound
            if missing:
                nodes = ", ".join(step.nodes)
                raise InternalError(f"kernel {step.kernel} ({nodes}): unbound symbols {sorted(missing)}")
        elif isinstance(step, ControlStep):
            for body in step.bodies:
                if not bound.issuperset(body.symbols):
                    raise InternalError(f"node {step.node!r}: unbound symbols {sorted({*body.symbols} - bound)}")
                require_bound(body)


def all_steps(plan: Plan) -> Iterator[Step]:
    """The steps of a plan in order, those of a loop's or branch's bodies behind it."""
    for step in plan.steps:
        yield step
        if isinstance(step, ControlStep):
            for body in step.bodies:
                yield from all_steps(body)


def root_slot(plan: Plan, name: str) -> str:
    """The slot that owns the storage of ``name``."""
    while (alias := plan.slots[name].alias) is not None:
        name = alias
    return name


def step_slots(step: Step) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Slots that a step mentions: (a kernel's arguments or inputs with captures, outputs of a host or control step)."""
    if isinstance(step, KernelStep):
        return step.args, ()
    if isinstance(step, CheckStep):
        return (step.slot, step.worst), ()
    if isinstance(step, HostStep):
        return tuple(i for i in step.inputs if i), tuple(o for o in step.outputs if o)
    reads = dict.fromkeys(i for i in step.inputs if i)
    for body in step.bodies:
        reads.update(dict.fromkeys(body.captures))
    return tuple(reads), tuple(o for o in step.outputs if o)
