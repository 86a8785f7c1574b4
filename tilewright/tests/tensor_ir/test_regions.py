"""Regions of tiled, ragged, packed, strided, padded and gathered accesses."""

from __future__ import annotations

from tilewright.core.intbounds import loop_range
from tilewright.core.intexpr import parse
from tilewright.tensor_ir.analysis.regions import accessed_region, read_region, written_region
from tilewright.tensor_ir.analysis.scopes import find_buffer, find_loop
from tilewright.tensor_ir.text import parse_func


def _texts(region: object) -> list[str]:
    return [f"{a}:{b}" for a, b in region]  # type: ignore[attr-defined]


def _are(*dims: str) -> list[str]:
    return [":".join(str(parse(e)) for e in d.split(":")) for d in dims]


RAGGED = parse_func("""
def f(M: dim, N: dim, acc: float32[M, (N + 15)//16, 16], C: out(float32[M, N])):
    for io in range((M + 5)//6):
        for jo in range((N + 15)//16):
            for ii in range(min(6, M - 6*io)):
                for ji in range(min(16, N - 16*jo)):
                    with block("C", i=spatial(M, 6*io + ii), j=spatial(N, 16*jo + ji)):
                        C[i, j] = acc[i, j//16, j % 16]
""")


def test_packed_accumulator_tile() -> None:
    loop = find_loop(RAGGED, "jo")
    outer = {"io": loop_range(parse("(M + 5)//6")), "jo": loop_range(loop.extent)}
    acc, c = find_buffer(RAGGED, "acc"), find_buffer(RAGGED, "C")
    assert _texts(read_region(loop.body, acc, outer, clip=False)) == _are("6*io:6", "jo:1", "0:16")
    assert _texts(read_region(loop.body, acc, outer)) == _are("6*io:min(-6*io + M, 6)", "jo:1", "0:min(-16*jo + N, 16)")
    assert _texts(written_region(loop.body, c, outer)) == _are("6*io:min(-6*io + M, 6)", "16*jo:min(-16*jo + N, 16)")
    assert read_region(loop.body, c, outer) is None


def test_inner_selects_the_loops_that_run() -> None:
    loop = find_loop(RAGGED, "jo")
    outer = {"io": loop_range(parse("(M + 5)//6")), "jo": loop_range(loop.extent)}
    acc = find_buffer(RAGGED, "acc")
    assert _texts(read_region(loop.body, acc, outer, clip=False, inner=("ji",))) == _are("6*io + ii:1", "jo:1", "0:16")


def test_whole_nest_covers_the_buffer() -> None:
    assert _texts(written_region(RAGGED.body, find_buffer(RAGGED, "C"), {})) == _are("0:M", "0:N")


CONV = parse_func("""
def f(H: dim, X: float32[2*H + 1], W: float32[3], Y: out(float32[H])):
    for ho in range((H + 3)//4):
        for hi in range(min(4, H - 4*ho)):
            for k in range(3):
                with block("Y", h=spatial(H, 4*ho + hi), r=reduce(3, k)):
                    init(float32(0.0))
                    Y[h] = add(Y[h], mul(X[2*h + r], W[r]))
""")


def test_convolution_halo() -> None:
    loop = find_loop(CONV, "ho")
    outer = {"ho": loop_range(loop.extent)}
    x = find_buffer(CONV, "X")
    assert _texts(read_region(loop.body, x, outer, clip=False)) == _are("8*ho:9")
    assert _texts(read_region(loop.body, x, outer)) == _are("8*ho:min(-8*ho + 2*H + 1, 9)")
    assert _texts(accessed_region(loop.body, find_buffer(CONV, "Y"), outer, clip=False)) == _are("4*ho:4")


PADDED = parse_func("""
def f(X: float32[10], Y: out(float32[12])):
    for o in range(3):
        for i in range(4):
            with block("Y", h=spatial(12, 4*o + i)):

                Y[h] = X[h - 1]
""")


def test_padding_is_clipped_to_the_buffer() -> None:
    loop = find_loop(PADDED, "o")
    outer = {"o": loop_range(3)}
    x = find_buffer(PADDED, "X")
    assert _texts(read_region(loop.body, x, outer, clip=False)) == _are("4*o - 1:4")
    region = read_region(loop.body, x, outer)
    assert region is not None
    for o in range(3):
        low, extent = (e.evaluate({"o": o}) for e in region[0])
        touched = [4 * o + i - 1 for i in range(4) if 0 <= 4 * o + i - 1 < 10]
        assert (low, low + extent - 1) == (min(touched), max(touched))


def test_gather_counts_in_full() -> None:
    f = parse_func("""
def f(n: dim, X: float32[5, 4], idx: int64[n], Y: out(float32[n, 4])):
    for i in range(n):
        for j in range(4):
            with block("Y", a=spatial(n, i), b=spatial(4, j)):
                Y[a, b] = X[idx[a], b]
""")
    loop = find_loop(f, "j")
    outer = {"i": loop_range(parse("n"))}
    assert _texts(read_region(loop, find_buffer(f, "X"), outer)) == _are("0:5", "0:4")
    assert _texts(read_region(loop, find_buffer(f, "idx"), outer)) == _are("i:1")
