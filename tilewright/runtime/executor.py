"""Runs a plan: binds symbols, lays out the arena for the shapes at hand, and calls one entry function per segment."""

from __future__ import annotations

import copy
import ctypes
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NoReturn, TypeAlias

import numpy as np

from tilewright.core.errors import InputError, InternalError
from tilewright.core.index_ranges import out_of_range
from tilewright.core.io.stored import loaded
from tilewright.core.plan import (
    CheckStep,
    ControlStep,
    HostStep,
    KernelStep,
    Plan,
    Segment,
    Slot,
    Step,
    root_slot,
    segments,
    step_slots,
)
from tilewright.runtime.control import run_control_step
from tilewright.runtime.host_ops.host_step import run_host_step
from tilewright.runtime.loop_driver import LOOP_DRIVER_TYPE, NativeBody, NativeLoop, Result
from tilewright.runtime.outputs import GivenOutputs
from tilewright.runtime.resources.arena import Placement, Shapes, Values, nbytes, size_of
from tilewright.runtime.resources.arrays import address, aligned_array, aligned_empty, view
from tilewright.runtime.resources.memory import require_memory
from tilewright.runtime.resources.thread_pool import PoolHandle
from tilewright.runtime.symbols import Symbols, bind
from tilewright.runtime.tables import Table, TableMaker

ENTRY_TYPE = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
Seen: TypeAlias = Callable[[Step, Callable[[str], object]], None]
"""Is told a step that has run, and a function that gives the contents of a slot then."""

_MAX_LAYOUTS = 16


@dataclass(frozen=True, slots=True)
class PlanCode:
    """Machine code of a plan: one entry address a segment, in order, the code of the bodies of control steps, and the
    address of the function that runs an entry repeatedly (0 where no plan is a body)."""

    entries: tuple[int, ...]
    bodies: Mapping[int, tuple[PlanCode, ...]]
    loop_driver: int = 0


@dataclass(slots=True)
class _Direct:
    """A plan of one segment, ready to be called: positions of the addresses of inputs and outputs in the table."""

    pointers: memoryview
    inputs: tuple[tuple[int, tuple[int, ...]], ...]
    outputs: tuple[Result, ...]
    call: Callable[[int, int, int | None, int | None], int]
    parallel: bool
    table: Table
    loop: NativeLoop | None = None


@dataclass(slots=True)
class _Layout:
    """What depends on the input symbols only: arena offsets, tables of the segments met so far, what the steps that run
    once gave (arrays and further ``symbols``), all symbols ``known`` then, the ``values`` of expressions of them, and
    views of the arena. ``violation``: the message if a requirement does not hold."""

    offsets: Mapping[str, int]
    size: int
    known: frozenset[str]
    tables: OrderedDict[tuple[object, ...], Table]
    symbols: Mapping[str, int]
    arrays: Mapping[str, object]
    violation: str | None
    values: Values
    views: dict[str, np.ndarray] = field(default_factory=dict)
    direct: _Direct | None = None

    def leave_arena(self) -> None:
        """Drop what keeps or points into an arena that another takes the place of."""
        self.views, self.direct = {}, None


class Executor:
    """Executes one plan. Not reentrant: of calls at once each has a :meth:`twin`. ``constants``: by slot, as they lie.

    ``times``: when given to :meth:`run`, a list that receives for each segment an array of clock readings.
    """

    def __init__(self, plan: Plan, code: PlanCode, pool: PoolHandle) -> None:
        self.plan = plan
        self._pool = pool
        self._once = [i for i, s in enumerate(plan.steps) if isinstance(s, HostStep) and s.once is not None]
        self._walk = tuple(w for w in segments(plan) if w not in self._once)
        entries = iter(code.entries)
        self._entries = {w: ENTRY_TYPE(next(entries)) for w in self._walk if isinstance(w, Segment)}
        self._bodies = {
            i: tuple(
                Executor(body, body_code, pool) for body, body_code in zip(step.bodies, code.bodies[i], strict=True)
            )
            for i, step in enumerate(plan.steps)
            if isinstance(step, ControlStep)
        }
        self._root = {name: root_slot(plan, name) for name in plan.slots}
        self._placement = Placement(plan)
        outputs = [plan.slots[n] for n in plan.outputs]
        self._output_sizes = Counter(size_of(s) for s in outputs if s.kind == "output" and s.shape is not None)
        self._shapes = Shapes(plan)
        self.constants = {n: np.asarray(loaded(c), order="C") for n, c in plan.constants.items()}
        self._constant_addresses = {n: address(a) for n, a in self.constants.items()}
        self._layouts: OrderedDict[tuple[int, ...], _Layout] = OrderedDict()
        self._arena = aligned_empty(0)
        self._makers: dict[Segment, TableMaker] = {}
        self._symbols = Symbols(plan, self.constants)
        late: dict[str, list[int]] = {}
        for i, b in enumerate(plan.bindings):
            if plan.slots[b.slot].kind not in ("input", "constant"):
                late.setdefault(b.slot, []).append(i)
        self._late_bindings = late
        self._written = self._first_writers()
        updated = {plan.inputs.index(i): plan.slots[i].shape or () for _, i in plan.in_place}
        self._may_be_empty = [k for k, shape in updated.items() if any(d.value() is None or d == 0 for d in shape)]
        self._is_direct = self._has_one_call()
        self._output_types = [(s.name, s.dtype.numpy) for s in outputs] if self._is_direct else []
        self._loop_driver = LOOP_DRIVER_TYPE(code.loop_driver) if code.loop_driver else None
        # a size follows from a value that changes from step to step if this is the body of a loop
        self._is_steered = any(b.element is not None and b.slot in plan.inputs for b in self._symbols.bindings)
        self._parallel = {
            w: any(isinstance(s, KernelStep) and s.parallel for s in plan.steps[w.start : w.stop])
            for w in self._walk
            if isinstance(w, Segment)
        }

    def twin(self, pool: PoolHandle) -> Executor:
        """One that runs beside this one: the same code and constants, an arena and tables of its own."""
        other = copy.copy(self)
        other._pool = pool
        other._bodies = {i: tuple(b.twin(pool) for b in bodies) for i, bodies in self._bodies.items()}
        other._placement = Placement(self.plan)
        other._layouts = OrderedDict()
        other._arena = aligned_empty(0)
        other._makers = {}
        other._symbols = Symbols(self.plan, self.constants)
        return other

    def _has_one_call(self) -> bool:
        """True if every run is one native call whose outputs are arrays of their own."""
        own = {n: self.plan.slots[n] for n in self.plan.outputs}
        early = {o for i in self._once for o in step_slots(self.plan.steps[i])[1]}
        return (
            len(self._walk) == 1
            and isinstance(self._walk[0], Segment)
            and early.issuperset(self._late_bindings)
            and all(s.kind == "output" and s.alias is None and s.dtype.itemsize for s in own.values())
            and len(own) == len(self.plan.outputs)
            and all(s.kind != "host" or s.name in early for s in self.plan.slots.values())
        )

    def _first_writers(self) -> dict[int, list[str]]:
        """Step index -> slots whose late bindings can be read once that step is done."""
        out: dict[int, list[str]] = {}
        for slot in self._late_bindings:
            for i, step in enumerate(self.plan.steps):
                if slot in (step.args if isinstance(step, KernelStep) else step_slots(step)[1]):
                    out.setdefault(i, []).append(slot)
                    break
        return out

    # -- a run -----------------------------------------------------------------------------------------------------
    def run(
        self, inputs: Sequence[object], times: list[np.ndarray] | None = None, seen: Seen | None = None,
        given: GivenOutputs | None = None, threads: int = 0,
    ) -> list[object]:  # fmt: skip
        """Outputs for ``inputs`` (already checked), in plan order. ``seen`` is called after each segment or step.
        ``given``: arrays for some outputs, apart from each other and from inputs but where the plan allows it.
        ``threads``: of this run, 0: as the last one."""
        plan = self.plan
        if threads:
            self._pool.threads = threads
        env, layout = self._prepared(inputs)
        if layout.violation is not None:
            raise InputError(layout.violation)
        if self._may_be_empty:
            inputs = self._told_apart(inputs)
        if self._is_direct and times is None and seen is None:
            return self._run_direct(inputs, env, layout, given)
        arrays = {**self._symbols.by_name(inputs), **layout.arrays}
        if given is not None:
            self._enter(given, arrays, env)
        for w in self._walk:
            if isinstance(w, Segment):
                self._run_segment(w, arrays, env, layout, times)
                last = w.stop - 1
            else:
                self._run_step(w, arrays, env, layout)
                last = w
            if seen is not None:
                seen(plan.steps[last], lambda name: self._value(name, arrays, env, layout))
            known = frozenset(env)
            for slot in self._written.get(last, ()):
                value = self._value(slot, arrays, env, layout)
                for i in self._late_bindings[slot]:
                    bind(plan.bindings[i], value, env)
                self._symbols.check(env, known)
                self._symbols.check_with_around(env)
                if (message := self._symbols.violation(known, env)) is not None:
                    raise InputError(message)
        outputs = [self._output(o, arrays, env, layout) for o in plan.outputs]
        return outputs if given is None else [_written(given, k, value) for k, value in enumerate(outputs)]

    def _told_apart(self, inputs: Sequence[object]) -> Sequence[object]:
        """The inputs, with empty ones that an output updates elsewhere: an output may begin where they do."""
        empty = [k for k in self._may_be_empty if not inputs[k].size]  # type: ignore[attr-defined]
        return [np.empty_like(a) if k in empty else a for k, a in enumerate(inputs)] if empty else inputs

    def _enter(self, given: GivenOutputs, arrays: dict[str, object], env: Mapping[str, int]) -> None:
        """Let kernels write into the arrays of the caller whose sizes are known; what comes later is copied there."""
        for k, name in enumerate(self.plan.outputs):
            slot = self.plan.slots[name]
            if slot.shape is not None and all(d.free_vars() <= env.keys() for d in slot.shape):
                given.require_shape(k, slot.shape_values(env))
                if given.arrays[k] is not None and slot.kind == "output":
                    arrays[name] = given.arrays[k]

    def _prepared(self, inputs: Sequence[object]) -> tuple[dict[str, int], _Layout]:
        """The symbols known before the first step that has to run each time, and the layout for them."""
        env = self._symbols.of_inputs(inputs)
        layout = self._layout(env)
        env.update(layout.symbols)
        self._symbols.check_with_around(env)
        return env, layout

    def _output(self, name: str, arrays: Mapping[str, object], env: Mapping[str, int], layout: _Layout) -> object:
        """The contents of an output: a copy of what a step gave that runs once, since later runs need it, too."""
        value = self._value(name, arrays, env, layout)
        return value.copy() if self._root[name] in layout.arrays and isinstance(value, np.ndarray) else value

    def _run_direct(
        self, inputs: Sequence[object], env: Mapping[str, int], layout: _Layout, given: GivenOutputs | None
    ) -> list[object]:
        """The same for a plan that is one native call: all but the addresses of inputs and outputs is prepared."""
        direct = self._direct(env, layout)
        pointers = direct.pointers
        for k, positions in direct.inputs:
            where = address(inputs[k])  # type: ignore[arg-type]
            for p in positions:
                pointers[p] = where
        results = direct.outputs
        outputs = [np.empty(s, d) for s, d, _ in results] if given is None else given.completed(results)
        for array, (_, _, places) in zip(outputs, results, strict=True):
            where = address(array)
            for p, offset in places:
                pointers[p] = where + offset
        table = direct.table
        if self._pool.threads > 1 and direct.parallel:
            with self._pool.borrowed(True) as pool:
                status = direct.call(table.pointers_address, table.dims_address, pool, None)
        else:
            status = direct.call(table.pointers_address, table.dims_address, None, None)
        if status:
            self._report(status, env, layout)
        return [*outputs]

    def _report(self, status: int, env: Mapping[str, int], layout: _Layout, start: int = 0) -> NoReturn:
        """Raise InputError for the check that ended a native call from step ``start`` on."""
        step = self.plan.steps[start + status - 1]
        if not isinstance(step, CheckStep):
            raise InternalError(f"step {start + status - 1} ended a native call")
        low, high = step.low.evaluate(env), step.high.evaluate(env)
        above = np.asarray(self._value(step.worst, {}, env, layout), np.uint64)
        value = int((above + np.array(low, np.int64).view(np.uint64)).view(np.int64))
        raise InputError(out_of_range(step.where, step.what, low, high, value))

    def native_loop(self, inputs: Sequence[object], states: int, scanned: int, conditional: bool) -> NativeLoop | None:
        """A loop with this plan as its body that starts with ``inputs``; None if its steps need Python in between."""
        if not self._is_direct or self._loop_driver is None or self._is_steered:
            return None
        env, layout = self._prepared(inputs)
        if layout.violation is not None:
            return None  # there may be no step
        direct = self._direct(env, layout)
        if direct.loop is None:
            body = self._native_body(direct, env, layout, self._loop_driver)
            direct.loop = NativeLoop(body, states, scanned, conditional)
        return direct.loop

    def _native_body(
        self, direct: _Direct, env: Mapping[str, int], layout: _Layout, loop_driver: Callable[..., int]
    ) -> NativeBody:
        entry, table = ctypes.cast(direct.call, ctypes.c_void_p), direct.table  # type: ignore[arg-type]
        status = np.zeros((), np.int64)

        def drive(moves: int, count: int, counter: int, go: int | None, start: int, stop: int) -> int:
            status[()] = 0
            with self._pool.borrowed(direct.parallel) as pool:
                at = table.pointers_address, table.dims_address, pool
                done = loop_driver(entry, *at, moves, count, counter, go, start, stop, address(status))
            if status:
                self._report(int(status), env, layout)
            return done

        positions = dict(direct.inputs)
        order = tuple(positions.get(k, ()) for k in range(len(self.plan.inputs) + len(self.plan.captures)))
        return NativeBody(direct.pointers, order, direct.outputs, drive)

    def _direct(self, env: Mapping[str, int], layout: _Layout) -> _Direct:
        if layout.direct is None:
            layout.direct = self._make_direct(env, layout)
        return layout.direct

    def _make_direct(self, env: Mapping[str, int], layout: _Layout) -> _Direct:
        (w,) = self._walk
        if not isinstance(w, Segment):
            raise InternalError("a plan of one host step is no native call")
        table = self._make_table(w, env, layout)
        positions = dict(table.patches)
        for n in layout.arrays.keys() & positions.keys():
            for p, offset in positions[n]:
                table.pointers[p] = offset + address(layout.arrays[n])  # type: ignore[arg-type]
        shape_of = self._shapes.under(layout.values)
        return _Direct(
            memoryview(table.pointers),  # type: ignore[arg-type]  # arrays are buffers from Python 3.12 on
            self._makers[w].places_of_inputs,
            tuple([(shape_of(n), dtype, positions.get(n, ())) for n, dtype in self._output_types]),
            self._entries[w], self._parallel[w], table,
        )  # fmt: skip

    @property
    def around(self) -> Mapping[str, int]:
        """The symbols of the plans around this body."""
        return self._symbols.around

    @around.setter
    def around(self, env: Mapping[str, int]) -> None:
        self._symbols.around = env

    def symbols(self, inputs: Sequence[object]) -> dict[str, int]:
        """The symbols that the inputs alone determine, and those that a body takes from the plan around it."""
        return self._symbols.of_inputs(inputs)

    def _layout(self, env: Mapping[str, int]) -> _Layout:
        key = tuple(env.values())
        layout = self._layouts.get(key)
        if layout is None:
            arrays: dict[str, object] = {}
            self._symbols.check(env)
            full = self._run_once(env, arrays)
            self._symbols.check(full, frozenset(env))
            known, values = frozenset(full), Values(full)
            places = self._placement.place(known, values)
            outputs = sum(
                count * nbytes(tuple([values[d] for d in dims]), fixed)
                for (fixed, dims, symbols), count in self._output_sizes.items() if symbols <= known
            )  # fmt: skip
            require_memory(self.plan.name, "intermediate values and outputs", places.size + outputs)
            more = {s: v for s, v in full.items() if s not in env}
            violation = self._symbols.violation(frozenset(), full)
            layout = _Layout(places.offsets, places.size, known, OrderedDict(), more, arrays, violation, values)
            self._layouts[key] = layout
            if len(self._layouts) > _MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        else:
            self._layouts.move_to_end(key)
        if layout.size > self._arena.nbytes:
            for met in self._layouts.values():
                met.leave_arena()
            self._arena = aligned_empty(layout.size)
        return layout

    def _run_once(self, env: Mapping[str, int], arrays: dict[str, object]) -> dict[str, int]:
        """Run the steps that depend on the symbols of the inputs alone; all symbols that are known then."""
        full = dict(env)
        for i in self._once:
            step = self.plan.steps[i]
            if not isinstance(step, HostStep) or step.once is None:
                raise InternalError(f"step {i} does not run once")
            inputs: list[object] = []
            for name, shape in zip(step.inputs, step.once, strict=True):
                if shape is not None:
                    inputs.append(np.broadcast_to(np.zeros((), np.int8), [d.evaluate(full) for d in shape]))
                else:
                    inputs.append(self._value(name, arrays, full, None) if name else None)
            for name, result in zip(step.outputs, run_host_step(step, inputs, self.plan.out_of_range), strict=False):
                slot = self.plan.slots[name]
                value = np.array(result, slot.dtype.numpy).reshape(slot.shape_values(full))
                arrays[name] = value
                for k in self._late_bindings.get(name, ()):
                    bind(self.plan.bindings[k], value, full)
        return full

    def _run_segment(
        self, w: Segment, arrays: dict[str, object], env: Mapping[str, int], layout: _Layout,
        times: list[np.ndarray] | None,
    ) -> None:  # fmt: skip
        key = (w.start, *env.values())
        table = layout.tables.get(key)
        if table is None or table.arena_base != address(self._arena):
            table = self._make_table(w, env, layout)
            layout.tables[key] = table
            if len(layout.tables) > _MAX_LAYOUTS * max(1, len(self._entries)):
                layout.tables.popitem(last=False)
        for name, positions in table.patches:
            array = arrays.get(name)
            if array is None:
                if name not in table.shapes:
                    table.shapes[name] = self._shapes.under(Values(env))(name)
                array = arrays[name] = aligned_array(table.shapes[name], self.plan.slots[name].dtype.numpy)
            if not isinstance(array, np.ndarray):
                raise InternalError(f"slot {name!r}: a kernel needs an array, got {type(array).__name__}")
            where = address(array)
            for p, offset in positions:
                table.pointers[p] = where + offset
        clock = None
        if times is not None:
            clock = np.zeros(w.stop - w.start + 1)
            times.append(clock)
        with self._pool.borrowed(self._parallel[w]) as pool:
            status = self._entries[w](
                table.pointers_address, table.dims_address, pool, None if clock is None else address(clock)
            )
        if status:
            self._report(status, env, layout, w.start)

    def _make_table(self, w: Segment, env: Mapping[str, int], layout: _Layout) -> Table:
        maker = self._makers.get(w)
        if maker is None:
            steps = self.plan.steps[w.start : w.stop]
            order = (*self.plan.inputs, *self.plan.captures)
            maker = self._makers[w] = TableMaker(self.plan.name, steps, self._root, self._constant_addresses, order)
        values = layout.values if env.keys() == layout.known else Values(env)
        return maker.make(layout.offsets, address(self._arena), values)

    def _run_step(self, i: int, arrays: dict[str, object], env: Mapping[str, int], layout: _Layout) -> None:
        step = self.plan.steps[i]
        if isinstance(step, HostStep):
            inputs = [self._value(n, arrays, env, layout) if n else None for n in step.inputs]
            outputs = run_host_step(step, inputs, self.plan.out_of_range)
        elif isinstance(step, ControlStep):
            inputs = [self._value(n, arrays, env, layout) if n else None for n in step.inputs]
            captures = [[self._value(n, arrays, env, layout) for n in body.captures] for body in step.bodies]
            for executor in self._bodies[i]:
                executor.around = {**self.around, **env}
            outputs = run_control_step(step, inputs, captures, self._bodies[i])
        else:
            raise InternalError(f"step {i} is a kernel outside a segment")
        for name, value in zip(step.outputs, outputs, strict=False):
            if name:
                arrays[name] = value

    def _value(self, name: str, arrays: Mapping[str, object], env: Mapping[str, int], layout: _Layout | None) -> object:
        """The current contents of a slot: the array itself, or a view of its storage under this slot's shape."""
        if name in arrays:
            return arrays[name]
        root = self._root[name]
        slot = self.plan.slots[name]
        if root in arrays:
            base = arrays[root]
            if not isinstance(base, np.ndarray):
                return base
            return base if name == root or slot.shape is None else _seen_as(base, slot, env)
        if root in self.constants:
            array = self.constants[root]
            return array if name == root or slot.shape is None else _seen_as(array, slot, env)
        if layout is not None and root in layout.offsets:
            seen = layout.views.get(name)
            if seen is None:
                seen = view(self._arena, layout.offsets[root], slot.dtype.numpy, slot.shape_values(env))
                if all(d.free_vars() <= layout.known for d in slot.shape or ()):
                    layout.views[name] = seen
            return seen
        if slot.shape is not None and nbytes(slot.shape_values(env), 1) == 0:
            return np.empty(slot.shape_values(env), slot.dtype.numpy)
        raise InternalError(f"slot {name!r} is read before it is written")


def _written(given: GivenOutputs, k: int, value: object) -> object:
    """Output ``k`` in the caller's array, if there is one."""
    array = given.arrays[k]
    if array is None or array is value:
        return value
    result = np.asarray(value)
    given.require_shape(k, result.shape)
    np.copyto(array, result)
    return array


def _seen_as(array: np.ndarray, slot: Slot, env: Mapping[str, int]) -> np.ndarray:
    """The same bytes under a slot's shape and element type."""
    return array.reshape(slot.shape_values(env)).view(slot.dtype.numpy)
