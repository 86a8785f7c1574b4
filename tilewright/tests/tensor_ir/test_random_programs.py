"""Random functions verify, print, parse and run; analysis agrees with brute force on them."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from tilewright.core.arith.expr import IntExpr, var
from tilewright.tensor_ir.analysis.dependence import carried_dependences
from tilewright.tensor_ir.analysis.scopes import block_environment, loads_of, loop_path, loop_ranges, loops_in
from tilewright.tensor_ir.analysis.sweeps import bounds
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Block, Func, Loop, Stmt, map_children, walk, walk_index
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.tensor_ir.random_programs import random_program


@pytest.mark.parametrize("block", range(8))
def test_random_programs_verify_print_and_run(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        p = random_program(seed)
        verify(p.func)
        text = str(p.func)
        again = parse_func(text)
        assert again == p.func, f"random_program({seed})\n{text}"
        for x, y in zip(interpret(p.func, p.args, p.dims), interpret(again, p.args, p.dims), strict=True):
            np.testing.assert_array_equal(x, y)


def _backwards(func: Func, name: str) -> Func:
    """The function with one loop running backwards."""
    env: dict[str, IntExpr] = {}

    def edit(s: Stmt) -> Stmt:
        if isinstance(s, Loop) and s.var == name:
            env[name] = s.extent - 1 - var(name)
        if isinstance(s, Block):
            return dataclasses.replace(s, bindings=tuple(b.substitute(env) for b in s.bindings))
        return map_children(s, edit)

    return dataclasses.replace(func, body=edit(func.body))


def _is_independent(func: Func, loop: Loop) -> bool:
    outer = loop_ranges(loops_in(loop_path(func, loop.var))[:-1])
    return not carried_dependences(loop, (loop.var,), outer)


@pytest.mark.parametrize("seed", range(40))
def test_independent_loops_may_run_backwards(seed: int) -> None:
    p = random_program(seed)
    expected = interpret(p.func, p.args, p.dims)
    for s in list(walk(p.func.body)):
        if isinstance(s, Loop) and _is_independent(p.func, s):
            got = interpret(_backwards(p.func, s.var), p.args, p.dims)
            for x, y in zip(got, expected, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"random_program({seed}), loop {s.var}")


@pytest.mark.parametrize("seed", range(40))
def test_bounds_cover_every_access(seed: int) -> None:
    """Every index that one iteration of a loop touches, by enumeration, lies in the bounds computed for it."""
    p = random_program(seed)
    for loop in [s for s in walk(p.func.body) if isinstance(s, Loop)]:
        around = loops_in(loop_path(p.func, loop.var))
        env = dict(p.dims) | {x.var: x.extent.evaluate(p.dims) // 2 for x in around}
        block, inner = _innermost(loop.body)
        ranges = loop_ranges([*around, *inner])
        for indices in (block.indices, *(x.indices for x in loads_of(block))):
            for index in (i.substitute(block_environment(block)) for i in indices):
                if any(True for _ in walk_index(index)):
                    continue
                box = bounds(index, [x.var for x in inner], ranges)
                assert box is not None
                low, high = (e.evaluate(env) for e in box)
                for point in itertools.product(*(range(x.extent.evaluate(env)) for x in inner)):
                    here = env | {x.var: i for x, i in zip(inner, point, strict=True)}
                    assert low <= index.evaluate(here) <= high, (index, here, box)


def _innermost(s: Stmt) -> tuple[Block, list[Loop]]:
    loops = []
    while isinstance(s, Loop):
        loops.append(s)
        s = s.body
    assert isinstance(s, Block)
    return s, loops
