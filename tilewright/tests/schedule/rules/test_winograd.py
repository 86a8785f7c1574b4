"""The rule for tiles that are transformed, multiplied and transformed back: strips, all tiles at once, decisions."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntLike, as_expr, ceildiv, var
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.machine.target import Target
from tilewright.schedule.decisions import DefaultDecider
from tilewright.schedule.default import default_trace, schedule_by_rule
from tilewright.schedule.rules import winograd
from tilewright.schedule.rules.winograd import find_winograd
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.analysis.scopes import blocks_in, buffers
from tilewright.tensor_ir.compute import build_func, compute, op, placeholder, reduce_axis, select, sum_over
from tilewright.tensor_ir.compute import index_value as index
from tilewright.tensor_ir.interpreter import interpret
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.lowering.lowered import lower

TARGET = Target("x86_64-unknown-linux-gnu", "haswell", "+avx2,+fma", 256, 16, 32768, 1 << 19, 1 << 23, 2)


def short_filter(n: IntLike, length: IntLike, channels: int, out: int) -> Func:
    """Filters of three taps along rows, two results from four inputs with four products instead of six."""
    tiles = ceildiv(as_expr(length), 2)
    x = placeholder("X", (n, tiles * 2 + 4, channels), dtypes.float32)
    u = placeholder("U", (ceildiv(as_expr(out), 8), 4, channels, 8), dtypes.float32)

    def pick(i, values):  # type: ignore[no-untyped-def]
        value = values[-1]
        for k in range(len(values) - 2, -1, -1):
            value = select(index(i).equal(k), values[k], value)
        return value

    def wide(p, a, c):  # type: ignore[no-untyped-def]
        d = [x[p // tiles, (p % tiles) * 2 + a + k, c] for k in range(3)]
        return d[0] + d[1] + d[2]

    def before(i, p, c):  # type: ignore[no-untyped-def]
        d = [first[p, a, c] for a in range(4)]
        return pick(i, [d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]])

    def after(p, a, c):  # type: ignore[no-untyped-def]
        m = [products[i, p, c // 8, c % 8] for i in range(4)]
        return pick(a, [m[0] + m[1] + m[2], m[1] - m[2] - m[3]])

    count = n * tiles
    first = compute("F", (count, 4, channels), wide)
    v = compute("V", (4, count, channels), before)
    k = reduce_axis(channels, "k")
    products = compute(
        "M", (4, count, ceildiv(as_expr(out), 8), 8), lambda i, p, no, ni: sum_over(v[i, p, k] * u[no, i, k, ni], k)
    )
    y = compute("Y", (count, 2, out), after)
    result = compute("R", (n, length, out), lambda b, t, c: op("max", y[b * tiles + t // 2, t % 2, c], 0.0))
    return build_func("short_filter", [x, u], [result], [first, v, products, y])


class Pick:
    """Takes the given choices by the end of their labels, and the default of others."""

    def __init__(self, **choices: int | str) -> None:
        self.choices = choices
        self.asked: dict[str, Sequence[object]] = {}

    def choose(self, label: str, candidates: Sequence[object], default: object) -> object:
        self.asked[label] = candidates
        return self.choices.get(label.split(".")[-1], default)


def require_twin(func: Func, after: Func, **dims: int) -> None:
    verify(after)
    assert parse_func(str(after)) == after
    rng = np.random.default_rng(0)
    args = [rng.standard_normal([d.evaluate(dims) for d in p.shape]).astype(np.float32) for p in func.params[:-1]]
    np.testing.assert_array_equal(interpret(after, args, dims)[0], interpret(func, args, dims)[0])


def test_the_convolution_is_found_by_structure() -> None:
    (conv,) = find_winograd(short_filter(1, 8, 4, 8))
    assert (conv.source, conv.before, conv.product, conv.after) == (None, ("F", "V"), "M", ("Y",))


@pytest.mark.parametrize(
    "size", [(1, 40, 16, 16), (1, 7, 3, 5), (2, 13, 5, 17), (1, 2, 4, 8), (3, 1, 2, 1), (1, 32, 8, 24)]
)
@pytest.mark.parametrize("threads", [1, 2])
def test_default_trace(size: tuple[int, int, int, int], threads: int) -> None:
    func = short_filter(*size)
    trace = default_trace(func, TARGET.with_threads(threads))
    assert Trace.from_text(trace.to_text()) == trace
    require_twin(func, trace.apply(func))


@pytest.mark.parametrize("strip", [4, 5, 10, 20])
@pytest.mark.parametrize("rows", [1, 3, 6])
def test_every_decision_keeps_the_values(strip: int, rows: int) -> None:
    func = short_filter(1, 40, 16, 16)
    decider = Pick(strip=strip, rows=min(rows, strip))
    s = schedule_by_rule(func, TARGET, decider)  # type: ignore[arg-type]
    assert f'"M.strip", candidates=(4, 5, 7, 10, 20), decision={strip}' in s.trace.to_text()
    require_twin(func, s.func)


@pytest.mark.parametrize(("threads", "strip"), [(1, 40), (2, 20), (3, 5), (4, 10), (8, 5)])
def test_strips_keep_all_threads_busy(threads: int, strip: int) -> None:
    text = default_trace(short_filter(1, 80, 16, 16), TARGET.with_threads(threads)).to_text()
    assert f'"M.strip", candidates=(4, 5, 6, 7, 8, 10, 14, 20, 40), decision={strip}' in text


@pytest.mark.parametrize(("images", "threads", "strip"), [(3, 2, 11), (3, 1, 21), (4, 2, 14), (5, 2, 18), (7, 3, 17)])
def test_strips_are_equal_shares_where_rows_of_tiles_are_not(images: int, threads: int, strip: int) -> None:
    func = short_filter(images, 14, 16, 16)  # seven tiles each
    trace = default_trace(func, TARGET.with_threads(threads))
    assert f"decision={strip})" in next(line for line in trace.to_text().splitlines() if '"M.strip"' in line)
    require_twin(func, trace.apply(func))


SYMBOLIC = {
    "length": short_filter(1, var("t"), 16, 16), "both": short_filter(var("n"), var("t"), 5, 17),
    "batch": short_filter(var("n"), 40, 16, 16), "odd": short_filter(var("n"), 13, 3, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", SYMBOLIC)
@pytest.mark.parametrize("threads", [1, 2])
def test_symbolic_sizes(name: str, threads: int) -> None:
    func = SYMBOLIC[name]
    trace = default_trace(func, TARGET.with_threads(threads))
    assert Trace.from_text(trace.to_text()) == trace
    after = trace.apply(func)
    for n, t in [(1, 1), (1, 2), (2, 5), (3, 7), (1, 48), (2, 49), (0, 4), (2, 0)]:
        require_twin(func, after, **{k: v for k, v in {"n": n, "t": t}.items() if k in func.dims})


@pytest.mark.parametrize("strip", [0, 14, 28])
@pytest.mark.parametrize("rows", [1, 5, 14, 16])
def test_every_decision_keeps_the_values_of_symbolic_sizes(strip: int, rows: int) -> None:
    func = SYMBOLIC["both"]
    decider = Pick(strip=strip, rows=min(rows, strip or rows))
    s = schedule_by_rule(func, TARGET, decider)  # type: ignore[arg-type]
    assert strip in decider.asked["M.strip"]
    assert decider.choices["rows"] in decider.asked["M.rows"]
    for n, t in [(1, 3), (2, 49), (5, 1)]:
        require_twin(func, s.func, n=n, t=t)


def test_a_strip_of_a_symbolic_number_of_tiles_is_local_too() -> None:
    s = schedule_by_rule(SYMBOLIC["length"], TARGET, Pick(strip=28))  # type: ignore[arg-type]
    text = str(s.func)
    assert "V = local(float32[4, 28, 16])" in text
    assert "M = local(float32[4, 28, 1, 8])" in text
    assert "in parallel(" in text
    assert "for M_p in unrolled(14):" in text  # whole register tiles without tests
    assert "for M_p_t in unrolled(" in text


def test_a_symbolic_batch_keeps_the_strips_of_an_image() -> None:
    decider = Pick()
    schedule_by_rule(SYMBOLIC["batch"], TARGET, decider)  # type: ignore[arg-type]
    assert decider.asked["M.strip"] == (0, 4, 5, 7, 10, 20)


def test_a_strip_keeps_its_operand_and_products_local() -> None:
    func = short_filter(1, 64, 16, 16)
    text = str(schedule_by_rule(func, TARGET, Pick(strip=8)).func)  # type: ignore[arg-type]
    assert "V = local(float32[4, 8, 16])" in text
    assert "M = local(float32[4, 8, 1, 8])" in text
    whole = str(schedule_by_rule(func, TARGET, Pick(strip=32)).func)  # type: ignore[arg-type]
    assert "V = shared(float32[4, 32, 16])" in whole


def test_all_tiles_at_once_fetch_the_next_panel_of_large_weights() -> None:
    func = short_filter(1, 40, 16, 16)
    small = dataclasses.replace(TARGET, l2_bytes=1024, threads=1)
    s = schedule_by_rule(func, small, Pick(strip=20))  # type: ignore[arg-type]
    assert 'key="prefetch", value="U"' in s.trace.to_text()
    require_twin(func, s.func)
    assert "prefetch" not in schedule_by_rule(func, TARGET, Pick(strip=20)).trace.to_text()  # type: ignore[arg-type]


def test_others_compute_what_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven tiles of an image in memory for three: no strip, no panel, and the same results."""
    monkeypatch.setattr(winograd, "LOCAL_BYTES", 400)
    func, taken = short_filter(2, 13, 5, 17), dict[str, str]()
    s = schedule_by_rule(func, TARGET, Pick(strip=14, results="panel"), taken=taken)  # type: ignore[arg-type]
    assert "winograd" not in taken.values()
    require_twin(func, s.func)


@pytest.mark.parametrize(
    ("size", "room"),
    [
        *itertools.product([(1, 40, 16, 16), (2, 13, 5, 17), (3, 24, 2, 9)], [1 << 18, 1 << 11]),
        ((1, 40, 16, 16), 400),
        ((3, 24, 2, 9), 400),
    ],
)
def test_products_are_transformed_back_by_panels(
    size: tuple[int, int, int, int], room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(winograd, "LOCAL_BYTES", room)
    func = short_filter(*size)
    tiles = size[0] * -(-size[1] // 2)
    taken: dict[str, str] = {}
    s = schedule_by_rule(func, TARGET, Pick(strip=tiles, results="panel"), taken=taken)  # type: ignore[arg-type]
    assert set(taken.values()) == {"winograd"}
    held = [b for b in buffers(s.func) if b.name == "M"]
    assert [b.scope for b in held] == ["local"]
    sizes = [d.value() or 0 for d in held[0].shape]
    assert sizes[-2] == 1
    assert 4 * math.prod(sizes) <= room
    require_twin(func, s.func)


def test_many_tiles_are_transformed_back_by_panels() -> None:
    for tiles, cache, own in ((63, 1 << 16, "all"), (64, 1 << 16, "panel"), (64, 1 << 14, "all")):
        func = short_filter(1, 2 * tiles, 16, 16)
        s = schedule_by_rule(func, dataclasses.replace(TARGET, l2_bytes=cache), Pick(strip=tiles))  # type: ignore[arg-type]
        assert f'"M.results", candidates=("all", "panel"), decision="{own}"' in s.trace.to_text()


def strassen(shape: tuple[int, ...], columns: int) -> Func:
    """A product by Strassen's algorithm, with an epilogue."""
    b = GraphBuilder("g")
    w = np.ones((shape[-1], columns), np.float32)
    y = b.op("MatMul", b.input("x", "float32", shape), w, implementation="strassen")
    return lower(b.build(b.op("Relu", y))).func


@pytest.mark.parametrize("shape", [(8, 32), (9, 18), (2, 7, 8), (1, 130, 6)])
@pytest.mark.parametrize("choices", [{}, {"results": "all"}, {"results": "panel"}, {"strip": 13}], ids=str)
def test_columns_in_groups(shape: tuple[int, ...], choices: dict[str, int | str]) -> None:
    func = strassen(shape, 80)
    (conv,) = find_winograd(func)
    assert (conv.before, conv.product, conv.after) == (("V",), "M", ("Y",))
    decider = Pick(**(choices if shape[-2] == 130 else {k: v for k, v in choices.items() if k != "strip"}))
    s = schedule_by_rule(func, TARGET, decider)  # type: ignore[arg-type]
    assert "M.strip" in s.trace.to_text()
    require_twin(func, s.func)


def test_the_epilogue_is_in_the_same_nest() -> None:
    names = [b.name for b in blocks_in(schedule_by_rule(short_filter(1, 8, 4, 8), TARGET, DefaultDecider()).func.body)]
    assert names[-2:] == ["Y", "R"]


def test_a_product_that_nothing_combines_is_left_alone() -> None:
    a, w = placeholder("A", (8, 4), dtypes.float32), placeholder("W", (1, 4, 8), dtypes.float32)
    k = reduce_axis(4, "k")
    acc = compute("acc", (8, 1, 8), lambda m, no, ni: sum_over(a[m, k] * w[no, k, ni], k))
    c = compute("C", (8, 8), lambda m, n: acc[m, n // 8, n % 8])
    assert find_winograd(build_func("product", [a, w], [c], [acc])) == []
