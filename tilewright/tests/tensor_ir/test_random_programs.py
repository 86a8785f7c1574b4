"""Random functions verify, print, parse and run; analysis agrees with brute force on them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright.core.intbounds import loop_range
from tilewright.core.intexpr import IntExpr, var
from tilewright.tensor_ir.analysis.dependence import is_parallelisable
from tilewright.tensor_ir.analysis.regions import accessed_region
from tilewright.tensor_ir.analysis.scopes import find_buffer, loads_of, loops_above, read_buffers
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Block, Func, Loop, Stmt, map_children, walk, walk_index
from tilewright.tensor_ir.text import parse_func, print_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.tensor_ir.random_programs import random_program


@pytest.mark.parametrize("block", range(8))
def test_random_programs_verify_print_and_run(block: int) -> None:
    for seed in range(block * 10, block * 10 + 10):
        p = random_program(seed)
        verify(p.func)
        text = print_func(p.func)
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


@pytest.mark.parametrize("seed", range(40))
def test_independent_loops_may_run_backwards(seed: int) -> None:
    p = random_program(seed)
    expected = interpret(p.func, p.args, p.dims)
    for s in list(walk(p.func.body)):
        if isinstance(s, Loop) and is_parallelisable(p.func, s.var) == "yes":
            got = interpret(_backwards(p.func, s.var), p.args, p.dims)
            for x, y in zip(got, expected, strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"random_program({seed}), loop {s.var}")


@pytest.mark.parametrize("seed", range(40))
def test_regions_cover_every_access(seed: int) -> None:
    """Every point that one iteration of a loop touches, by enumeration, lies in the region computed for it."""
    p = random_program(seed)
    for loop in [s for s in walk(p.func.body) if isinstance(s, Loop)]:
        around = [*loops_above(p.func, loop.var), loop]
        outer = {x.var: loop_range(x.extent) for x in around}
        env = dict(p.dims) | {x.var: x.extent.evaluate(p.dims) // 2 for x in around}
        block, inner = _innermost(loop.body)
        for name in (*read_buffers(block), block.buffer):
            buffer = find_buffer(p.func, name)
            region = accessed_region(loop.body, buffer, outer)
            assert region is not None
            box = [(a.evaluate(env), a.evaluate(env) + n.evaluate(env)) for a, n in region]
            for place in _touched(block, inner, name, env):
                inside = all(0 <= i < s.evaluate(env) for i, s in zip(place, buffer.shape, strict=True))
                assert not inside or all(a <= i < b for i, (a, b) in zip(place, box, strict=True)), (name, place, box)


def _innermost(s: Stmt) -> tuple[Block, list[Loop]]:
    loops = []
    while isinstance(s, Loop):
        loops.append(s)
        s = s.body
    assert isinstance(s, Block)
    return s, loops


def _touched(block: Block, inner: list[Loop], buffer: str, env: dict[str, int]) -> Iterator[tuple[int, ...]]:
    places = [x.indices for x in loads_of(block) if x.buffer == buffer]
    places += [block.indices] if block.buffer == buffer else []
    for point in itertools.product(*(range(x.extent.evaluate(env)) for x in inner)):
        here = env | {x.var: i for x, i in zip(inner, point, strict=True)}
        axes = env | {a.name: b.evaluate(here) for a, b in zip(block.axes, block.bindings, strict=True)}
        for indices in places:
            if not any(True for i in indices for _ in walk_index(i)):
                yield tuple(i.evaluate(axes) for i in indices)
