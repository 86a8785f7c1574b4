"""One pass over a scheduled function: what every store does, how often, out of which registers and caches.

The facts of a block are per thread where threads share its work. ``cycles`` is a roofline of the block: arithmetic,
loads and stores, the latency of its accumulation chain, loop overhead, and the bytes each cache level lets through. It
ranks candidates without any training (:class:`tilewright.autotune.cost_model.cost_model.HeuristicModel`) and is a
feature like the others.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

from tilewright.autotune.cost_model.feature_arithmetic import count_operations, has_self_load, operation_cycles
from tilewright.autotune.cost_model.feature_indices import IndexNumbers, Strides
from tilewright.autotune.cost_model.feature_memory import (
    Access,
    Level,
    Reuse,
    Traffic,
    measure_footprints,
    nearest_reuse,
    traffic_beyond,
)
from tilewright.core.arith.expr import IntExpr
from tilewright.core.memo import by_identity
from tilewright.machine.costs import Cycles
from tilewright.machine.memory import LINE_BYTES
from tilewright.machine.target import Target
from tilewright.tensor_ir.analysis.intrinsic_match import intrinsic_of
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
    Expr,
    Func,
    Guard,
    Load,
    Loop,
    LoopKind,
    Seq,
    Stmt,
    Store,
    loads,
    walk,
)

_KEPT_BLOCKS = 4096


@dataclass(slots=True)
class Operand:
    """An access of a block: bytes it touches, its reuse, bytes fetched beyond each cache, strides over the lanes and
    over the innermost serial loop."""

    access: Access
    bytes: float
    reuse: Reuse
    beyond: list[float]
    vector_stride: float
    serial_stride: float


@dataclass(slots=True)
class BlockFacts:
    """What one store of a scheduled function does. Counts ending in ``_body`` are for one run of the innermost
    vectorized and unrolled loops."""

    name: str
    is_reduction: bool
    depth: int
    points: float
    fill: float
    operations: list[float]
    lanes: float
    vector_utilisation: float
    unrolled: float
    bodies: float
    serial_extent: float
    vector_ops_body: float
    load_ops_body: float
    store_ops_body: float
    contiguous: float
    broadcast: float
    strided: float
    gathered: float
    accumulators: float
    registers: float
    instructions: float
    spills_body: float
    parallel_extent: float
    balance: float
    threads: float
    unique_bytes: float
    working_sets: list[float]
    traffic: list[float]
    cycles: list[float]
    total_cycles: float
    accesses: list[Access]
    footprints: Traffic
    beyond: list[list[float]]
    levels: list[Level]
    body: int
    vector: str | None

    def operands(self) -> list[Operand]:
        """The store, then the two loads with the largest footprints."""
        sizes = self.footprints.footprints
        order = sorted(range(1, len(self.accesses)), key=lambda n: -sizes[n][0])[:2]
        serial = self.levels[self.body - 1].var if self.body else None
        out = []
        for n in (0, *order):
            a = self.accesses[n]
            vector_step, serial_step = (0.0 if x is None else a.stride(x) for x in (self.vector, serial))
            reuse = nearest_reuse(a, self.footprints, self.levels, self.body)
            out.append(Operand(a, sizes[n][0], reuse, [b[n] for b in self.beyond], vector_step, serial_step))
        return out


def _total(cycles: Sequence[float], costs: Cycles) -> float:
    """Compute and loads overlap, latency is a floor for both; what memory lets through overlaps in part."""
    arithmetic, loads, latency, overhead, l2, l3, memory = cycles
    core = max(arithmetic, loads, latency) + costs.unhidden_core * min(arithmetic, loads) + overhead
    longest = max(core, l2, l3, memory)
    return longest + costs.unhidden_memory * (core + l2 + l3 + memory - longest)


@dataclass(slots=True)
class FunctionFacts:
    """The blocks in program order, and what belongs to the whole function."""

    blocks: list[BlockFacts] = field(default_factory=list)
    global_bytes: float = 0.0
    local_bytes: float = 0.0
    local_buffers: float = 0.0
    global_buffers: float = 0.0
    guards: float = 0.0
    loops: dict[str, float] = field(
        default_factory=lambda: {"serial": 0.0, "parallel": 0.0, "vectorized": 0.0, "unrolled": 0.0}
    )
    ragged_loops: float = 0.0
    single_loops: float = 0.0
    parallel_starts: float = 0.0


_Moves = dict[Hashable, tuple[list[Strides], Strides]]
"""Strides by dimension and in elements, by buffer and the varying part of the indices."""


class BlockMemory:
    """Facts of blocks on one target with one assignment of dims, by what they are worked out from.

    The candidates of a task differ in a decision or two, and most of their blocks are alike.
    """

    def __init__(self) -> None:
        self._facts: dict[Hashable, BlockFacts] = {}
        self._numbers: dict[Expr, int] = {}
        self._next = itertools.count()
        self.number = by_identity(_KEPT_BLOCKS)(self._number)
        """A number for a value, the same for equal ones."""

    def _number(self, value: Expr) -> int:
        if value not in self._numbers:
            if len(self._numbers) >= _KEPT_BLOCKS:
                self._numbers.clear()
            self._numbers[value] = next(self._next)
        return self._numbers[value]

    def get(self, key: Hashable) -> BlockFacts | None:
        return self._facts.get(key)

    def keep(self, key: Hashable, facts: BlockFacts) -> BlockFacts:
        """``facts``, from now on found under ``key``."""
        if len(self._facts) >= _KEPT_BLOCKS:
            self._facts.clear()
        self._facts[key] = facts
        return facts


@functools.lru_cache(maxsize=16)
def memory_of(target: Target, dims: tuple[tuple[str, int], ...]) -> BlockMemory:
    """The memory for a target and an assignment of dims."""
    return BlockMemory()


@dataclass(frozen=True, slots=True)
class _Frame:
    var: str
    kind: LoopKind
    full: float
    mean: float


@dataclass(frozen=True, slots=True)
class _Place:
    """A buffer with numbers for its shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    local: bool
    bytes: float
    depth: int


class FunctionWalk:
    """Walks one function once and fills ``facts``."""

    def __init__(self, func: Func, target: Target, dims: Mapping[str, int]) -> None:
        self.target = target
        self.numbers = IndexNumbers(dims)
        self.facts = FunctionFacts()
        self._memory = memory_of(target, tuple(sorted(dims.items())))
        self._stack: list[_Frame] = []
        self._inside = False  # a nest that an intrinsic runs
        self._places: dict[str, _Place] = {b.name: self._place(b) for b in func.params}
        self._visit(func.body)

    def _place(self, b: Buffer) -> _Place:
        shape = tuple(self.numbers.size(d) for d in b.shape)
        strides = [1] * len(shape)
        for d in range(len(shape) - 2, -1, -1):
            strides[d] = strides[d + 1] * shape[d + 1]
        count = strides[0] * shape[0] if shape else 1
        itemsize = max(1, b.dtype.itemsize)
        return _Place(shape, tuple(strides), itemsize, b.scope == "local", float(count * itemsize), len(self._stack))

    def _visit(self, s: Stmt) -> None:
        if isinstance(s, Loop):
            self._enter(s)
        elif isinstance(s, Seq):
            for c in s.stmts:
                self._visit(c)
        elif isinstance(s, Block):
            self.facts.blocks.append(self._known_block(s))
        elif isinstance(s, Alloc):
            place = self._places[s.buffer.name] = self._place(s.buffer)
            if place.local:
                self.facts.local_bytes += place.bytes
                self.facts.local_buffers += 1
            else:
                self.facts.global_bytes += place.bytes
                self.facts.global_buffers += 1
            self._visit(s.body)
        elif isinstance(s, Guard):
            self.facts.guards += 1
            self._visit(s.body)
        else:
            self.facts.blocks.append(self._block(s.buffer, s, {}, False))

    def _enter(self, loop: Loop) -> None:
        full, mean = self.numbers.enter(loop.var, loop.extent)
        facts = self.facts
        outer, self._inside = self._inside, self._inside or intrinsic_of(loop) is not None
        kind = self._kind(loop)
        facts.loops[kind] += 1
        facts.ragged_loops += mean != full
        facts.single_loops += full == 1.0
        if kind == "parallel":
            starts = 1.0
            for f in self._stack:
                starts *= f.full
            facts.parallel_starts += starts
        self._stack.append(_Frame(loop.var, kind, full, mean))
        self._visit(loop.body)
        self._stack.pop()
        self._inside = outer

    def _kind(self, loop: Loop) -> LoopKind:
        """The kind whose cost is that of ``loop``: what an intrinsic runs is lanes, written out."""
        if self._inside:
            return "unrolled" if any(isinstance(s, Loop) for s in walk(loop.body)) else "vectorized"
        return "serial" if loop.kind == "opaque" else loop.kind

    def _access(
        self, buffer: str, indices: tuple[IntExpr, ...], store: bool, axes: Mapping[str, Strides], known: _Moves
    ) -> Access:
        """An access with its strides. ``known``: those of the block's accesses so far, which share them where only
        their constants differ."""
        place = self._places[buffer]
        key = (buffer, *[i.terms for i in indices])
        if key not in known:
            dims = [self.numbers.strides(i, axes) for i in indices]
            known[key] = dims, self._linear(dims, place)
        dims, linear = known[key]
        return Access(buffer, store, place.itemsize, place.shape, place.local, dims, linear)

    def _linear(self, dims: list[Strides], place: _Place) -> Strides:
        """The strides in elements of the whole buffer."""
        if len(dims) == 1:
            return {k: v for k, v in dims[0].items() if v != 0.0}
        linear: Strides = {}
        for strides, step in zip(dims, place.strides, strict=True):
            for k, v in strides.items():
                linear[k] = linear.get(k, 0.0) + v * step
        return {k: v for k, v in linear.items() if v != 0.0}

    def _known_block(self, s: Block) -> BlockFacts:
        """The facts of a block; worked out only if no block like it was seen."""
        used = dict.fromkeys((s.buffer, *(x.buffer for x in loads(s.value))))
        places = tuple([self._places[b] for b in used])
        key = (s.name, s.axes, s.bindings, s.indices, self._memory.number(s.value), places, tuple(self._stack))
        found = self._memory.get(key)
        if found is not None:
            return found
        axes = {a.name: self.numbers.strides(b, {}) for a, b in zip(s.axes, s.bindings, strict=True)}
        reduction = any(a.kind == "reduce" for a in s.axes)
        return self._memory.keep(key, self._block(s.name, s, axes, reduction))

    def _block(self, name: str, s: Block | Store, axes: Mapping[str, Strides], reduction: bool) -> BlockFacts:
        frames = self._stack
        found: list[Load] = []
        operations = count_operations(s.value, found)
        known: _Moves = {}
        accesses = [self._access(s.buffer, s.indices, True, axes, known)]
        accumulates = isinstance(s, Block) and has_self_load(s, found)
        own = (s.buffer, s.indices)
        accesses += [
            self._access(x.buffer, x.indices, False, axes, known) for x in found if (x.buffer, x.indices) != own
        ]

        points = threads = 1.0
        full_points = parallel_extent = balance = 1.0
        levels: list[Level] = []
        for f in frames:
            extent = f.mean
            full_points *= f.full
            points *= f.mean
            if f.kind == "parallel" and f.full > 0:
                rounds = -(-f.full // self.target.threads)
                parallel_extent *= f.full
                balance = f.full / (rounds * self.target.threads)
                threads = min(f.full, float(self.target.threads))
                extent = rounds
            levels.append(Level(f.var, extent))
        mine = 1.0
        for level in levels:
            mine *= level.extent

        body = len(frames)
        while body > 0 and frames[body - 1].kind in ("vectorized", "unrolled"):
            body -= 1
        shape = self._body_shape(frames, body, accesses, s.value)
        tile = _BodyCounts(self.target, self._places, shape, accumulates)
        for a in accesses:
            tile.add(a, frames, body)

        inside = max(1.0, shape.lanes * shape.unrolled)
        fill = points / full_points if full_points else 1.0
        bodies = mine / (inside * self._fill_inside(frames, body)) if mine else 0.0
        vector_ops = [n * shape.unrolled * shape.registers_a_vector for n in operations]
        total_vector_ops = sum(vector_ops)
        costs = self.target.costs.cycles
        arithmetic = sum(n * c for n, c in zip(vector_ops, operation_cycles(costs), strict=True))
        needed = tile.accumulators + tile.live_operands
        registers = needed / self.target.vector_registers
        spills = costs.spill * max(0.0, needed - self.target.vector_registers)
        loaded = costs.load * (tile.load_ops + tile.gather_extra)
        memory_ops = loaded + costs.store * tile.store_ops + spills
        latency = costs.latency * tile.chain if accumulates else 0.0
        masks = 1.0 if fill == 1.0 and not self._masked(frames, body) else costs.masked
        traffic = measure_footprints(accesses, levels)
        caches = self._caches(threads)
        beyond = [traffic_beyond(traffic, levels, c) for c in caches]
        totals = [sum(b) for b in beyond]
        cycles = [
            bodies * arithmetic, bodies * memory_ops * masks, bodies * latency, bodies * costs.loop,
            *(t / rate for t, rate in zip(totals, (costs.l2_bytes, costs.l3_bytes, costs.memory_bytes), strict=True)),
        ]  # fmt: skip
        return BlockFacts(
            name=name, is_reduction=reduction, depth=len(frames), points=points, fill=fill, operations=operations,
            lanes=shape.lanes, vector_utilisation=shape.utilisation, unrolled=shape.unrolled, bodies=bodies,
            serial_extent=frames[body - 1].mean if body else 1.0, vector_ops_body=total_vector_ops,
            load_ops_body=tile.load_ops, store_ops_body=tile.store_ops, contiguous=tile.contiguous,
            broadcast=tile.broadcast, strided=tile.strided, gathered=tile.gathered, accumulators=tile.accumulators,
            registers=registers, instructions=(total_vector_ops + tile.load_ops + tile.store_ops) * shape.written_out,
            spills_body=spills, parallel_extent=parallel_extent, balance=balance, threads=threads,
            unique_bytes=traffic.working_set[0],
            working_sets=[traffic.working_set[max(0, body - n)] for n in range(4)], traffic=totals, cycles=cycles,
            total_cycles=_total(cycles, costs),
            accesses=accesses, footprints=traffic, beyond=beyond, levels=levels, body=body, vector=shape.vector,
        )  # fmt: skip

    def _caches(self, threads: float) -> tuple[float, float, float]:
        t = self.target
        l3 = t.l3_bytes / threads if t.l3_bytes else t.l2_bytes
        share = t.costs.cycles.cached
        return share * t.l1_bytes, share * t.l2_bytes, share * l3

    def _fill_inside(self, frames: list[_Frame], body: int) -> float:
        out = 1.0
        for f in frames[body:]:
            if f.full:
                out *= f.mean / f.full
        return out or 1.0

    def _masked(self, frames: list[_Frame], body: int) -> bool:
        return any(f.mean != f.full for f in frames[body:])

    def _body_shape(self, frames: list[_Frame], body: int, accesses: list[Access], value: Expr) -> _BodyShape:
        width = float(self.target.lanes(max(4 if a.itemsize < 4 else a.itemsize for a in accesses)))
        lanes = mean = unrolled = outside = 1.0
        vector: str | None = None
        for n, f in enumerate(frames):
            if f.kind == "vectorized":
                lanes, mean, vector = max(1.0, f.full), f.mean, f.var
            elif f.kind == "unrolled":
                if n >= body:
                    unrolled *= max(1.0, f.full)
                else:
                    outside *= max(1.0, f.full)
        count = -(-lanes // width)
        return _BodyShape(vector, lanes, count, mean / (count * width), unrolled, outside)


@dataclass(slots=True)
class _BodyShape:
    """The innermost loops, written out. ``vector``: the loop of the lanes; ``written_out``: copies by outer loops."""

    vector: str | None
    lanes: float
    registers_a_vector: float
    utilisation: float
    unrolled: float
    written_out: float


class _BodyCounts:
    """Instructions and registers of one run of the body."""

    def __init__(self, target: Target, places: Mapping[str, _Place], shape: _BodyShape, accumulates: bool) -> None:
        self.file_bytes = target.vector_registers * target.vector_bits / 8
        self.places = places
        self.shape = shape
        self.accumulates = accumulates
        self.load_ops = self.store_ops = self.gather_extra = 0.0
        self.contiguous = self.broadcast = self.strided = self.gathered = 0.0
        self.accumulators = 0.0
        self.operands: list[float] = []
        self.chain = 1.0

    @property
    def live_operands(self) -> float:
        """Registers of operands that several results share: all but the largest set, of which one is live at a time."""
        return sum(self.operands) - max(self.operands) + 1.0 if self.operands else 0.0

    def add(self, a: Access, frames: list[_Frame], body: int) -> None:
        distinct = 1.0
        for f in frames[body:]:
            if f.kind == "unrolled" and f.var in a.strides:
                distinct *= max(1.0, f.full)
        ops = distinct * self._by_stride(a, distinct)
        place = self.places[a.buffer]
        serial = frames[place.depth : body]
        in_registers = a.local and place.bytes <= self.file_bytes and not any(f.var in a.strides for f in serial)
        if a.is_store and self.accumulates:
            self.accumulators = ops
            self.chain = max(1.0, self.shape.unrolled / distinct)
            if self.shape.vector is not None and self.shape.vector not in a.strides:
                self.chain *= self.shape.lanes
        elif not a.is_store:
            self.operands.append(ops if distinct < self.shape.unrolled else 1.0)
        if in_registers:
            return
        if body and frames[body - 1].var not in a.strides:
            ops /= max(1.0, frames[body - 1].mean)
        if a.is_store:
            self.store_ops += ops
            self.load_ops += ops if self.accumulates else 0.0
        else:
            self.load_ops += ops

    def _by_stride(self, a: Access, distinct: float) -> float:
        """Instructions for one vector of the access; counts it by kind."""
        shape = self.shape
        step = 0.0 if shape.vector is None else a.stride(shape.vector)
        if shape.vector is None or step == 1.0:
            self.contiguous += distinct
            return shape.registers_a_vector
        if step == 0.0:
            self.broadcast += distinct
            return 1.0
        if step == step and abs(step) * a.itemsize < LINE_BYTES and step == int(step):
            self.strided += distinct
        else:
            self.gathered += distinct
        self.gather_extra += distinct * shape.lanes
        return shape.registers_a_vector
