"""Cells of LSTM and GRU in parts: as exporters write them, other spellings, and what looks so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.passes.base import PassContext
from tilewright.graph_ir.passes.join_steps import JOIN_STEPS
from tilewright.graph_ir.pipeline import run_passes
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.graph_ir.exported import FORMS, Case, read, rewritten
from tilewright.tests.graph_ir.rewriting import as_pass, assert_same_numbers, built, ops, require_fires, require_refused
from tilewright.tests.graph_ir.rules.test_weights import numbers

F = np.float32
Build = Callable[[GraphBuilder], "str | Sequence[str]"]
WIDTH, UNITS = 3, 4
GATES = {"LSTM": 4, "GRU": 3}
ONE_STEP = {
    "LSTM": ["Unsqueeze", "Unsqueeze", "Unsqueeze", "LSTM", "Squeeze", "Squeeze"],
    "GRU": ["Unsqueeze", "Unsqueeze", "GRU", "Squeeze"],
}


def rand(*shape: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed + sum(shape)).standard_normal(shape) / 2).astype(F)


def state(b: GraphBuilder, name: str, width: int = UNITS, batch: int | str = "n", dtype: str = "float32") -> str:
    return b.input(name, dtype, (batch, width))


def product(b: GraphBuilder, x: str, width: int, gates: int, form: str, seed: int, dtype: type = F) -> str:
    """``x @ w + bias``, all gates beside each other."""
    w, bias = rand(gates * UNITS, width, seed=seed).astype(dtype), rand(gates * UNITS, seed=seed).astype(dtype)
    if form == "gemm":
        return b.op("Gemm", x, w, bias, transB=1)
    if form == "scaled":
        return b.op("Gemm", x, w.T.copy(), bias, alpha=0.5, beta=2.0)
    return b.op("Add", bias, b.op("MatMul", x, w.T.copy()))


def parts(b: GraphBuilder, x: str, gates: int, cut: str) -> tuple[str, ...]:
    if cut == "split":
        return b.ops("Split", x, outputs=gates, axis=-1)
    at = [np.array([k * UNITS]) for k in range(gates + 1)]
    return tuple(b.op("Slice", x, at[k], at[k + 1], np.array([1])) for k in range(gates))


def lstm(
    b: GraphBuilder, form: str = "gemm", cut: str = "split", order: str = "ifgo", x: str = "", h: str = "", c: str = "",
    dtype: type = F, cell: bool = True,
) -> tuple[str, ...]:  # fmt: skip
    """One step with the gates in some order."""
    name = np.dtype(dtype).name
    x = x or state(b, "x", WIDTH, dtype=name)
    h, c = h or state(b, "h", dtype=name), c or state(b, "c", dtype=name)
    if form == "joined":
        sums = product(b, b.op("Concat", x, h, axis=1), WIDTH + UNITS, 4, "matmul", 1, dtype)
    elif form == "apart":
        each = [product(b, x, WIDTH, 1, "gemm", k, dtype) for k in range(4)]
        other = [product(b, h, UNITS, 1, "matmul", k + 9, dtype) for k in range(4)]
        return step(b, [b.op("Add", p, q) for p, q in zip(other, each, strict=True)], order, c, cell)
    else:
        sums = b.op("Add", product(b, x, WIDTH, 4, form, 1, dtype), product(b, h, UNITS, 4, form, 2, dtype))
    return step(b, parts(b, sums, 4, cut), order, c, cell)


def step(b: GraphBuilder, gates: Sequence[str], order: str, c: str, cell: bool = True) -> tuple[str, ...]:
    by = dict(zip(order, gates, strict=True))
    i, f, o = (b.op("Sigmoid", by[k]) for k in "ifo")
    new = b.op("Add", b.op("Mul", b.op("Tanh", by["g"]), i), b.op("Mul", f, c))
    out = b.op("Mul", o, b.op("Tanh", new))
    return (out, new) if cell else (out,)


def gru(b: GraphBuilder, form: str = "gemm", cut: str = "split", out: str = "torch", reset: str = "after") -> str:
    x, h = state(b, "x", WIDTH), state(b, "h")
    xr, xz, xn = parts(b, product(b, x, WIDTH, 3, form, 1), 3, cut)
    if reset == "after":
        hr, hz, hn = parts(b, product(b, h, UNITS, 3, form, 2), 3, cut)
    else:
        hr, hz = parts(b, product(b, h, UNITS, 2, form, 2), 2, cut)
    r, z = b.op("Sigmoid", b.op("Add", hr, xr)), b.op("Sigmoid", b.op("Add", xz, hz))
    inner = b.op("Mul", r, hn) if reset == "after" else product(b, b.op("Mul", r, h), UNITS, 1, form, 3)
    return blend(b, z, b.op("Tanh", b.op("Add", xn, inner)), h, out)


def blend(b: GraphBuilder, z: str, n: str, h: str, out: str = "torch") -> str:
    if out == "torch":
        return b.op("Add", b.op("Mul", b.op("Sub", h, n), z), n)
    return b.op("Add", b.op("Mul", b.op("Sub", F(1), z), n), b.op("Mul", z, h))


FIRES: list[tuple[str, Build, list[str]]] = [
    *(
        ("lstm_cell", lambda b, form=form, cut=cut, order=order: lstm(b, form, cut, order), ONE_STEP["LSTM"])
        for form, cut, order in (
            ("gemm", "split", "ifgo"), ("matmul", "slice", "ifgo"), ("scaled", "split", "igfo"), ("apart", "", "ofgi"),
        )
    ),
    ("lstm_cell", lambda b: lstm(b, "joined", "split", "igfo"), ["Unsqueeze"] * 3 + ["LSTM", "Squeeze", "Squeeze"]),
    ("lstm_cell", lambda b: lstm(b, cell=False), ["Unsqueeze"] * 3 + ["LSTM", "Squeeze"]),
    *(
        (
            "gru_cell",
            lambda b, form=form, cut=cut, out=out, reset=reset: gru(b, form, cut, out, reset),
            ONE_STEP["GRU"],
        )
        for form, cut, out, reset in (
            ("gemm", "split", "torch", "after"), ("matmul", "slice", "textbook", "after"),
            ("scaled", "split", "textbook", "before"), ("matmul", "slice", "torch", "before"),
        )
    ),
]  # fmt: skip


def forget_bias(b: GraphBuilder) -> tuple[str, ...]:
    """As TensorFlow's BasicLSTMCell: gates i, g, f, o of both operands joined, and 1 for the forget gate behind it."""
    x, h = state(b, "x", WIDTH), state(b, "h")
    sums = product(b, b.op("Concat", x, h, axis=1), WIDTH + UNITS, 4, "matmul", 1)
    i, g, f, o = parts(b, sums, 4, "split")
    return step(b, (i, g, b.op("Add", f, F(1)), o), "igfo", state(b, "c"))


def behind_a_layer(b: GraphBuilder) -> tuple[str, ...]:
    """A state that a layer without bias gives, and an input of a width that only the weights tell."""
    y, h, c = b.ops("LSTM", b.input("s", "float32", (3, "n", WIDTH)), rand(1, 16, WIDTH), rand(1, 16, UNITS), outputs=3)
    h, c = (b.op("Squeeze", v, np.array([0])) for v in (h, c))
    return (y, *lstm(b, x=b.input("x", "float32", ("n", "k")), h=h, c=c))


FIRES.append(("lstm_cell", forget_bias, ONE_STEP["LSTM"]))


def test_cell_behind_a_layer() -> None:
    graph = built(behind_a_layer)
    ctx = PassContext.for_graph(graph)
    new = as_pass("lstm_cell").apply(graph, ctx)
    assert ops(new).count("LSTM") == 2
    verify_graph(new)
    assert_same_numbers(graph, new, 2e-5, (WIDTH,))


@pytest.mark.parametrize(("name", "build", "want"), FIRES, ids=[f"{k}-{c[0]}" for k, c in enumerate(FIRES)])
def test_rule_fires(name: str, build: Build, want: list[str]) -> None:
    require_fires(build, (name,), want)


def third_value(b: GraphBuilder) -> tuple[str, ...]:
    x, h, u = state(b, "x", WIDTH), state(b, "h"), state(b, "u", 5)
    sums = b.op("Add", product(b, x, WIDTH, 4, "gemm", 1), product(b, h, UNITS, 4, "gemm", 2))
    return step(b, parts(b, b.op("Add", sums, product(b, u, 5, 4, "gemm", 3)), 4, "split"), "ifgo", state(b, "c"))


def one_product(b: GraphBuilder, x: str) -> tuple[str, ...]:
    return step(b, parts(b, product(b, x, WIDTH, 4, "gemm", 1), 4, "split"), "ifgo", state(b, "c"))


def of_one(b: GraphBuilder) -> tuple[str, ...]:
    """The product of one row, repeated for all."""
    x, h = state(b, "x", WIDTH, 1), state(b, "h", batch=5)
    sums = b.op("Add", product(b, x, WIDTH, 4, "gemm", 1), product(b, h, UNITS, 4, "gemm", 2))
    return step(b, parts(b, sums, 4, "split"), "ifgo", state(b, "c", batch=5))


def rows_of_a_constant(b: GraphBuilder) -> tuple[str, ...]:
    x, h = state(b, "x", WIDTH, 2), state(b, "h", batch=2)
    sums = b.op("Add", product(b, x, WIDTH, 4, "gemm", 1), product(b, h, UNITS, 4, "gemm", 2))
    return step(b, parts(b, b.op("Add", sums, rand(2, 4 * UNITS)), 4, "split"), "ifgo", state(b, "c", batch=2))


def weights_of_a_run(b: GraphBuilder) -> tuple[str, ...]:
    w = b.input("w", "float32", (4 * UNITS, WIDTH))
    sums = b.op("Add", b.op("Gemm", state(b, "x", WIDTH), w, transB=1), product(b, state(b, "h"), UNITS, 4, "gemm", 2))
    return step(b, parts(b, sums, 4, "split"), "ifgo", state(b, "c"))


def other_activation(b: GraphBuilder) -> tuple[str, ...]:
    sums = b.op("Relu", product(b, state(b, "x", WIDTH), WIDTH, 4, "gemm", 1))
    return step(b, parts(b, sums, 4, "split"), "ifgo", state(b, "c"))


def no_state(b: GraphBuilder) -> tuple[str, ...]:
    """Two values, neither of them as wide as the state."""
    x, h = state(b, "x", WIDTH), state(b, "h", 5)
    sums = b.op("Add", product(b, x, WIDTH, 4, "gemm", 1), product(b, h, 5, 4, "gemm", 2))
    return step(b, parts(b, sums, 4, "split"), "ifgo", state(b, "c"))


def also_read(b: GraphBuilder) -> tuple[str, ...]:
    x, h = state(b, "x", WIDTH), state(b, "h")
    sums = b.op("Add", product(b, x, WIDTH, 4, "gemm", 1), product(b, h, UNITS, 4, "gemm", 2))
    return (*step(b, parts(b, sums, 4, "split"), "ifgo", state(b, "c")), b.op("Relu", sums))


def gru_parts(b: GraphBuilder, what: str) -> str:
    x, h = state(b, "x", WIDTH, 1 if what == "batch" else "n"), state(b, "h", batch=5 if what == "batch" else "n")
    read = {"besides": state(b, "u", WIDTH), "batch": h, "constant": x}.get(what, x)
    width = UNITS if what == "batch" else WIDTH
    z, r = (b.op("Sigmoid", product(b, read, width, 1, "gemm", k)) for k in (1, 2))
    xn = product(b, x, WIDTH, 1, "gemm", 3)
    if what == "scaled":
        hn = b.op("Add", product(b, h, UNITS, 1, "gemm", 4), product(b, x, WIDTH, 1, "gemm", 5))
    elif what == "constant":
        hn = rand(UNITS)
    else:
        hn = product(b, h, UNITS, 1, "gemm", 4)
    return blend(b, z, b.op("Tanh", b.op("Add", xn, b.op("Mul", r, hn))), h)


def candidate(b: GraphBuilder, gated: bool) -> str:
    """The reset gate in front of the product, with a second product: of the state, in the new one, or of the gated
    state, in the update gate."""
    x, h = state(b, "x", WIDTH), state(b, "h")
    r = b.op("Sigmoid", b.op("Add", product(b, x, WIDTH, 1, "gemm", 1), product(b, h, UNITS, 1, "gemm", 2)))
    kept = b.op("Mul", r, h)
    new = b.op("Add", product(b, x, WIDTH, 1, "gemm", 3), product(b, kept, UNITS, 1, "gemm", 4))
    more = product(b, kept if gated else h, UNITS, 1, "gemm", 5)
    update = product(b, x, WIDTH, 1, "gemm", 6)
    new, update = (new, b.op("Add", update, more)) if gated else (b.op("Add", new, more), update)
    return blend(b, b.op("Sigmoid", update), b.op("Tanh", new), h)


def output_gate(b: GraphBuilder, of: str) -> str:
    """An output gate that looks at the new memory, or at a value that no other gate reads."""
    x, c = state(b, "x", WIDTH), state(b, "c")
    i, f, g = (product(b, x, WIDTH, 1, "gemm", k) for k in range(3))
    new = b.op("Add", b.op("Mul", b.op("Sigmoid", i), b.op("Tanh", g)), b.op("Mul", b.op("Sigmoid", f), c))
    seen = product(b, new if of == "cell" else state(b, "h"), UNITS, 1, "gemm", 4)
    o = b.op("Add", product(b, x, WIDTH, 1, "gemm", 3), seen)
    return b.op("Mul", b.op("Sigmoid", o), b.op("Tanh", new))


STAYS: list[tuple[str, Build, str]] = [
    ("lstm_cell", third_value, "the gates read 3 values, not an input and a state"),
    ("lstm_cell", no_state, "neither value that the gates read has the shape of the new state"),
    ("lstm_cell", lambda b: one_product(b, state(b, "x", WIDTH)), "the gates read one value, and no next cell tells"),
    ("lstm_cell", of_one, "is repeated by a sum"),
    ("lstm_cell", rows_of_a_constant, "differ"),
    ("lstm_cell", weights_of_a_run, "is no product with constant weights"),
    ("lstm_cell", other_activation, "is no product with constant weights"),
    ("lstm_cell", also_read, "is also used elsewhere"),
    ("lstm_cell", lambda b: lstm(b, dtype=np.float64), "onnxruntime has no LSTM of float64"),
    ("lstm_cell", lambda b: lstm(b, c=state(b, "c", 1)), ""),
    ("recognise_cells", lstm, "steps of n sequences are faster as products of these rows"),
    ("gru_cell", lambda b: gru_parts(b, "besides"), "the gates read 2 values besides the state"),
    ("gru_cell", lambda b: gru_parts(b, "scaled"), "the reset gate scales another sum than the product of the state"),
    (
        "gru_cell",
        lambda b: candidate(b, gated=False),
        "the reset gate scales another sum than the product of the state",
    ),
    ("gru_cell", lambda b: candidate(b, gated=True), "the state behind the reset gate is read by another gate"),
    ("lstm_cell", lambda b: output_gate(b, "cell"), "only the output gate reads a value"),
    ("lstm_cell", lambda b: output_gate(b, "other"), "only the output gate reads a value"),
    ("gru_cell", lambda b: gru_parts(b, "constant"), "the gates do not read the state"),
    ("gru_cell", lambda b: gru_parts(b, "batch"), "input and state have other batches"),
]


@pytest.mark.parametrize(("name", "build", "reason"), STAYS, ids=[f"{k}-{c[0]}" for k, c in enumerate(STAYS)])
def test_rule_refuses(name: str, build: Build, reason: str) -> None:
    require_refused(build, name, reason)


LSTM_STEP = (
    " x@ = Gather<axis=1>(x, i@) s@ = Gemm<transB=1>(H, r, d) g@ = Gemm<transB=1>(x@, w, b) a@ = Add(s@, g@)"
    " p@, q@, t@, u@ = Split<axis=1>(a@, sizes) i_@ = Sigmoid(p@) f_@ = Sigmoid(q@) n_@ = Tanh(t@) o_@ = Sigmoid(u@)"
    " k@ = Mul(f_@, C) l@ = Mul(i_@, n_@) c@ = Add(k@, l@) v@ = Tanh(c@) h@ = Mul(o_@, v@)"
)
GRU_STEP = (
    " x@ = Gather<axis=1>(x, i@) g@ = Gemm<transB=1>(x@, w, b) gr@, gz@, gn@ = Split<axis=1>(g@, sizes)"
    " s@ = Gemm<transB=1>(H, r, d) sr@, sz@, sn@ = Split<axis=1>(s@, sizes) ar@ = Add(sr@, gr@) r_@ = Sigmoid(ar@)"
    " az@ = Add(sz@, gz@) z_@ = Sigmoid(az@) k@ = Mul(sn@, r_@) an@ = Add(gn@, k@) n_@ = Tanh(an@) l@ = Sub(H, n_@)"
    " v@ = Mul(l@, z_@) h@ = Add(v@, n_@)"
)


@pytest.mark.parametrize("batch", ["1", "$B"])
@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_loop_over_a_cell_as_torch_writes_it(op: str, batch: str) -> None:
    """``h, c = cell(x[:, t], (h, c))`` from zeros, and a stack of all h: one layer for one sequence in a build."""
    gates, text = GATES[op], {"LSTM": LSTM_STEP, "GRU": GRU_STEP}[op]
    steps = "".join(
        text.replace("@", str(t)).replace("H", f"h{t - 1}" if t else "z").replace("C", f"c{t - 1}" if t else "z")
        for t in range(3)
    )
    constants = ", ".join((
        numbers("w", gates * 4, 3), numbers("b", gates * 4), numbers("r", gates * 4, 4), numbers("dd", gates * 4),
        f"int64[{gates}] sizes = {{{','.join('4' * gates)}}}", "int64[1] i = {0}", "int64[1] e = {1}",
        "int64[1] four = {4}", "int64 i0 = {0}", "int64 i1 = {1}", "int64 i2 = {2}",
    ))  # fmt: skip
    model = (
        f"agraph (float[{batch},3,3] x) => (float[{batch},3,4] y) <{constants}>"
        f" {{ sh = Shape(x) n = Slice(sh, i, e) zs = Concat<axis=0>(n, four) z = ConstantOfShape(zs) {steps}"
        " y0 = Unsqueeze(h0, e) y1 = Unsqueeze(h1, e) y2 = Unsqueeze(h2, e) y = Concat<axis=1>(y0, y1, y2) }"
    ).replace(", d)", ", dd)")
    for form in FORMS:
        _, after, report = rewritten(Case("", model, (), ""), form)
        if batch == "1":
            assert ops(after) == ["Reshape", op, "Reshape"]
            continue
        refused = {"static": "steps of 2 sequences", "dynamic": "steps of b sequences"}[form]
        assert all(r.startswith(refused) for r in report.refusals(f"{op.lower()}_cell"))
        assert op not in ops(after)
    graph = read(model, "dynamic")
    after, _ = run_passes(graph, passes=(*(as_pass(n) for n in ("fold_shapes", f"{op.lower()}_cell")), JOIN_STEPS))
    assert ops(after).count(op) == 1
    assert not {"Gemm", "Gather"} & {*ops(after)}
    assert_same_numbers(graph, after, 2e-5)
