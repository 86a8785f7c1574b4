"""Sizes of long formulas in kernels: parameters where they are given, written out where they are made."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.core.arith.expr import IntExpr, var
from tilewright.core.arith.named import MAX_SIZE, named_in
from tilewright.core.plan import KernelStep
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.kernel_sizes import KernelSizes
from tilewright.lowering.plan import LoweredModel, fuse_and_lower
from tilewright.tensor_ir.ir import Block, Func, Loop, expr_indices, walk, walk_expr
from tilewright.tests.lowering.lowered import TARGET

FLAT = np.array([-1])


def pooled(levels: int) -> Graph:
    """What was pooled, joined with what was not, again and again."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", (1, 2, "size0", 3))
    for _ in range(levels):
        x = b.op("Concat", b.op("MaxPool", x, kernel_shape=(2, 1), strides=(2, 1)), x, axis=2)
    return b.build(x)


def longest(func: Func) -> int:
    """The size of the longest expression in a function."""
    found: list[IntExpr] = [d for p in func.params for d in p.shape]
    for s in walk(func.body):
        if isinstance(s, Loop):
            found.append(s.extent)
        elif isinstance(s, Block):
            found += [i for e in walk_expr(s.value) for i in expr_indices(e)]
    return max(e.size for e in found)


def steps(lowered: LoweredModel) -> list[KernelStep]:
    return [s for s in lowered.plan.steps if isinstance(s, KernelStep)]


def test_kernels_of_long_chains_are_few_and_short() -> None:
    few, many = (fuse_and_lower(pooled(levels), TARGET) for levels in (12, 90))
    assert few.funcs == many.funcs
    assert len(steps(many)) == 180
    assert all(longest(f) <= 4 * MAX_SIZE and not named_in(d for p in f.params for d in p.shape)
               for f in many.funcs.values())  # fmt: skip


@pytest.mark.parametrize("n", [2, 9])
def test_calls_give_the_values_of_the_formulas(n: int) -> None:
    lowered = fuse_and_lower(pooled(12), TARGET)
    env, hidden = {"size0": n}, 0
    for step in steps(lowered):
        func = lowered.funcs[step.kernel]
        given = {d: e.evaluate(env) for d, e in zip(func.dims, step.dims, strict=True)}
        hidden += sum(bool(named_in((e,))) for e in step.dims)
        for p, slot in zip(func.params, step.args, strict=True):
            assert tuple(d.evaluate(given) for d in p.shape) == lowered.plan.slots[slot].shape_values(env)
        for work in (step.flops, step.bytes):
            assert work is not None
            assert work.free_vars() <= {"size0"}
            assert work.evaluate(env) >= 0
    assert hidden > 10


def test_parameters_avoid_other_names_and_made_sizes_are_written_out() -> None:
    graph = pooled(12)
    given = next(v.shape[2] for v in graph.values.values() if named_in(v.shape))
    (a,) = named_in((given,))
    assert KernelSizes((given,), ("size0",)).short(given * 2 + 1) == var("size1") * 2 + 1
    assert KernelSizes((), ()).short(given) == a.formula
    sizes = KernelSizes((given,))
    assert sizes.at_the_call(sizes.short(given + 3)) == given + 3


def chosen(classes: int) -> Graph:
    """What a detector does for each class: the scores above a threshold, and the boxes at these places."""
    b = GraphBuilder("g")
    scores, boxes = b.input("scores", "float32", (classes, "u0")), b.input("boxes", "float32", ("u0", 4))
    outputs = []
    for k, row in enumerate(b.ops("Split", scores, outputs=classes, axis=0, num_outputs=classes)):
        score = b.op("Reshape", row, FLAT)
        places = b.op(
            "Reshape", b.op("NonZero", b.op("Greater", score, b.constant(np.array(k / classes, np.float32)))), FLAT
        )
        outputs.append(b.op("Exp", b.op("Gather", boxes, places, axis=0)))
    return b.build(*outputs)


def test_sizes_that_depend_on_data_share_kernels() -> None:
    few, many = (fuse_and_lower(chosen(classes), TARGET) for classes in (2, 7))
    exps = [f for name, f in many.funcs.items() if name.endswith("gather_exp")]
    assert len(exps) == 1
    assert exps[0].dims == ("size0", "u0")
    calls = [s.dims for s in steps(many) if s.kernel.endswith("gather_exp")]
    assert len(set(calls)) == 7
    assert len(few.funcs) == len(many.funcs) - 5  # the thresholds


@pytest.mark.parametrize("n", [0, 1, 5])
def test_sizes_that_depend_on_data_reach_their_kernels(n: int) -> None:
    graph = chosen(3)
    rng = np.random.default_rng(n)
    feed = {"scores": rng.random((3, n), np.float32), "boxes": rng.standard_normal((n, 4)).astype(np.float32)}
    got = tilewright.compile(graph, threads=1).run(feed)
    for name, want in interpret(graph, feed).items():
        np.testing.assert_allclose(got[name], np.asarray(want), rtol=1e-6)
