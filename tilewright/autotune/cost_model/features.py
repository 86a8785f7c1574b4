"""The feature vector of a scheduled function: fixed length, named columns, one version number.

``FEATURES`` names what is told of a function: first what describes all of it, then the ``TOP_BLOCKS`` most expensive
stores, each with its own columns (zeros where there are fewer). Magnitudes are ``log2(1 + x)``. The choice follows
Ansor (Zheng et al., 2020) and TVM's per-store features. A cost model gets ``COLUMNS``: the features of a candidate, and
how they differ from those of the default schedule of its task, which is what carries over to tasks it has never seen.
``SCHEMA_VERSION`` changes whenever a column's meaning does, so that a saved model is never fed another vector.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from tilewright.autotune.cost_model.feature_arithmetic import KINDS
from tilewright.autotune.cost_model.feature_blocks import BlockFacts, FunctionFacts, FunctionWalk
from tilewright.core.memo import by_identity
from tilewright.machine.costs import Cycles
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.tensor_ir.ir import Func

SCHEMA_VERSION = 2
TOP_BLOCKS = 3

_CYCLES = ("arithmetic", "loads", "latency", "loops", "l2", "l3", "memory")
_CACHES = ("l1", "l2", "l3")
_TARGET = ("threads", "vector_bits", "vector_registers", "l1", "l2", "l3")
_WHOLE = (
    "cycles", "points", "flops", "blocks", "reductions", "unique_bytes", "bytes_per_flop", "global_bytes",
    "local_bytes", "local_buffers", "global_buffers", "guards", "ragged_loops", "single_loops", "parallel_starts",
    "instructions", "bodies", "fill", "parallel_share", "balance", "vector_share", "vector_utilisation", "masked_share",
    "gather_share", "top_share", "per_flop_cycles",
)  # fmt: skip
_BLOCK = (
    "exists", "share", "cycles", "reduction", "depth", "points", "flops", "fill", "lanes", "vector_utilisation",
    "unrolled", "bodies", "serial_extent", "vector_ops", "load_ops", "store_ops", "contiguous", "broadcast", "strided",
    "gathered", "ops_per_load", "accumulators", "registers", "spills", "instructions", "parallel_extent", "balance",
    "unique_bytes", "flops_per_byte",
)  # fmt: skip
_OPERANDS = ("store", "large", "small")
_OPERAND = (
    "bytes", "reuse_count", "reuse_bytes", "reuse_points", "vector_stride", "vector_contiguous", "vector_broadcast",
    "vector_irregular", "serial_stride", "serial_invariant", "local", "l1_traffic", "l2_traffic", "l3_traffic",
)  # fmt: skip


def _names() -> tuple[str, ...]:
    names = [f"target.{t}" for t in _TARGET]
    names += [f"func.{w}" for w in _WHOLE]
    names += [f"func.loops.{k}" for k in ("serial", "parallel", "vectorized", "unrolled")]
    names += [f"func.ops.{k}" for k in KINDS]
    names += [f"func.cycles.{c}" for c in _CYCLES]
    names += [f"func.traffic.{c}" for c in _CACHES]
    for n in range(TOP_BLOCKS):
        names += [f"block{n}.{b}" for b in _BLOCK]
        names += [f"block{n}.ops.{k}" for k in KINDS]
        names += [f"block{n}.cycles.{c}" for c in _CYCLES]
        names += [f"block{n}.working_set.{w}" for w in range(4)]
        names += [f"block{n}.traffic.{c}" for c in _CACHES]
        names += [f"block{n}.{o}.{c}" for o in _OPERANDS for c in _OPERAND]
    return tuple(names)


FEATURES: tuple[str, ...] = _names()
"""What :func:`features` tells of a function, in order."""

COLUMNS: tuple[str, ...] = FEATURES + tuple(f"change.{name}" for name in FEATURES)
"""What a cost model gets of a candidate (:class:`TaskFeatures`), in order."""

CYCLES_COLUMN = FEATURES.index("func.cycles")
"""log2 of the cycles that the roofline of the features predicts."""

SCHEMA: dict[str, object] = {
    "version": SCHEMA_VERSION,
    "columns": len(COLUMNS),
    "digest": hashlib.sha256("\n".join(COLUMNS).encode()).hexdigest()[:16],
}
"""What must match for a model or an array to be used with these features."""

_BLOCK_LENGTH = len(_BLOCK) + len(KINDS) + len(_CYCLES) + 4 + len(_CACHES) + len(_OPERANDS) * len(_OPERAND)


def features(func: Func, target: Target, dims: Mapping[str, int] | None = None) -> np.ndarray:
    """The feature vector (float32, ``len(FEATURES)``) of a scheduled function. Raises InputError for a missing dim."""
    facts = FunctionWalk(func, target, dims or {}).facts
    cycles = [b.total_cycles for b in facts.blocks]
    order = sorted(range(len(cycles)), key=lambda n: -cycles[n])[:TOP_BLOCKS]
    total = sum(cycles)
    row = [
        _log(target.threads), _log(target.vector_bits), _log(target.vector_registers),
        _log(target.l1_bytes), _log(target.l2_bytes), _log(target.l3_bytes),
    ]  # fmt: skip
    row += _whole(facts, cycles, total, target.costs.cycles)
    for n in order:
        columns = _block(facts.blocks[n])
        row += [1.0, cycles[n] / total if total else 0.0, *columns]
    row += [0.0] * (_BLOCK_LENGTH * (TOP_BLOCKS - len(order)))
    return np.array(row, np.float32)


class TaskFeatures:
    """Rows for the candidates of one task: features, and their difference from those of the default schedule.

    ``func``: the unscheduled function.
    """

    def __init__(self, func: Func, target: Target, dims: Mapping[str, int] | None = None) -> None:
        self._func = func
        self._target = target
        self._dims = dims or {}

    @cached_property
    def _default(self) -> np.ndarray:
        return features(default_trace(self._func, self._target).apply(self._func), self._target, self._dims)

    def row(self, scheduled: Func) -> np.ndarray:
        """The columns (float32, ``len(COLUMNS)``) of a schedule of the function."""
        own = features(scheduled, self._target, self._dims)
        return np.concatenate([own, own - self._default])


def _log(x: float) -> float:
    return math.log2(1.0 + x) if x > 0.0 else 0.0


def _flops(b: BlockFacts) -> float:
    """Arithmetic operations of a block; a fused multiply-add is two."""
    return (sum(b.operations) + b.operations[2]) * b.points


def _whole(facts: FunctionFacts, cycles: Sequence[float], total: float, costs: Cycles) -> list[float]:
    blocks = facts.blocks
    flops = sum(map(_flops, blocks))
    weight = total or 1.0
    starts = costs.parallel * facts.parallel_starts
    unique = sum(b.unique_bytes for b in blocks)

    def share(values: Sequence[float]) -> float:
        return sum(c * v for c, v in zip(cycles, values, strict=True)) / weight

    out = [
        _log(total + starts),
        _log(sum(b.points for b in blocks)),
        _log(flops),
        float(len(blocks)),
        float(sum(b.is_reduction for b in blocks)),
        _log(unique),
        _log(64.0 * unique / flops) if flops else 0.0,
        _log(facts.global_bytes),
        _log(facts.local_bytes),
        facts.local_buffers,
        facts.global_buffers,
        facts.guards,
        facts.ragged_loops,
        facts.single_loops,
        _log(facts.parallel_starts),
        _log(sum(b.instructions for b in blocks)),
        _log(sum(b.bodies for b in blocks)),
        share([b.fill for b in blocks]),
        share([b.parallel_extent > 1.0 for b in blocks]),
        share([b.balance for b in blocks]),
        share([b.lanes > 1.0 for b in blocks]),
        share([b.vector_utilisation for b in blocks]),
        share([b.fill != 1.0 for b in blocks]),
        share([b.gathered + b.strided > 0.0 for b in blocks]),
        max(cycles) / weight if cycles else 0.0,
        _log(64.0 * total / flops) if flops else 0.0,
    ]
    out += [facts.loops[k] for k in ("serial", "parallel", "vectorized", "unrolled")]
    out += [_log(sum(b.operations[k] * b.points for b in blocks)) for k in range(len(KINDS))]
    out += [_log(sum(b.cycles[c] for b in blocks)) for c in range(len(_CYCLES))]
    out += [_log(sum(b.traffic[c] for b in blocks)) for c in range(len(_CACHES))]
    return out


@by_identity(4096)
def _block(b: BlockFacts) -> list[float]:
    """The columns of a block but the first two, which say that it exists and what share of the cycles it has."""
    flops = _flops(b)
    out = [
        _log(b.total_cycles), float(b.is_reduction), float(b.depth), _log(b.points),
        _log(flops), b.fill, _log(b.lanes), b.vector_utilisation, _log(b.unrolled), _log(b.bodies),
        _log(b.serial_extent), _log(b.vector_ops_body), _log(b.load_ops_body), _log(b.store_ops_body),
        _log(b.contiguous), _log(b.broadcast), _log(b.strided), _log(b.gathered),
        b.vector_ops_body / (b.load_ops_body + b.store_ops_body + 1.0), _log(b.accumulators), b.registers,
        _log(b.spills_body), _log(b.instructions), _log(b.parallel_extent), b.balance, _log(b.unique_bytes),
        _log(flops / b.unique_bytes) if b.unique_bytes else 0.0,
    ]  # fmt: skip
    out += [_log(n * b.points) for n in b.operations]
    out += [_log(c) for c in b.cycles]
    out += [_log(w) for w in b.working_sets]
    out += [_log(t) for t in b.traffic]
    operands = b.operands()
    for o in operands:
        vector, serial, reuse = o.vector_stride, o.serial_stride, o.reuse
        out += [
            _log(o.bytes), _log(reuse.count), _log(reuse.distance_bytes), _log(reuse.distance_points),
            _log(abs(vector)), float(vector == 1.0), float(vector == 0.0), float(vector not in (0.0, 1.0)),
            _log(abs(serial)), float(serial == 0.0), float(o.access.local), *(_log(t) for t in o.beyond),
        ]  # fmt: skip
    out += [0.0] * (len(_OPERAND) * (len(_OPERANDS) - len(operands)))
    return out
