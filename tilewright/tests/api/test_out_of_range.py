"""Indices out of range, operator by operator: at build time, at run time, in branches and loops, and as the interpreter
and onnxruntime have it."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.frontend import from_onnx
from tilewright.graph_ir.interpreter import interpret
from tilewright.inspect.ort import OnnxRuntimeError, open_session, translated_errors
from tilewright.tests.api.indexed import CASES, INDEX, Case, Feed, branch, loop, plain

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
FIXED = {"unsqueeze", "reduce_sum", "cum_sum"}
"""Operators whose range follows from the rank alone."""


def wrong(case: Case) -> tuple[int, ...]:
    return case.high + 1, case.low - 1, 1 << 30, -(1 << 31)


def fine(case: Case) -> tuple[int, ...]:
    return tuple(dict.fromkeys((case.low, 0, case.high)))


def theirs(model: onnx.ModelProto, feed: Feed) -> np.ndarray:
    session = open_session(model, 1)
    assert session is not None
    with translated_errors():
        return np.asarray(session.run(None, feed)[0])


def require_error(model: tilewright.CompiledModel, case: Case, index: int, **more: np.ndarray) -> None:
    with pytest.raises(InputError, match=re.escape(f"{case.where()}{index}") + "$"):
        model.run({**case.feed(index), **more})


@every_case
def test_at_run_time(case: Case) -> None:
    proto = plain(case)
    graph = from_onnx(proto)
    models = [tilewright.compile(proto, threads=t) for t in (1, 2)]
    for _ in range(2):
        for index in fine(case):
            want = theirs(proto, case.feed(index))
            for model in models:
                np.testing.assert_allclose(model.run(case.feed(index))["y"], want, rtol=1e-5, atol=1e-6)
        for index in wrong(case):
            for model in models:
                require_error(model, case, index)
    for index in wrong(case):
        with pytest.raises(InputError, match=re.escape(f"{case.where()}{index}")):
            interpret(graph, case.feed(index))
        with pytest.raises(OnnxRuntimeError):
            theirs(proto, case.feed(index))


@every_case
def test_constants(case: Case) -> None:
    for index in wrong(case)[:2]:
        with pytest.raises(ModelError, match=re.escape(f"'node' ({case.op}): expected ")):
            tilewright.compile(plain(case, index))
    for index in fine(case):
        proto = plain(case, index)
        feed = {k: v for k, v in case.feed(index).items() if k != INDEX}
        for level in ("none", "all"):
            got = tilewright.compile(proto, opt_level=level).run(feed)["y"]
            np.testing.assert_allclose(got, theirs(proto, feed), rtol=1e-5, atol=1e-6)


@every_case
def test_in_a_branch(case: Case) -> None:
    yes, no = np.array(True), np.array(False)
    model = tilewright.compile(branch(case))
    for index in wrong(case)[:2]:
        require_error(model, case, index, go=yes)
        model.run({**case.feed(index), "go": no})  # a branch may be there to avoid it
    other = model.run({**case.feed(0), "go": no})["y"]
    np.testing.assert_array_equal(model.run({**case.feed(0), "go": yes})["y"], other)


@every_case
def test_in_a_loop(case: Case) -> None:
    model = tilewright.compile(loop(case), threads=2)
    for index in wrong(case)[:2]:
        require_error(model, case, index, trips=np.array(3))
        assert len(model.run({**case.feed(index), "trips": np.array(0)})["y"]) == 0
    want = theirs(plain(case), case.feed(case.high))
    got = model.run({**case.feed(case.high), "trips": np.array(3)})["y"]
    np.testing.assert_allclose(got, np.stack([want] * 3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", [n for n in CASES if n not in FIXED])
def test_constants_in_a_branch_and_a_loop(name: str) -> None:
    """A model is valid if it never gets there."""
    case = CASES[name]
    index = case.high + 1
    feed = {k: v for k, v in case.feed(index).items() if k != INDEX}
    for make, key, yes, no in ((branch, "go", True, False), (loop, "trips", 2, 0)):
        model = tilewright.compile(make(case, index))
        model.run({**feed, key: np.array(no)})
        with pytest.raises(InputError, match=re.escape(f"{case.where()}{index}")):
            model.run({**feed, key: np.array(yes)})


@pytest.mark.parametrize("name", ["gather", "gather_a_scalar", "gather_matrix", "gather_elements", "gather_nd",
                                  "gather_nd_batch", "scatter_elements", "scatter_nd", "scatter_nd_rows",
                                  "reverse_sequence", "roi_align"])  # fmt: skip
@pytest.mark.parametrize("constant", [False, True])
def test_symbolic_dims(name: str, constant: bool) -> None:
    """One build; the range is that of the call."""
    case = CASES[name]
    index = case.high
    model = tilewright.compile(plain(case, index if constant else None, symbolic=True), threads=2)
    feed = {k: v for k, v in case.feed(index).items() if k != INDEX or not constant}
    np.testing.assert_allclose(model.run(feed)["y"], theirs(plain(case), case.feed(index)), rtol=1e-5, atol=1e-6)
    axis = int(name in ("scatter_nd", "gather_nd", "gather_a_scalar", "gather_matrix", "gather_nd_batch"))
    small = {**feed, "x": np.ascontiguousarray(np.delete(feed["x"], -1, axis))}
    low = case.low + 1 if case.low else 0
    with pytest.raises(InputError, match=re.escape(f"in [{low}, {case.high - 1}], got {index}")):
        model.run(small)
    model.run(feed)
