"""The traces that make matmul, convolution and softmax fast: stages computed inside tiles of their consumers."""

import re

import numpy as np
import pytest

from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, IntLike, as_expr, ceildiv, var
from tilewright.core.dtypes import DType, float32
from tilewright.machine.target import Target
from tilewright.schedule.default import default_trace
from tilewright.schedule.rules.facts import all_blocks, is_reduction
from tilewright.schedule.rules.tiling.write_tile import lanes_stored
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.parallel_if import parallel_condition
from tilewright.tensor_ir.analysis.scopes import find_buffer, loops_around
from tilewright.tensor_ir.compute import Val, build_func, compute, max_over, op, placeholder, reduce_axis, sum_over
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func, Loop, walk
from tilewright.tests.schedule.helper import check
from tilewright.tests.schedule.kernels import conv, packed_matmul, softmax_like

M, N, K = var("m"), var("n"), var("kk")
SOME: list[dict[str, int]] = [dict.fromkeys(("m", "n", "kk"), v) for v in (1, 7, 17)] + [{"m": 13, "n": 33, "kk": 2}]

MATMUL = """
split("C_m", factors=(None, 6))
split("C_n", factors=(None, 16))
reorder(("C_m_0", "C_n_0", "C_m_1", "C_n_1"))
compute_at("acc", loop="C_n_0")
reorder(("k", "acc_m", "acc_ni"))
decompose_reduction("acc", loop="k")
unroll("acc_m_init")
vectorize("acc_ni_init")
unroll("acc_m")
vectorize("acc_ni")
unroll("C_m_1")
vectorize("C_n_1")
parallel("C_m_0")
"""


def test_matmul_with_whole_tiles():
    check(
        packed_matmul(12, 32, 8),
        MATMUL,
        """
        for C_m_0 in parallel(2):
            for C_n_0 in range(2):
                acc = local(float32[6, 1, 16])
                for acc_m_init in unrolled(6):
                    for acc_ni_init in vectorized(16):
                        with block("acc_init", acc_m_=spatial(12, C_m_0*6 + acc_m_init), acc_ni_=spatial(16, acc_ni_init), acc_o0_=spatial(12, C_m_0*6)):
                            acc[acc_m_ - acc_o0_, 0, acc_ni_] = float32(0.0)
                for k in range(8):
                    for acc_m in unrolled(6):
                        for acc_ni in vectorized(16):
                            with block("acc", acc_m_=spatial(12, C_m_0*6 + acc_m), acc_no_=spatial(2, C_n_0), acc_ni_=spatial(16, acc_ni), k_=reduce(8, k), acc_o0_=spatial(12, C_m_0*6)):
                                acc[acc_m_ - acc_o0_, 0, acc_ni_] = add(acc[acc_m_ - acc_o0_, 0, acc_ni_], mul(A[acc_m_, k_], Bp[acc_no_, k_, acc_ni_]))
                for C_m_1 in unrolled(6):
                    for C_n_1 in vectorized(16):
                        with block("C", C_m_=spatial(12, C_m_0*6 + C_m_1), C_n_=spatial(32, C_n_0*16 + C_n_1), acc_o0_=spatial(12, C_m_0*6)):
                            C[C_m_, C_n_] = max(add(acc[C_m_ - acc_o0_, 0, (C_n_ % 16)], bias[C_n_]), float32(0.0))
        """,  # noqa: E501 (text of the IR)
    )


@pytest.mark.parametrize(
    ("m", "n", "k"), [(13, 40, 8), (1, 1, 1), (7, 10, 3), (6, 16, 1), (5, 17, 2), (M, 40, 8), (13, N, 8), (M, N, K)]
)
@pytest.mark.parametrize("columns_first", [False, True])
def test_matmul_with_ragged_tiles(m: IntLike, n: IntLike, k: IntLike, columns_first: bool):
    trace = MATMUL
    if columns_first:
        trace = trace.replace('"C_m_0", "C_n_0",', '"C_n_0", "C_m_0",').replace('loop="C_n_0"', 'loop="C_m_0"')
        trace = trace.replace('parallel("C_m_0")', 'parallel("C_n_0")')
    func = packed_matmul(m, n, k)
    sizes = [{d: s[d] for d in func.dims} for s in SOME]
    check(func, _present(func, trace), None, sizes)


def test_the_main_loop_of_a_peeled_matmul_has_whole_tiles():
    func = packed_matmul(13, 40, 8)
    after = check(func, MATMUL + 'peel("C_m_0")')
    assert "acc_m in unrolled(6)" in str(after)
    check(packed_matmul(M, 40, 3), MATMUL + 'peel("C_m_0")', None, [{"m": v} for v in (1, 6, 7, 17)])


CONV = """
split("Y_w", factors=(None, 4))
split("Y_c", factors=(None, 8))
reorder(("Y_n", "Y_h", "Y_c_0", "Y_w_0", "Y_w_1", "Y_c_1"))
compute_at("acc", loop="Y_w_0")
reorder(("kh", "kw", "ic", "acc_w", "acc_i"))
decompose_reduction("acc", loop="kh")
unroll("acc_w")
vectorize("acc_i")
"""


@pytest.mark.parametrize("padding", ["", 'compute_at("Xp", loop="Y_h")', 'compute_inline("Xp")'])
@pytest.mark.parametrize(("stride", "kernel", "pad"), [(1, 3, 1), (2, 3, 1), (2, 1, 0), (1, 2, 0)])
def test_convolution(padding: str, stride: int, kernel: int, pad: int):
    trace = CONV + padding
    check(conv(6, 7, 2, 11, kernel, stride, pad), _present(conv(6, 7, 2, 11, kernel, stride, pad), trace))


def test_the_padding_stage_of_a_convolution_becomes_a_local_band():
    after = check(conv(6, 7, 2, 11, 3, 2, 1), CONV + 'compute_at("Xp", loop="Y_h")')
    assert "Xp = local(float32[1, 3, 9, 2])" in str(after)


def product_of_open_rows(k: int, n: int) -> Func:
    """C = A @ B of m rows."""
    a, bp = placeholder("A", (M, k), float32), placeholder("Bp", (ceildiv(n, 16), k, 16), float32)
    r = reduce_axis(k, "k")
    acc = compute(
        "acc", (M, ceildiv(n, 16), 16),
        lambda m, no, ni: sum_over(a[m, r] * bp[no, r, ni], r), axis_names=("m", "no", "ni"),
    )  # fmt: skip
    c = compute("C", (M, n), lambda m, n: acc[m, n // 16, n % 16], axis_names=("m", "n"))
    return build_func("product", [a, bp], [c], [acc])


@pytest.mark.parametrize("k", [8, 96])
def test_whole_tiles_of_symbolic_rows_have_no_tests_and_the_partial_one_has(k: int):
    func = product_of_open_rows(k, 272)
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 17, 1 << 23, 2)
    after = default_trace(func, target).apply(func)
    (tail,) = (b.name for b in all_blocks(after) if b.name.startswith("acc_t") and is_reduction(b))
    for name, known in (("acc", True), (tail, False)):
        assert all(x.extent.is_const for x in loops_around(after, name) if x.kind == "unrolled") == known
    rng = np.random.default_rng(0)
    bp = rng.integers(-3, 4, (17, k, 16)).astype(np.float32)
    kernel = build(after)
    for m in (0, 1, 6, 13):
        a = rng.integers(-3, 4, (m, k)).astype(np.float32)
        (got,) = kernel([a, bp], {"m": m}, 2)
        np.testing.assert_array_equal(got, a @ bp.transpose(1, 0, 2).reshape(k, 272))


def test_a_convolution_of_symbolic_size():
    check(
        conv(var("h"), var("w"), 2, 11, 3, 2, 1), CONV + 'compute_at("Xp", loop="Y_h")', None,
        [{"h": 1, "w": 3}, {"h": 6, "w": 8}],
    )  # fmt: skip


@pytest.mark.parametrize(("channels", "order"), [(64, "rows"), (1024, "columns")])
def test_a_filter_a_channel_goes_over_columns_first_where_the_filters_fill_the_first_cache(channels: int, order: str):
    x, w = placeholder("X", (1, 9, 16, channels), float32), placeholder("W", (3, 3, channels), float32)
    kh, kw = reduce_axis(3, "kh"), reduce_axis(3, "kw")
    size = (1, 7, 14, channels)
    acc = compute("acc", size, lambda n, h, q, c: sum_over(x[n, h + kh, q + kw, c] * w[kh, kw, c], kh, kw))
    y = compute("Y", size, lambda n, h, q, c: op("max", acc[n, h, q, c], 0.0))
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 1)
    trace = default_trace(build_func("depthwise", [x, w], [y], [acc]), target).to_text()
    assert f'"acc.order", candidates=("columns", "rows"), decision="{order}"' in trace


def test_the_order_of_a_product_counts_what_is_read_of_its_operands():
    """A ninth of the operand is read and stays in cache while the panels pass once; all of it would not."""
    pixels, depth, panels, stride = 54, 2048, 64, 9
    x, w = placeholder("X", (pixels * stride, depth), float32), placeholder("W", (panels, depth, 16), float32)
    k = reduce_axis(depth, "k")
    acc = compute("acc", (pixels, panels, 16), lambda m, no, ni: sum_over(x[m * stride, k] * w[no, k, ni], k))
    y = compute("Y", (pixels, panels * 16), lambda m, n: op("max", acc[m, n // 16, n % 16], 0.0))
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 1)
    trace = default_trace(build_func("strided", [x, w], [y], [acc]), target).to_text()
    assert '"acc.order", candidates=("columns", "rows"), decision="columns"' in trace


@pytest.mark.parametrize("shape", [(400,), (1, 20, 20)], ids=["rows", "an image"])
def test_each_thread_has_rows_of_its_own_where_the_panels_stay_in_cache(shape: tuple[int, ...]):
    rows, columns, depth = 400, 64, 32
    x, w = placeholder("X", (rows, depth), float32), placeholder("W", (columns // 16, depth, 16), float32)
    k = reduce_axis(depth, "k")
    acc = compute("acc", (rows, columns // 16, 16), lambda m, no, ni: sum_over(x[m, k] * w[no, k, ni], k))

    def result(*i: IntExpr) -> Val:
        at = as_expr(0)
        for p, size in zip(i[:-1], shape, strict=True):
            at = at * size + p
        return op("max", acc[at, i[-1] // 16, i[-1] % 16], 0.0)

    func = build_func("product", [x, w], [compute("Y", (*shape, columns), result)], [acc])
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 2)
    after = default_trace(func, target).apply(func)
    nests = [x for x in walk(after.body) if isinstance(x, Loop) and x.kind == "parallel"]
    assert [x.extent.value() for x in nests] == [8, 4]  # blocks of 8 tiles of 6 rows; panels, for the 16 other rows
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, [int(d) for d in p.shape]).astype(np.float32) for p in (x, w))
    (got,) = build(after)([a, b], {}, 2)
    expected = np.maximum(a @ b.transpose(1, 0, 2).reshape(depth, columns), 0)
    np.testing.assert_array_equal(got.reshape(rows, columns), expected)


@pytest.mark.parametrize(
    ("rows", "threads", "order"),
    [(48, 2, "rows"), (48, 1, "columns"), (53, 2, "columns"), (18, 2, "columns"), (18, 3, "rows")],
)
def test_threads_share_rows_where_both_operands_stay_in_cache(rows: int, threads: int, order: str):
    """Of whole tiles of six rows, if that keeps them as busy as four panels would: eight tiles or three."""
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, threads)
    trace = default_trace(packed_matmul(rows, 64, 96), target).to_text()
    assert f'"acc.order", candidates=("columns", "rows"), decision="{order}"' in trace


@pytest.mark.parametrize(("tiles", "block"), [(14 * 32, 32), (13 * 32 + 2, 16), (20 * 32, 32), (9 * 32, 16)])
def test_blocks_of_rows_leave_no_thread_idle(tiles: int, block: int):
    """Of two threads, the last tile partial: 13 blocks of 32 would leave one of them idle for a seventh of the time."""
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 2)
    trace = default_trace(packed_matmul(6 * tiles - 1, 16, 96), target).to_text()
    assert re.search(rf'"acc.row_block", candidates=.*, decision={block}\)', trace)


def test_no_rows_need_no_blocks():
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 2)
    func = packed_matmul(0, 16, 96)
    assert Schedule(func, default_trace(func, target)).func.outputs == 1


@pytest.mark.parametrize(("rows", "block"), [(8, 8), (6, 6), (7, 1)])
def test_threads_share_rows_of_a_depthwise_convolution_of_many_channels(rows: int, block: int):
    """Of its rows each thread goes through the columns one by one, whose weights do not fit the first-level cache
    together; an odd number of rows cannot be dealt out. Two tiles are a row."""
    x = placeholder("X", (1, rows + 2, 14, 1024), float32)
    w = placeholder("W", (3, 3, 1024), float32)
    kh, kw = reduce_axis(3, "kh"), reduce_axis(3, "kw")
    size = (1, rows, 12, 1024)
    acc = compute("acc", size, lambda n, h, q, c: sum_over(x[n, h + kh, q + kw, c] * w[kh, kw, c], kh, kw))
    y = compute("Y", size, lambda n, h, q, c: op("max", acc[n, h, q, c], 0.0))
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 2)
    func = build_func("depthwise", [x, w], [y], [acc])
    trace = default_trace(func, target)
    order = "rows" if block > 1 else "columns"
    assert f'"acc.order", candidates=("columns", "rows"), decision="{order}"' in trace.to_text()
    assert re.search(rf'"acc.row_block", candidates=.*, decision={block}\)', trace.to_text())
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, [int(d) for d in p.shape]).astype(np.float32) for p in (x, w))
    (got,) = build(trace.apply(func))([a, b], {}, 2)
    taps = [a[:, i : i + rows, j : j + 12] * b[i, j] for i in range(3) for j in range(3)]
    np.testing.assert_array_equal(got, np.maximum(sum(taps), 0))


@pytest.mark.parametrize("rows", [128, 197, 131])
def test_an_operand_too_large_for_the_cache_is_read_in_parts(rows: int):
    func = packed_matmul(rows, 288, 448)
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 18, 1 << 23, 2)
    after = default_trace(func, target).apply(func)
    parts = [x for x in walk(after.body) if isinstance(x, Loop) and x.kind == "parallel"]
    assert [x.extent.value() for x in parts] == [18, 18]  # all panels for each half of the rows
    rng = np.random.default_rng(0)
    a, bp = rng.integers(-3, 4, (rows, 448)).astype(np.float32), rng.integers(-3, 4, (18, 448, 16)).astype(np.float32)
    (got,) = build(after)([a, bp, np.zeros(288, np.float32)], {}, 2)
    np.testing.assert_array_equal(got, np.maximum(a @ bp.transpose(1, 0, 2).reshape(448, 288), 0))


SOFTMAX = """
compute_at("sm", loop="Y_i")
compute_at("ex", loop="Y_i")
compute_at("mx", loop="Y_i")
split("k1", factors=(None, 8))
rfactor("k1_1")
decompose_reduction("mx_rf", loop="k1_0")
vectorize("k1_1")
split("k2", factors=(None, 8))
rfactor("k2_1")
decompose_reduction("sm_rf", loop="k2_0")
vectorize("k2_1")
parallel("Y_i")
"""


@pytest.mark.parametrize("n", [1, 5, 8, 16, 37, N])
def test_softmax(n: IntLike):
    func = softmax_like(3, n)
    check(func, SOFTMAX, None, [{"n": v} for v in (1, 7, 8, 17)] if func.dims else None)


def test_softmax_keeps_a_row_in_local_buffers():
    check(
        softmax_like(M, 16),
        SOFTMAX,
        """
        for Y_i in parallel(m):
            mx = local(float32[1])
            ex = local(float32[1, 16])
            sm = local(float32[1])
            with local(float32[8]) as mx_rf:
                for k1_1_init in range(8):
                    with block("mx_rf_init", k1_1_=spatial(8, k1_1_init)):
                        mx_rf[k1_1_] = float32(-inf)
                for k1_0 in range(2):
                    for k1_1 in vectorized(8):
                        with block("mx_rf", mx_i_=spatial(m, Y_i), k1_1_=spatial(8, k1_1), k1_0_=reduce(2, k1_0)):
                            mx_rf[k1_1_] = max(mx_rf[k1_1_], X[mx_i_, k1_0_*8 + k1_1_])
                for k1_1_r in range(8):
                    with block("mx", mx_i_=spatial(m, Y_i), k1_1_r_=reduce(8, k1_1_r)):
                        init(float32(-inf))
                        mx[0] = max(mx[0], mx_rf[k1_1_r_])
            for ex_j in range(16):
                with block("ex", ex_i_=spatial(m, Y_i), ex_j_=spatial(16, ex_j)):
                    ex[0, ex_j_] = mul(sub(X[ex_i_, ex_j_], mx[0]), float32(2.0))
            with local(float32[8]) as sm_rf:
                for k2_1_init in range(8):
                    with block("sm_rf_init", k2_1_=spatial(8, k2_1_init)):
                        sm_rf[k2_1_] = float32(0.0)
                for k2_0 in range(2):
                    for k2_1 in vectorized(8):
                        with block("sm_rf", sm_i_=spatial(m, Y_i), k2_1_=spatial(8, k2_1), k2_0_=reduce(2, k2_0)):
                            sm_rf[k2_1_] = add(sm_rf[k2_1_], ex[0, k2_0_*8 + k2_1_])
                for k2_1_r in range(8):
                    with block("sm", sm_i_=spatial(m, Y_i), k2_1_r_=reduce(8, k2_1_r)):
                        init(float32(0.0))
                        sm[0] = add(sm[0], sm_rf[k2_1_r_])
            for Y_j in range(16):
                with block("Y", Y_i_=spatial(m, Y_i), Y_j_=spatial(16, Y_j)):
                    Y[Y_i_, Y_j_] = sub(ex[0, Y_j_], sm[0])
        """,
        [{"m": 1}, {"m": 3}],
    )


def _present(func: Func, trace: str) -> str:
    """The trace without the loops that are not there, because a tile is a single point in their dimension."""
    kept: list[str] = []
    for line in trace.strip().splitlines():
        loops = {s.var for s in walk(func.body) if isinstance(s, Loop)}
        if line.startswith("reorder"):
            line = f"reorder({tuple(x for x in re.findall(r'[a-zA-Z_0-9]+', line)[1:] if x in loops)!r})"
        elif (found := re.fullmatch(r'(?:unroll|vectorize)\("(.*)"\)', line)) and found[1] not in loops:
            continue
        kept.append(line)
        func = Trace.from_text(line).apply(func)
    return "\n".join(kept)


def test_pooling_of_a_symbolic_batch_is_tiled_as_one_of_a_known_batch():
    def pooled(batch: IntLike) -> Func:
        x = placeholder("X", (batch, 9, 19, 32), float32)
        kh, kw = reduce_axis(3, "kh"), reduce_axis(3, "kw")
        window = compute("Y", (batch, 4, 9, 32), lambda n, h, w, c: max_over(x[n, h * 2 + kh, w * 2 + kw, c], kh, kw))
        return build_func("pool", [x], [window])

    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 1)
    known, symbolic = (default_trace(pooled(b), target) for b in (3, var("m")))
    assert symbolic.to_text().replace('scope="global"', 'scope="local"') == known.to_text()
    after = check(pooled(var("m")), symbolic.to_text(), None, [{"m": 0}, {"m": 1}, {"m": 3}])
    assert "local(float32[1, 1, 5, 16])" in str(after)


@pytest.mark.parametrize(("channels", "spread"), [(8, False), (800, True)])
def test_the_worth_of_a_parallel_loop_is_the_work_inside(channels: int, spread: bool):
    x, w = placeholder("X", (M, 8), float32), placeholder("W", (8, channels), float32)
    k = reduce_axis(8, "k")
    y = compute("Y", (M, channels), lambda m, n: sum_over(x[m, k] * w[k, n], k))
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 2)
    func = build_func("product", [x, w], [y])
    after = default_trace(func, target).apply(func)
    loop, rest = (s for s in walk(after.body) if isinstance(s, Loop) and s.kind == "parallel")
    worth, of_rest = parallel_condition(after, loop), parallel_condition(after, rest)
    assert worth is not None
    assert of_rest is not None
    assert of_rest.evaluate({"m": 60}) <= of_rest.evaluate({"m": 61}) < worth.evaluate({"m": 60_000})
    assert (worth.evaluate({"m": 60}) > 0) == spread
    assert worth.evaluate({"m": 0}) < 0 < worth.evaluate({"m": 60_000})


@pytest.mark.parametrize("threads", [1, 2])
def test_the_partial_tile_of_a_row_of_symbolic_size_is_separated(threads: int):
    """So that whole tiles have a known size: no minimum is left there."""
    h, w = var("m"), (var("n") + 1) // 2
    x, taps = placeholder("X", (h, w + 2, 16), float32), placeholder("W", (3, 16), float32)
    k = reduce_axis(3, "k")
    acc = compute("acc", (h, w, 16), lambda i, j, c: sum_over(x[i, j + k, c] * taps[k, c], k))
    y = compute("Y", (h, w, 16), lambda i, j, c: op("max", acc[i, j, c], 0.0))
    func = build_func("depthwise", [x, taps], [y], [acc])
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, threads)
    trace = default_trace(func, target).to_text()
    assert 'peel("Y_j_0")' in trace
    after = check(func, trace, None, [{"m": m, "n": n} for m, n in ((1, 1), (2, 11), (3, 12), (1, 26), (0, 4), (2, 0))])
    (rows,) = (s for s in walk(after.body) if isinstance(s, Loop) and s.var == "acc_j")
    assert rows.extent == 6


def test_very_many_rows_are_counted_not_listed():
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 20, 1 << 23, 1)
    assert "split" in default_trace(packed_matmul(1 << 40, 32, 8), target).to_text()


@pytest.mark.parametrize(("dtype", "lanes"), [(dtypes.uint8, 32), (dtypes.float32, 8)])
def test_bytes_from_a_table_are_finished_in_whole_vectors(dtype: DType, lanes: int) -> None:
    t, q = placeholder("T", (256,), dtype), placeholder("Q", (16, 32), dtypes.uint8)
    looked_up = compute("L", (16, 32), lambda i, j: t[q[i, j].cast(dtypes.int64)])
    s = Schedule(build_func("look_up", [t, q], [looked_up]))
    assert lanes_stored(s, "L", 8) == lanes


@pytest.mark.parametrize(("dtype", "rounds", "lanes"), [("uint8", True, 32), ("uint8", False, 8), ("int32", True, 8)])
def test_rounded_bytes_are_finished_in_whole_vectors(dtype: str, rounds: bool, lanes: int) -> None:
    x = placeholder("X", (16, 32), dtypes.float32)
    to = dtypes.from_name(dtype)
    q = compute("Q", (16, 32), lambda i, j: (op("round", x[i, j]) if rounds else x[i, j]).cast(to))
    assert lanes_stored(Schedule(build_func("quantize", [x], [q])), "Q", 8) == lanes


def test_a_result_that_is_read_again_and_again_is_computed_once():
    """The maxima over an axis in the middle are a nest of their own: in a tile of their reader each of its rows would
    compute them anew."""
    x = placeholder("x", (3, 40, 20), float32)
    k = reduce_axis(40, "k")
    top = compute("top", (3, 1, 20), lambda b, r, c: max_over(x[b, k.index, c], k))
    y = compute("y", (3, 40, 20), lambda b, r, c: x[b, r, c] - top[b, 0, c])
    func = build_func("f", [x], [y], stages=[top])
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 1)
    done = default_trace(func, target).apply(func)
    assert not [x.var for x in loops_around(done, "top") if x.var.startswith("y")]
    data = np.random.default_rng(0).standard_normal((3, 40, 20)).astype(np.float32)
    (got,) = build(done)([data])
    np.testing.assert_array_equal(got, data - data.max(1, keepdims=True))


@pytest.mark.parametrize(
    ("batch", "columns", "threads", "vectors"),
    [(1, 256, 1, 8), (1, 256, 2, 8), (1, 128, 2, 8), (1, 64, 4, 2), (6, 64, 4, 8), (1, 96, 1, 12), (1, 100, 1, 2)],
)
def test_one_row_reads_long_runs_of_its_operand(batch: int, columns: int, threads: int, vectors: int):
    """A tile of one row uses nothing twice: as many columns as there are registers, in equal parts, one a thread."""
    a, b = placeholder("a", (batch, 1, 40), float32), placeholder("b", (batch, 40, columns), float32)
    k = reduce_axis(40, "k")
    y = compute("y", (batch, 1, columns), lambda n, m, j: sum_over(a[n, m, k.index] * b[n, k.index, j], k))
    func = build_func("f", [a, b], [y])
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, threads)
    trace = default_trace(func, target)
    assert f"decision={vectors})" in next(x for x in trace.to_text().splitlines() if '"y.vectors"' in x)
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal(s).astype(np.float32) for s in ((batch, 1, 40), (batch, 40, columns)))
    (got,) = build(trace.apply(func))([left, right])
    np.testing.assert_allclose(got, left @ right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("columns", "lanes"), [(1, 1), (2, 2), (3, 4), (5, 8), (6, 8), (8, 16), (9, 16), (16, 16)])
def test_few_columns_of_a_panel_are_one_register(columns: int, lanes: int):
    """Three columns as a vector of two and a number would be two multiply-adds a row, and twice the registers."""
    func = packed_matmul(12, columns, 8)
    target = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 1)
    done = default_trace(func, target).apply(func)
    assert find_buffer(done, "acc").shape[-1] == lanes
    rng = np.random.default_rng(0)
    args = [rng.standard_normal([d.value() for d in p.shape]).astype(np.float32) for p in func.params[: -func.outputs]]
    (got,), (want,) = build(done)(args), interpret(func, args, {})
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
