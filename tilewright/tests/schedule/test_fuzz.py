"""Random traces on random programs: each step is refused with a ScheduleError, or the function still computes the same.

More seeds from the command line: ``python -m tilewright.tests.schedule.test_fuzz 5000``.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from collections import Counter

import pytest

from tilewright.core.errors import ScheduleError
from tilewright.core.intexpr import IntLike, var
from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import blocks_in, buffers
from tilewright.tensor_ir.ir import Func, Loop, stmt_children, walk
from tilewright.tests.schedule.helper import PROGRAMS, check_round_trip, check_twin

STEPS = 10
WEIGHTS = {"annotate": 1, "unannotate": 1, "unroll": 2, "vectorize": 3, "set_scope": 2, "split": 12, "peel": 12}  # of 8
FACTORS = (None, 1, 2, 3, 4, 5, 8)


def random_program(rng: random.Random) -> tuple[str, Func]:
    """A program with small constant or symbolic sizes, and the call that makes it."""
    name = rng.choice(sorted(PROGRAMS))
    make = PROGRAMS[name]
    count = make.__code__.co_argcount
    sizes: list[IntLike] = [rng.choice((1, 2, 4, 5, 7, 8, 12, var("n"), var("m"))) for _ in range(count)]
    return f"{name}({', '.join(map(str, sizes))})", make(*sizes)


def random_step(rng: random.Random, func: Func) -> Primitive:
    """A primitive with arguments that at least look right."""
    names = sorted(n for n in PRIMITIVES if not n.startswith("sample_"))  # those only record a choice
    cls = PRIMITIVES[rng.choices(names, [WEIGHTS.get(n, 8) for n in names])[0]]
    args = {f.name: _argument(rng, func, cls.name, f.name) for f in dataclasses.fields(cls)}
    return cls(**args)


def _argument(rng: random.Random, func: Func, primitive: str, field: str) -> object:
    loops = [s.var for s in walk(func.body) if isinstance(s, Loop)]
    blocks = [b.name for b in blocks_in(func.body)]
    if primitive == "peel":
        extents = [s.extent.free_vars() for s in walk(func.body) if isinstance(s, Loop)]
        loops = [v for v in loops if any(v in e for e in extents)]
    if field == "loop":
        return rng.choice(loops or ["none"])
    if field == "loops":
        nest = _random_nest(rng, func)
        if primitive == "fuse":
            start = rng.randrange(len(nest))
            return tuple(nest[start : start + rng.choice((2, 2, 3))])
        chosen = rng.sample(nest, rng.randint(1, len(nest)))
        return tuple(chosen)
    if field == "factors":
        return tuple(rng.choice(FACTORS) for _ in range(rng.choice((2, 2, 3))))
    if field == "block":
        return rng.choice(blocks)
    if field == "buffer":
        return rng.choice(sorted(b.name for b in buffers(func)))
    if field == "scope":
        return rng.choice(("global", "local"))
    if field in ("key", "value"):
        return rng.choice(("a", "b"))
    return rng.choice((0, 1, 2))


def _random_nest(rng: random.Random, func: Func) -> list[str]:
    """The loops on a random way down."""
    names, s = [], func.body
    while True:
        if isinstance(s, Loop):
            names.append(s.var)
        children = stmt_children(s)
        if not children:
            return names or ["none"]
        s = rng.choice(children)


def run(seed: int) -> Trace:
    """One random trace: the steps that were accepted."""
    rng = random.Random(seed)
    call, func = random_program(rng)
    trace, after = Trace(), func
    for _ in range(STEPS):
        step = random_step(rng, after)
        note = f"seed {seed}: {call}\n{trace.then(step)}"
        try:
            after = step.apply(after)
        except ScheduleError:
            continue
        except Exception as e:
            raise AssertionError(note) from e
        trace = trace.then(step)
        try:
            check_round_trip(after)
        except Exception as e:
            raise AssertionError(note) from e
    sizes = [dict.fromkeys(func.dims, v) for v in (1, 7, 8, 0)]
    sizes.append({"n": rng.randint(1, 9), "m": rng.randint(1, 9)})
    try:
        check_twin(func, after, sizes if func.dims else [{}], f"seed {seed}: {call}\n{trace}")
    except Exception as e:
        raise AssertionError(f"seed {seed}: {call}\n{trace}") from e
    assert Trace.from_text(trace.to_text()).apply(func) == after
    return trace


@pytest.mark.parametrize("seed", range(60))
def test_a_random_trace_is_refused_or_right(seed: int) -> None:
    run(seed)


if __name__ == "__main__":
    accepted = Counter(step.name for seed in range(int(sys.argv[1])) for step in run(seed).steps)
    print(*(f"{name}: {count}" for name, count in accepted.most_common()), sep="\n")
