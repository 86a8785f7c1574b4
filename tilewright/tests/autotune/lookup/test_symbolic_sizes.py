"""Records of symbolic sizes serve fixed ones, and the reverse, as far as traces replay; the account says which."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.autotune.base.measure_result import Ok
from tilewright.autotune.base.space import Space
from tilewright.autotune.base.task import Task
from tilewright.autotune.base.workload import canonical, workload_of
from tilewright.autotune.lookup.lookup import look_up
from tilewright.autotune.lookup.symbolic_sizes import family_of, nearest_of_family
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase, MemoryDatabase
from tilewright.autotune.records.record import Record, make_record
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, var
from tilewright.runtime.coverage import Status
from tilewright.tensor_ir.compute import build_func, compute, maximum, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.ir import Func
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record, with_threads

ALL = "tuned in a build for all sizes, at n0 = 24"


def product(rows: IntLike, middle: IntLike = 16, positive: bool = False) -> Func:
    """A matrix product; with ``positive``, negative products count as 0."""
    a, b = placeholder("A", (rows, middle), dtypes.float32), placeholder("B", (middle, 32), dtypes.float32)
    k = reduce_axis(middle, "k")

    def formula(i: IntLike, j: IntLike) -> object:
        x = a[i, k] * b[k, j]
        return sum_over(maximum(x, 0.0) if positive else x, k)

    return build_func("product", [a, b], [compute("C", (rows, 32), formula)])


def measured(func: Func, seconds: float, number: int = 1, time: float = 1.0, **dims: int) -> Record:
    """A record of its default, or of another candidate."""
    named = canonical(func)
    space, rng = Space(named, HERE), np.random.default_rng(0)
    chosen = space.default()
    while number and chosen == space.default():
        chosen = space.sample(rng) or chosen
    sizes = dict(zip(named.dims, dims.values(), strict=True))
    return make_record(Task(named, HERE, sizes), chosen, Ok(seconds, (seconds,), 0.0, 0.1), time=time)


N = var("n")
WIDE = dataclasses.replace(HERE, vector_bits=512)


def test_families() -> None:
    fixed, symbolic = workload_of(product(24)), workload_of(product(N))
    assert fixed.structure != symbolic.structure
    assert family_of(fixed.text) == family_of(symbolic.text) == family_of(workload_of(product(N, var("m"))).text)
    assert family_of(fixed.text) != family_of(workload_of(product(24, positive=True)).text)


def test_fixed_from_symbolic() -> None:
    r = measured(product(N), 1e-3, n=24)
    match = look_up(product(24), HERE, MemoryDatabase([r]))
    assert (match.status, match.record) == (Status.NEAR_MISS, r)
    assert match.reason == f"{ALL}, and this one is for n0 = 24"
    assert match.trace is not None
    match.trace.apply(match.func)
    other = look_up(product(25), HERE, MemoryDatabase([with_threads(r, 8)]))
    assert other.reason == f"{ALL}, and this one is for n0 = 25 on another machine (8 -> 2 threads)"


def test_symbolic_from_fixed() -> None:
    r = measured(product(24), 1e-3)
    match = look_up(product(N), HERE, MemoryDatabase([r]))
    assert (match.status, match.record, match.dims) == (Status.NEAR_MISS, r, {"n0": 24})
    assert match.reason == "tuned in a build for the sizes n0 = 24, and this one is for all sizes"
    assert match.trace is not None
    match.trace.apply(match.func)


def test_its_own_sizes_come_first() -> None:
    """A record of other fixed sizes is nearer to a kernel of fixed sizes than one of symbolic ones."""
    own, other = measured(product(N), 1e-3, n=24), measured(product(31), 1e-3)
    assert look_up(product(24), HERE, MemoryDatabase([own, other])).record == other


def test_the_nearest_of_several() -> None:
    far, near = measured(product(500), 1e-3), measured(product(20), 2e-3)
    small = measured(product(20, 8), 1e-3)
    here = product(N)
    found = nearest_of_family(canonical(here), workload_of(here), HERE, MemoryDatabase([far, near, small]), 9)
    assert [x.record for x in found] == [far, near, small], "the largest of equal ones: that is where time goes"
    assert [x.apart > 0.0 for x in found] == [False, False, True]
    at = [measured(product(N), 1e-3, n=n, time=n) for n in (2, 30)]
    (kin,) = nearest_of_family(canonical(product(24)), workload_of(product(24)), HERE, MemoryDatabase(at[1:]), 9)
    assert (kin.sizes, kin.apart < 0.3) == ({"n0": 24}, True)


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (product(24, positive=True), measured(product(N), 1e-3, n=24)),
        (product(24, 8), measured(product(N, N), 1e-3, n=24)),
        (product(N, 16), measured(product(N, var("m")), 1e-3, n=24, m=16)),
        (product(24), dataclasses.replace(measured(product(N), 1e-3, n=24), target=WIDE)),
    ],
    ids=("another formula", "sizes that contradict each other", "symbolic in both", "another vector unit"),
)  # fmt: skip
def test_what_is_no_relative(own: Func, other: Record) -> None:
    assert look_up(own, HERE, MemoryDatabase([other])).status is Status.MISS


def test_policies_leave_it_out_and_say_so() -> None:
    database = MemoryDatabase([measured(product(N), 1e-3, n=24)])
    for policy in ("exact", "compatible"):
        match = look_up(product(24), HERE, database, policy)  # type: ignore[arg-type]
        assert match.status is Status.MISS
        assert match.reason == f"tuned only for other sizes, which policy {policy!r} leaves out"


def test_a_trace_that_does_not_replay_is_passed_over() -> None:
    step = {"primitive": "split", "args": {"loop": "nowhere", "factors": [None, 4]}}
    broken = dataclasses.replace(
        measured(product(N), 1e-3, n=24), steps=(step,), decisions={"b0.nothing": 1}, function="x"
    )
    match = look_up(product(24), HERE, MemoryDatabase([broken]))
    assert match.status is Status.MISS
    assert match.reason.startswith(f"{ALL}, and this one is for n0 = 24, which does not replay here: ")


@pytest.mark.parametrize("n", [1, 6, 48, 49])
def test_a_peel_is_left_out_where_no_tile_is_partial_or_whole(n: int) -> None:
    """``function``: a record whose decisions say nothing, so that its steps are replayed."""
    found = dataclasses.replace(measured(product(N), 1e-3, n=24), function="x")
    assert "peel" in found.trace.to_text()
    match = look_up(product(n), HERE, MemoryDatabase([found]))
    assert match.status is Status.NEAR_MISS
    if match.trace is not None:
        assert ("peel" in match.trace.to_text()) == (n == 49)
        match.trace.apply(match.func)


def test_a_log_decodes_relatives_only(tmp_path) -> None:  # type: ignore[no-untyped-def]
    log = JSONDatabase(tmp_path / "log")
    for r in (measured(product(N), 1e-3, n=24), record(dense(24), candidates(dense(24), HERE, 1)[0], 1e-3)):
        log.append(r)
    assert look_up(product(25), HERE, JSONDatabase(log.path)).status is Status.NEAR_MISS
    assert look_up(product(N), HERE, JSONDatabase(log.path)).status is Status.HIT


def _with_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    out = copy.deepcopy(model)
    for v in (*out.graph.input, *out.graph.output):
        v.type.tensor_type.shape.dim[0].ClearField("dim_value")
        v.type.tensor_type.shape.dim[0].dim_param = "batch"
    return out


@pytest.mark.parametrize("tuned_symbolic", [True, False])
def test_a_network(tuned_symbolic: bool) -> None:
    """Every kernel has a near miss that was timed against the default, and the results are the default's."""
    fixed = mlp_model(12, 24)
    symbolic = _with_batch(fixed)
    first, second = (symbolic, fixed) if tuned_symbolic else (fixed, symbolic)
    table = TableMeasurer(lambda c: 1.0 + int(c.key[:6], 16))
    database = tilewright.tune(
        first, database=MemoryDatabase(), measurer=table, time_budget_s=None, max_trials=9, check_network=False,
        sizes={"batch": 12} if tuned_symbolic else {}, threads=1,
    )  # fmt: skip
    model = tilewright.compile(second, database=database, threads=1)
    coverage = model.coverage()
    assert {r.status for r in coverage.rows} == {Status.NEAR_MISS}
    assert all(("build for all sizes" if tuned_symbolic else "build for the sizes") in r.reason for r in coverage.rows)
    assert all("the time of the default" in r.reason or "give the default here" in r.reason for r in coverage.rows)
    replayed = tilewright.compile(second, database=database, threads=1, near_misses="replay")
    x = np.random.default_rng(0).standard_normal((12, 32)).astype(np.float32)
    expected = tilewright.compile(second, threads=1).run({"x": x})["y"]
    for m in (model, replayed):
        np.testing.assert_allclose(m.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-6)
