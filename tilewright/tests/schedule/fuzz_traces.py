"""Random traces of every primitive on random nests: each step is refused, or the function still computes the same
and has machine code.

``python -m tilewright.tests.schedule.fuzz_traces --count 10000 --seed 0`` is the long run. It ends with how often each
primitive was accepted and refused, so that a generator whose steps are only ever refused is seen. A failure names its
seed and shows the shortest part of its trace that goes wrong.
"""

from __future__ import annotations

import argparse
import dataclasses
import random
import sys
import time
import typing
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.arith.expr import as_var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.primitives.loops.annotate import KEYS
from tilewright.schedule.primitives.loops.tensorize import Tensorize
from tilewright.schedule.trace import Trace, make_step
from tilewright.tensor_ir.analysis.scopes import blocks_in, buffers, loads_of, loops_around
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Func, Loop, Stmt, Store, stmt_children, walk
from tilewright.tests.codegen.helpers import emitted
from tilewright.tests.schedule.fuzz_nests import random_nest
from tilewright.tests.schedule.helper import check_round_trip, check_twin

STEPS = 10
NONSENSE = 0.06
"""How often the arguments of a step are any names and numbers at all."""

FACTORS = (None, 1, 2, 3, 4, 5, 8)
Arguments = tuple[object, ...] | None
"""Of a step that may well be legal; None where the function has nothing for it to work on."""


# -- what there is to choose from --------------------------------------------------------------------------------------
def _loops(func: Func) -> list[Loop]:
    return [s for s in walk(func.body) if isinstance(s, Loop)]


def _allocated(func: Func) -> list[Buffer]:
    return [s.buffer for s in walk(func.body) if isinstance(s, Alloc)]


def _one(rng: random.Random, options: Sequence[str]) -> Arguments:
    return (rng.choice(options),) if options else None


def _some_loop(rng: random.Random, func: Func, accept: Callable[[Loop], bool]) -> Arguments:
    return _one(rng, [x.var for x in _loops(func) if accept(x)])


def _around(func: Func, block: str) -> list[str]:
    return [x.var for x in loops_around(func, block)]


def _driven(block: Block, *kinds: str) -> set[str]:
    """The loops that axes of these kinds are bound to."""
    pairs = zip(block.axes, block.bindings, strict=True)
    return {v for a, b in pairs if a.kind in kinds for v in b.free_vars()}


def _reductions(func: Func) -> list[Block]:
    return [b for b in blocks_in(func.body) if b.init is not None]


def _is_serial(x: Loop) -> bool:
    return x.kind == "serial"


def _way_down(rng: random.Random, func: Func) -> list[Loop]:
    """The loops on a random way from the root to a leaf."""
    out: list[Loop] = []
    s: Stmt = func.body
    while True:
        if isinstance(s, Loop):
            out.append(s)
        children = stmt_children(s)
        if not children:
            return out
        s = rng.choice(children)


def _chain(rng: random.Random, func: Func) -> list[str]:
    """The longest of some runs of perfectly nested loops."""
    best: list[str] = []
    for _ in range(3):
        loops = _way_down(rng, func)
        run = [loops[0].var] if loops else []
        for outer, inner in pairwise(loops):
            run = [*run, inner.var] if outer.body is inner else [inner.var]
        if len(run) > len(best):
            best = run
    return best


# -- arguments, by primitive -------------------------------------------------------------------------------------------
def _split(rng: random.Random, func: Func) -> Arguments:
    loop = _some_loop(rng, func, _is_serial)
    return loop and (*loop, tuple(rng.choice(FACTORS) for _ in range(rng.choice((2, 2, 3)))))


def _fuse(rng: random.Random, func: Func) -> Arguments:
    chain = _chain(rng, func)
    start = rng.randrange(max(1, len(chain) - 1))
    return (tuple(chain[start : start + rng.choice((2, 2, 3))]),) if len(chain) > 1 else None


def _reorder(rng: random.Random, func: Func) -> Arguments:
    chain = _chain(rng, func)
    return (tuple(rng.sample(chain, rng.randint(2, len(chain)))),) if len(chain) > 1 else None


def _peel(rng: random.Random, func: Func) -> Arguments:
    used = frozenset().union(*(x.extent.free_vars() for x in _loops(func)))
    return _some_loop(rng, func, lambda x: x.var in used)


def _unroll(rng: random.Random, func: Func) -> Arguments:
    return _some_loop(rng, func, _is_serial)


def _vectorize(rng: random.Random, func: Func) -> Arguments:
    return _some_loop(rng, func, lambda x: _is_serial(x) and (isinstance(x.body, (Block, Store)) or rng.random() < 0.3))


def _parallel(rng: random.Random, func: Func) -> Arguments:
    steps = set().union(*(_driven(b, "ordered") for b in blocks_in(func.body)))
    around = [x for x in _loops(func) if x.var not in steps]
    inside = {x.var for outer in around for x in walk(outer.body) if isinstance(x, Loop)}
    return _some_loop(rng, func, lambda x: _is_serial(x) and (x.var not in inside or rng.random() < 0.1))


def _annotate(rng: random.Random, func: Func) -> Arguments:
    loop = _some_loop(rng, func, lambda x: True)
    return loop and (
        *loop,
        *rng.choice([("worth", "8"), ("prefetch", func.params[0].name), ("stream", func.params[-1].name)]),
    )


def _unannotate(rng: random.Random, func: Func) -> Arguments:
    loop = _some_loop(rng, func, lambda x: bool(x.hints))
    return loop and (*loop, rng.choice(tuple(KEYS)))


def _set_scope(rng: random.Random, func: Func) -> Arguments:
    buffer = _one(rng, [b.name for b in _allocated(func)])
    return buffer and (*buffer, rng.choice(("global", "local")))


def _cache_read(rng: random.Random, func: Func) -> Arguments:
    pairs = [(b.name, x.buffer) for b in blocks_in(func.body) for x in loads_of(b) if x.buffer != b.buffer]
    return (*rng.choice(pairs), rng.choice(("global", "local"))) if pairs else None


def _cache_write(rng: random.Random, func: Func) -> Arguments:
    block = _one(rng, [b.name for b in blocks_in(func.body)])
    return block and (*block, rng.choice(("global", "local")))


def _transform_layout(rng: random.Random, func: Func) -> Arguments:
    buffers_ = _allocated(func)
    buffer = rng.choice(buffers_) if buffers_ else None
    if buffer is None or not buffer.shape:
        return None
    names = [f"i{d}" for d in range(len(buffer.shape))]
    new = list(names)
    for _ in range(rng.choice((1, 1, 2))):
        new = _other_layout(rng, buffer, names, new)
    return buffer.name, f"{', '.join(names)} -> {', '.join(new)}"


def _other_layout(rng: random.Random, buffer: Buffer, names: list[str], old: list[str]) -> list[str]:
    """The indices of a layout map changed in one way, mostly one that keeps elements apart."""
    d, e, factor = rng.randrange(len(old)), rng.randrange(len(old)), rng.choice((2, 3, 4))
    before, x, after = old[:d], old[d], old[d + 1 :]
    plain = d < len(names) and x == names[d]
    match rng.choice(("permute", "split", "split", "join", "turn", "shift", "spread", "lose", "unit")):
        case "permute":
            return rng.sample(old, len(old))
        case "split":
            return [*before, f"({x}) // {factor}", *after, f"({x}) % {factor}"]
        case "join" if d != e and plain:
            joined = f"({old[e]})*({buffer.shape[d]}) + {x}"
            return [joined if n == e else y for n, y in enumerate(old) if n != d]
        case "turn" if plain:
            return [*before, f"{buffer.shape[d]} - 1 - {x}", *after]
        case "shift":
            return [*before, f"{x} + {rng.choice((1, 2, 3, -1))}", *after]
        case "spread":
            return [*before, f"({x})*{factor}", *after]
        case "lose" if rng.random() < 0.3:
            return [*before, rng.choice((f"({x}) // 2", f"({x}) % 2", "0", f"{x} + {old[e]}")), *after]
    return [*before, rng.choice(("0", "0", "1")), x, *after]


def _storage_align(rng: random.Random, func: Func) -> Arguments:
    deep = [b for b in _allocated(func) if len(b.shape) > 1]
    if not deep:
        return None
    buffer, factor = rng.choice(deep), rng.choice((1, 2, 4, 6, 8))
    return buffer.name, rng.randint(0, len(buffer.shape) - 2), factor, rng.choice((0, 0, 1 % factor, factor // 2))


def _compute_at(rng: random.Random, func: Func) -> Arguments:
    return _one_pair(rng, [(b, v) for b, reader in _stages(func) for v in _around(func, reader)])


def _reverse_compute_at(rng: random.Random, func: Func) -> Arguments:
    outer = {b.name: _around(func, b.name)[:2] for b in blocks_in(func.body)}
    return _one_pair(rng, [(reader, v) for b, reader in _stages(func) for v in outer[b]])


def _compute_inline(rng: random.Random, func: Func) -> Arguments:
    plain = {b.name for b in blocks_in(func.body) if not _driven(b, "reduce", "ordered") or rng.random() < 0.1}
    return _one(rng, [b for b, _ in _stages(func) if b in plain])


def _reverse_compute_inline(rng: random.Random, func: Func) -> Arguments:
    plain = {b.name for b in blocks_in(func.body) if not _driven(b, "reduce", "ordered") or rng.random() < 0.1}
    return _one(rng, [reader for b, reader in _stages(func) if {b, reader} <= plain])


def _stages(func: Func) -> list[tuple[str, str]]:
    """Blocks that write intermediate buffers, each with a block that reads what it writes."""
    mine = {b.name for b in _allocated(func)}
    blocks = blocks_in(func.body)
    read = {b.name: {x.buffer for x in loads_of(b)} for b in blocks}
    return [
        (b.name, o.name) for b in blocks for o in blocks
        if b.buffer in mine and o.buffer != b.buffer and b.buffer in read[o.name]
    ]  # fmt: skip


def _one_pair(rng: random.Random, pairs: Sequence[tuple[str, str]]) -> Arguments:
    return rng.choice(pairs) if pairs else None


def _decompose_reduction(rng: random.Random, func: Func) -> Arguments:
    pairs = []
    for b in _reductions(func):
        loops, steps = _around(func, b.name), _driven(b, "reduce")
        first = next((n for n, v in enumerate(loops) if v in steps), len(loops) - 1)
        pairs += [(b.name, v) for n, v in enumerate(loops) if n <= first or rng.random() < 0.1]
    return _one_pair(rng, pairs)


def _rfactor(rng: random.Random, func: Func) -> Arguments:
    return _one(rng, sorted(set().union(*(_driven(b, "reduce") for b in _reductions(func)))))


def _pad_einsum(rng: random.Random, func: Func) -> Arguments:
    fresh = [b for b in _reductions(func) if all(as_var(e) is not None for e in b.bindings)]
    if not fresh:
        return None
    block = rng.choice(fresh)
    return block.name, tuple(rng.choice((1, 1, 2, 3, 4, 8)) for _ in block.axes)


def _sample_categorical(rng: random.Random, func: Func) -> Arguments:
    return "choice", (1, 2, 4), rng.choice((1, 2, 4, 8))


def _sample_perfect_tile(rng: random.Random, func: Func) -> Arguments:
    sizes = [(x.var, n) for x in _loops(func) if (n := x.extent.value()) is not None]
    factor = rng.choice((1, 2, 3))
    loop, extent = rng.choice(sizes or [("none", 1)])
    return loop, 16, (extent // factor, factor)


def _sample_compute_location(rng: random.Random, func: Func) -> Arguments:
    loop, block = _some_loop(rng, func, lambda x: True), _one(rng, [b.name for b in blocks_in(func.body)])
    return loop and block and (*block, ("root", *loop), rng.choice(("root", *loop)))


def _blockize(rng: random.Random, func: Func) -> Arguments:
    return _some_loop(rng, func, _is_serial)


def _tensorize(rng: random.Random, func: Func) -> Arguments:
    """A loop that an intrinsic fits, if there is one: few do."""
    steps = [Tensorize(x.var, known.name) for x in _loops(func) for known in func.intrinsics]
    fitting = [t for t in steps if not _is_refused(t, func)]
    return _one_pair(rng, [(t.loop, t.intrinsic) for t in fitting])


def _is_refused(step: Primitive, func: Func) -> bool:
    try:
        step.apply(func)
    except ScheduleError:
        return True
    return False


GENERATORS: dict[str, tuple[int, Callable[[random.Random, Func], Arguments]]] = {
    # name: (weight, arguments that may well be legal)
    "split": (12, _split),
    "fuse": (8, _fuse),
    "reorder": (10, _reorder),
    "peel": (10, _peel),
    "unroll": (2, _unroll),
    "vectorize": (5, _vectorize),
    "parallel": (5, _parallel),
    "blockize": (1, _blockize),
    "tensorize": (8, _tensorize),
    "annotate": (1, _annotate),
    "unannotate": (1, _unannotate),
    "set_scope": (3, _set_scope),
    "cache_read": (6, _cache_read),
    "cache_write": (6, _cache_write),
    "transform_layout": (8, _transform_layout),
    "storage_align": (6, _storage_align),
    "compute_at": (10, _compute_at),
    "reverse_compute_at": (10, _reverse_compute_at),
    "compute_inline": (5, _compute_inline),
    "reverse_compute_inline": (6, _reverse_compute_inline),
    "decompose_reduction": (8, _decompose_reduction),
    "rfactor": (8, _rfactor),
    "pad_einsum": (8, _pad_einsum),
    "sample_categorical": (1, _sample_categorical),
    "sample_perfect_tile": (1, _sample_perfect_tile),
    "sample_compute_location": (1, _sample_compute_location),
}


def random_step(rng: random.Random, func: Func) -> Primitive:
    """A primitive with arguments that look right, or now and then with any at all."""
    names = list(GENERATORS)
    while True:
        name = rng.choices(names, [GENERATORS[n][0] for n in names])[0]
        if rng.random() < NONSENSE:
            return _nonsense(rng, func, PRIMITIVES[name])
        arguments = GENERATORS[name][1](rng, func)
        if arguments is not None:
            return make_step("random step", name, arguments, {})


def _nonsense(rng: random.Random, func: Func, cls: type[Primitive]) -> Primitive:
    """Any names of the function and any small numbers, of the types of the fields."""
    names = [x.var for x in _loops(func)] + [b.name for b in blocks_in(func.body)] + [b.name for b in buffers(func)]

    def value(hint: object) -> object:
        if typing.get_origin(hint) is tuple:
            return tuple(value(typing.get_args(hint)[0]) for _ in range(rng.randint(0, 3)))
        if hint in (int, int | None):
            return rng.choice((-1, 0, 1, 2, 7))
        name = rng.choice((*names, "none"))
        return name != "none" if hint is bool else name

    hints = typing.get_type_hints(cls)
    return cls(**{f.name: value(hints[f.name]) for f in dataclasses.fields(cls)})


# -- runs ------------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(slots=True)
class Tally:
    """Steps by the name of their primitive."""

    accepted: Counter[str] = dataclasses.field(default_factory=Counter)
    refused: Counter[str] = dataclasses.field(default_factory=Counter)

    def __str__(self) -> str:
        rows = [f"{'primitive':24}{'accepted':>10}{'refused':>10}"]
        for name in GENERATORS:
            rows.append(f"{name:24}{self.accepted[name]:>10}{self.refused[name]:>10}")
        return "\n".join(rows)


def run(seed: int, tally: Tally | None = None) -> Trace:
    """One random trace: the steps that were accepted. Raises AssertionError, with a reproducer, if it goes wrong."""
    rng = random.Random(seed)
    call, func = random_nest(rng)
    tally = tally if tally is not None else Tally()
    sizes = _sizes(rng) if func.dims else [{}]
    trace, after = Trace(), func
    for _ in range(STEPS):
        step = random_step(rng, after)
        try:
            after = step.apply(after)
        except ScheduleError:
            tally.refused[step.name] += 1
            continue
        except Exception as e:
            raise AssertionError(f"seed {seed}: {call}\n{trace.then(step)}") from e
        tally.accepted[step.name] += 1
        trace = trace.then(step)
    try:
        check_round_trip(after)
        check_twin(func, after, sizes)
        assert Trace.from_text(trace.to_text()).apply(func) == after, "the trace replays to another function"
        emitted(after, detect_host())
    except Exception as e:
        raise AssertionError(f"seed {seed}: {call}, {sizes}\n{_first_wrong(func, trace, sizes)}") from e
    return trace


def _sizes(rng: random.Random) -> list[dict[str, int]]:
    """Values of the dims: at random, and all the same awkward one."""
    return [{"n": rng.randint(1, 8), "m": rng.randint(1, 8)}, dict.fromkeys("nm", rng.choice((0, 1, 7, 8)))]


def _first_wrong(func: Func, trace: Trace, sizes: Sequence[dict[str, int]]) -> Trace:
    """The shortest leading part of a trace that is wrong."""
    for n in range(1, len(trace) + 1):
        part = Trace(trace.steps[:n])
        try:
            after = part.apply(func)
            check_round_trip(after)
            check_twin(func, after, sizes)
        except Exception:  # noqa: BLE001 - whatever the whole trace does wrong, its first part that does is wanted
            return part
    return trace


def main(arguments: Sequence[str]) -> int:
    """Run ``--count`` traces from ``--seed`` on; 1 if one went wrong."""
    parser = argparse.ArgumentParser(description="Random schedule traces against the interpreter.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tally, wrong, start = Tally(), 0, time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        try:
            run(seed, tally)
        except AssertionError as e:
            wrong += 1
            cause = str(e.__cause__).strip().splitlines() or [type(e.__cause__).__name__]
            print(f"{e}\n{cause[0]}\n", flush=True)
    print(f"{options.count} traces in {time.monotonic() - start:.0f} s, {wrong} wrong\n\n{tally}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
