"""``out_of_range="clamp"``: the nearest element, the same natively, on the host and in the interpreter; and the ways to
ask for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.api.session import InferenceSession
from tilewright.api.session_options import SessionOptions
from tilewright.cli import main
from tilewright.core.errors import InputError
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.api.indexed import CASES, INDEX, Case, loop, plain
from tilewright.tests.api.models import saved

CLAMPED = {n: c for n, c in CASES.items() if c.what != "axes"}
every_case = pytest.mark.parametrize("case", CLAMPED.values(), ids=CLAMPED)


def wrong(case: Case) -> tuple[tuple[int, int], ...]:
    """Indices out of range, and what they are taken for."""
    return (case.high + 1, case.high), (case.low - 1, case.low), (1 << 30, case.high), (-(1 << 31), case.low)


@every_case
def test_the_nearest_element_is_taken(case: Case) -> None:
    proto = plain(case)
    model, strict = tilewright.compile(proto, out_of_range="clamp", threads=2), tilewright.compile(proto)
    for index, nearest in wrong(case):
        want = strict.run(case.feed(nearest))["y"]
        np.testing.assert_array_equal(model.run(case.feed(index))["y"], want)
        if case.op not in ("LSTM", "GRU", "RNN"):  # onnx's own definition takes no notice of lengths
            seen = interpret(from_onnx(proto), case.feed(index), out_of_range="clamp")["y"]
            np.testing.assert_allclose(np.asarray(seen), want, rtol=1e-5, atol=1e-6)


@every_case
def test_constants(case: Case) -> None:
    strict = tilewright.compile(plain(case))
    for index, nearest in wrong(case)[:2]:
        feed = {k: v for k, v in case.feed(index).items() if k != INDEX}
        for level in ("none", "all"):
            model = tilewright.compile(plain(case, index), out_of_range="clamp", opt_level=level)
            np.testing.assert_array_equal(model.run(feed)["y"], strict.run(case.feed(nearest))["y"])


@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("name", ["gather", "gather_a_scalar", "gather_elements", "scatter_elements", "roi_align"])
def test_symbolic_dims(name: str, constant: bool) -> None:
    case = CASES[name]
    index = case.high + 7
    model = tilewright.compile(plain(case, index if constant else None, symbolic=True), out_of_range="clamp")
    feed = {k: v for k, v in case.feed(index).items() if k != INDEX or not constant}
    want = tilewright.compile(plain(case)).run(case.feed(case.high))["y"]
    np.testing.assert_array_equal(model.run(feed)["y"], want)
    axis = int(name == "gather_a_scalar")
    nothing = {**feed, "x": np.ascontiguousarray(feed["x"].take([], axis))}
    with pytest.raises(InputError, match=rf"'node' \({case.op}\): expected {case.what} in \[0, -1\], which is empty"):
        model.run(nothing)


def test_in_a_loop() -> None:
    case = CASES["gather_elements"]
    model = tilewright.compile(loop(case), out_of_range="clamp")
    got = model.run({**case.feed(9), "trips": np.array(2)})["y"]
    np.testing.assert_array_equal(got[1], tilewright.compile(plain(case)).run(case.feed(2))["y"])


def test_axes_are_never_clamped() -> None:
    case = CASES["cum_sum"]
    with pytest.raises(InputError, match=r"expected axes in \[-2, 1\], got 2"):
        tilewright.compile(plain(case), out_of_range="clamp").run(case.feed(2))


def test_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES["gather"]
    with pytest.raises(InputError, match="out_of_range: expected one of error, clamp, got 'wrap'"):
        tilewright.compile(plain(case), out_of_range="wrap")  # type: ignore[call-overload]
    model = tilewright.compile(plain(case))
    assert "indices out of range: an error of the run (1 native checks)" in model.explain()
    clamping = tilewright.compile(plain(case), out_of_range="clamp")
    assert "indices out of range: the nearest element is taken (0 native checks)" in clamping.explain()
    (row,) = InferenceSession(plain(case), SessionOptions(out_of_range="clamp")).run(None, case.feed(9))
    np.testing.assert_array_equal(row[1], case.feed(9)["x"][2])
    path = saved(plain(case), tmp_path)
    np.savez(tmp_path / "x.npz", **case.feed(9))
    command = ["run", path, "--inputs", str(tmp_path / "x.npz")]
    assert main(command) == 2
    assert "InputError: node 'node' (Gather): expected indices in [-3, 2], got 9" in capsys.readouterr().err
    assert main([*command, "--out-of-range", "clamp"]) == 0
    assert main(["verify", *command[1:], "--against", "lowered", "--out-of-range", "clamp"]) == 0
