"""Runs a plan: binds symbols, lays out the arena for the shapes at hand, and calls one entry function a segment."""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.core.errors import InputError, InternalError
from tilewright.core.plan import ControlStep, HostStep, KernelStep, Plan, Segment, root_slot, segments
from tilewright.runtime.arena import lifetimes, place
from tilewright.runtime.arrays import address, aligned_empty, view
from tilewright.runtime.control import run_control_step
from tilewright.runtime.host import run_host_step

ENTRY_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p)
_MAX_LAYOUTS = 16


@dataclass(frozen=True, slots=True)
class PlanCode:
    """Machine code of a plan: one entry address a segment, in order, and the code of the bodies of control steps."""

    entries: tuple[int, ...]
    bodies: Mapping[int, tuple[PlanCode, ...]]


@dataclass(slots=True)
class _Table:
    """The pointer and dimension tables of one segment for one binding of the symbols."""

    pointers: np.ndarray
    dims: np.ndarray
    patches: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    arena_base: int
    pointers_address: int
    dims_address: int


@dataclass(slots=True)
class _Layout:
    """What depends on the input symbols only: arena offsets, and the tables of segments met so far."""

    offsets: Mapping[str, int]
    size: int
    tables: OrderedDict[tuple[object, ...], _Table]


class Executor:
    """Executes one plan. Not reentrant: the owner holds a lock while it runs.

    ``times``: when given to :meth:`run`, a list that receives for each segment an array of clock readings.
    """

    def __init__(self, plan: Plan, code: PlanCode, threads: Callable[[], int]) -> None:
        self.plan = plan
        self._threads = threads
        self._walk = segments(plan)
        entries = iter(code.entries)
        self._entries = {w: ENTRY_TYPE(next(entries)) for w in self._walk if isinstance(w, Segment)}
        self._bodies = {
            i: tuple(
                Executor(body, body_code, threads)
                for body, body_code in zip(step.bodies, code.bodies[i], strict=True)
            )
            for i, step in enumerate(plan.steps)
            if isinstance(step, ControlStep)
        }
        self._root = {name: root_slot(plan, name) for name in plan.slots}
        self._lives = lifetimes(plan)
        self._constants = {n: np.ascontiguousarray(a) for n, a in plan.constants.items()}
        self._layouts: OrderedDict[tuple[int, ...], _Layout] = OrderedDict()
        self._arena = aligned_empty(0)
        self._input_bindings = [b for b in plan.bindings if plan.slots[b.slot].kind in ("input", "constant")]
        late: dict[str, list[int]] = {}
        for i, b in enumerate(plan.bindings):
            if plan.slots[b.slot].kind not in ("input", "constant"):
                late.setdefault(b.slot, []).append(i)
        self._late_bindings = late
        self._written = self._first_writers()
        self._parallel = {
            w: any(isinstance(s, KernelStep) and s.parallel for s in plan.steps[w.start : w.stop])
            for w in self._walk
            if isinstance(w, Segment)
        }

    def _first_writers(self) -> dict[int, list[str]]:
        """Step index -> slots whose late bindings can be read once that step is done."""
        out: dict[int, list[str]] = {}
        for slot in self._late_bindings:
            for i, step in enumerate(self.plan.steps):
                names = step.args if isinstance(step, KernelStep) else step.outputs
                if slot in names:
                    out.setdefault(i, []).append(slot)
                    break
        return out

    # -- a run -----------------------------------------------------------------------------------------------------
    def run(self, inputs: Sequence[object], times: list[np.ndarray] | None = None) -> list[object]:
        """Outputs for ``inputs`` (already checked), in plan order."""
        plan = self.plan
        arrays: dict[str, object] = dict(zip((*plan.inputs, *plan.captures), inputs, strict=True))
        env: dict[str, int] = {}
        for b in self._input_bindings:
            self._bind(b.symbol, b.axis, b.element, self._value(b.slot, arrays, env, None), env)
        layout = self._layout(env)
        for w in self._walk:
            if isinstance(w, Segment):
                self._run_segment(w, arrays, env, layout, times)
                last = w.stop - 1
            else:
                self._run_step(w, arrays, env, layout)
                last = w
            known = frozenset(env)
            for slot in self._written.get(last, ()):
                value = self._value(slot, arrays, env, layout)
                for i in self._late_bindings[slot]:
                    b = plan.bindings[i]
                    self._bind(b.symbol, b.axis, b.element, value, env)
                self._check_assumptions(known, env)
        return [self._value(o, arrays, env, layout) for o in plan.outputs]

    def _check_assumptions(self, known: frozenset[str], env: Mapping[str, int]) -> None:
        """Compare the dims that must be equal and whose symbols are bound now, but were not all ``known`` before."""
        for left, right, node in self.plan.assumptions:
            free = left.free_vars() | right.free_vars()
            if free <= env.keys() and not free <= known and (a := left.evaluate(env)) != (b := right.evaluate(env)):
                raise InputError(
                    f"node {node!r}: expected dimensions that agree, got {left} = {a} and {right} = {b} "
                    f"({', '.join(f'{s}={env[s]}' for s in sorted(free))})"
                )

    def symbols(self, inputs: Sequence[object]) -> dict[str, int]:
        """The symbols that the inputs alone determine."""
        arrays = dict(zip((*self.plan.inputs, *self.plan.captures), inputs, strict=True))
        env: dict[str, int] = {}
        for b in self._input_bindings:
            self._bind(b.symbol, b.axis, b.element, self._value(b.slot, arrays, env, None), env)
        return env

    @staticmethod
    def _bind(symbol: str, axis: int | None, element: int | None, value: object, env: dict[str, int]) -> None:
        if not isinstance(value, (np.ndarray, np.generic)):
            raise InternalError(f"symbol {symbol}: expected an array, got {type(value).__name__}")
        got = value.shape[axis] if axis is not None else int(np.asarray(value).reshape(-1)[element or 0])
        env[symbol] = got

    def _layout(self, env: Mapping[str, int]) -> _Layout:
        key = tuple(env.values())
        layout = self._layouts.get(key)
        if layout is None:
            sizes: dict[str, int] = {}
            for name in self._lives:
                slot = self.plan.slots[name]
                if slot.shape is not None and all(d.free_vars() <= env.keys() for d in slot.shape):
                    sizes[name] = _nbytes(slot.shape_values(env), slot.dtype.itemsize)
            self._check_assumptions(frozenset(), env)
            offsets, size = place(sizes, self._lives)
            layout = _Layout(offsets, size, OrderedDict())
            self._layouts[key] = layout
            if len(self._layouts) > _MAX_LAYOUTS:
                self._layouts.popitem(last=False)
        else:
            self._layouts.move_to_end(key)
        if layout.size > self._arena.nbytes:
            self._arena = aligned_empty(layout.size)
        return layout

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
                slot = self.plan.slots[name]
                array = arrays[name] = _fresh(slot.shape_values(env), slot.dtype.numpy)
            where = address(array) if isinstance(array, np.ndarray) else 0
            for p in positions:
                table.pointers[p] = where
        clock = None
        if times is not None:
            clock = np.zeros(w.stop - w.start + 1)
            times.append(clock)
        self._entries[w](
            table.pointers_address,
            table.dims_address,
            self._threads() if self._parallel[w] else 1,
            None if clock is None else address(clock),
        )

    def _make_table(self, w: Segment, env: Mapping[str, int], layout: _Layout) -> _Table:
        pointers: list[int] = []
        dims: list[int] = []
        patches: dict[str, list[int]] = {}
        base = address(self._arena)
        for step in self.plan.steps[w.start : w.stop]:
            if not isinstance(step, KernelStep):
                raise InternalError(f"segment {w} holds a step that is not a kernel")
            for name in step.args:
                root = self._root[name]
                if root in layout.offsets:
                    pointers.append(base + layout.offsets[root])
                elif root in self._constants:
                    pointers.append(address(self._constants[root]))
                else:
                    patches.setdefault(root, []).append(len(pointers))
                    pointers.append(0)
            dims.extend(d.evaluate(env) for d in step.dims)
        table = np.array(pointers, np.uint64)
        dim_table = np.array(dims, np.int64)
        frozen = tuple((n, tuple(p)) for n, p in patches.items())
        return _Table(table, dim_table, frozen, (), base, address(table), address(dim_table))

    def _run_step(self, i: int, arrays: dict[str, object], env: Mapping[str, int], layout: _Layout) -> None:
        step = self.plan.steps[i]
        if isinstance(step, HostStep):
            inputs = [self._value(n, arrays, env, layout) if n else None for n in step.inputs]
            outputs = run_host_step(step, inputs)
        elif isinstance(step, ControlStep):
            inputs = [self._value(n, arrays, env, layout) if n else None for n in step.inputs]
            captures = [
                [self._value(n, arrays, env, layout) for n in body.captures] for body in step.bodies
            ]
            runs = [e.run for e in self._bodies[i]]
            outputs = run_control_step(step, inputs, captures, runs)
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
            return base if name == root or slot.shape is None else base.reshape(slot.shape_values(env))
        if root in self._constants:
            array = self._constants[root]
            return array if name == root or slot.shape is None else array.reshape(slot.shape_values(env))
        if layout is not None and root in layout.offsets:
            return view(self._arena, layout.offsets[root], slot.dtype.numpy, slot.shape_values(env))
        if slot.shape is not None and _nbytes(slot.shape_values(env), 1) == 0:
            return np.empty(slot.shape_values(env), slot.dtype.numpy)
        raise InternalError(f"slot {name!r} is read before it is written")


def _nbytes(shape: tuple[int, ...], itemsize: int) -> int:
    n = itemsize
    for d in shape:
        n *= d
    return n


def _fresh(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if any(d < 0 for d in shape):
        raise InputError(f"the input shapes give a tensor of negative size {shape}")
    return np.ndarray(shape, dtype, buffer=aligned_empty(_nbytes(shape, dtype.itemsize)).data)
