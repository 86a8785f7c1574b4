"""Denormal numbers: kept or flushed, on every thread, and only during a call; where a profile meets them."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.cli import main
from tilewright.core.errors import InputError, TargetError
from tilewright.core.plan import KernelStep
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.runtime.denormals import count_denormals, made_by_steps
from tilewright.tests import deploy
from tilewright.tests.api.models import saved
from tilewright.tests.cli.test_json import said
from tilewright.tests.deploy.exported import exported, needs_compiler

TINY = np.float32(2.0) ** -120
SIZE = 1 << 18
"""Elements enough for a loop that threads share."""


def _parsed(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]>\ng {text}')


def product() -> onnx.ModelProto:
    """z = (x * y) * s: the product of two small numbers is a denormal one, which ``s`` makes a normal one again."""
    return _parsed(
        f"(float[{SIZE}] x, float[{SIZE}] y, float[1] s) => (float[{SIZE}] z) {{ p = Mul(x, y) z = Mul(p, s) }}"
    )


def _feed() -> dict[str, np.ndarray]:
    """Products of about 2**-130; a normal number is at least 2**-126."""
    return {
        "x": np.full(SIZE, TINY), "y": np.full(SIZE, np.float32(2.0**-10)), "s": np.array([2.0**100], np.float32),
    }  # fmt: skip


KEPT = np.float32(2.0**-30)


@pytest.mark.parametrize("threads", [1, 2])
def test_kept_or_flushed(threads: int) -> None:
    keep = tilewright.compile(product(), threads=threads)
    flush = tilewright.compile(product(), threads=threads, denormals="flush")
    for _ in range(3):  # one after the other on the same threads
        assert (keep.run(_feed())["z"] == KEPT).all()
        assert (flush.run(_feed())["z"] == 0).all()


def test_operands_are_taken_for_zero() -> None:
    text = "(float[n] x, float[1] s) => (float[n] z) { z = Mul(x, s) }"
    feed = {"x": np.full(7, 2.0**-130, np.float32), "s": np.array([2.0**100], np.float32)}
    assert (tilewright.compile(_parsed(text)).run(feed)["z"] == KEPT).all()
    assert (tilewright.compile(_parsed(text), denormals="flush").run(feed)["z"] == 0).all()


def test_the_thread_that_calls_is_as_before() -> None:
    flush = tilewright.compile(product(), threads=2, denormals="flush")
    flush.run(_feed())
    assert (np.full(64, TINY) * np.float32(2.0**-10) > 0).all()
    text = "(float[4] x, int64[1] i) => (float[1] z) { p = Mul(x, x) z = Gather(p, i) }"
    failing = tilewright.compile(_parsed(text), denormals="flush")
    with pytest.raises(InputError, match="expected indices in"):
        failing.run({"x": np.ones(4, np.float32), "i": np.array([9], np.int64)})
    assert (np.full(64, TINY) * np.float32(2.0**-10) > 0).all()


def test_callers_of_both_at_once() -> None:
    models = {KEPT: tilewright.compile(product(), threads=2),
              np.float32(0): tilewright.compile(product(), threads=2, denormals="flush")}  # fmt: skip
    wrong: list[float] = []

    def call(want: np.float32) -> None:
        for _ in range(20):
            if not (models[want].run(_feed())["z"] == want).all():
                wrong.append(float(want))

    callers = [threading.Thread(target=call, args=(want,)) for want in (*models, *models)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert not wrong


def products() -> onnx.ModelProto:
    """A loop that multiplies its state by each row."""
    return _parsed("""(float[n,4] x, float[4] s) => (float[4] last, float[n,4] y) {
      last, y = Scan<num_scan_inputs=1, body = b (float[4] c, float[4] v) => (float[4] d, float[4] o) {
        d = Mul(c, v)
        o = Identity(d)
      }>(s, x)
    }""")


def test_loops() -> None:
    feed = {"x": np.full((2, 4), np.float32(2.0**-65)), "s": np.ones(4, np.float32)}
    kept = tilewright.compile(products()).run(feed)["last"]
    assert (kept == np.float32(2.0**-130)).all()
    assert (tilewright.compile(products(), denormals="flush").run(feed)["last"] == 0).all()


@needs_compiler
@pytest.mark.parametrize("threads", [1, 2])
def test_artifacts(threads: int) -> None:
    for denormals, want in (("keep", KEPT), ("flush", np.float32(0))):
        model = tilewright.compile(product(), threads=threads, denormals=denormals)  # type: ignore[arg-type]
        artifact = exported(model, threads=threads)
        assert (artifact.run(_feed())["z"] == want).all()
    assert (np.full(64, TINY) * np.float32(2.0**-10) > 0).all()


@needs_compiler
@pytest.mark.skipif(shutil.which("cc") is None or os.name == "nt", reason="needs cc and pthreads")
@pytest.mark.parametrize("denormals", ["keep", "flush"])
def test_artifacts_on_threads_of_the_caller(denormals: Literal["keep", "flush"], tmp_path: Path) -> None:
    model = tilewright.compile(product(), threads=2, denormals=denormals)
    assert any(s.parallel for s in model.plan.steps if isinstance(s, KernelStep))
    model.export(tmp_path / "libmodel.so")
    source = Path(deploy.__file__).with_name("denormals.c")
    places = [f"-I{tilewright.get_include()}", f"-Wl,-rpath,{tmp_path}"]
    words = [
        "cc",
        "-std=c11",
        "-pthread",
        str(source),
        str(tmp_path / "libmodel.so"),
        *places,
        "-o",
        str(tmp_path / "program"),
    ]
    subprocess.run(words, check=True)
    run = subprocess.run([tmp_path / "program", str(SIZE)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(SIZE if denormals == "flush" else 0), "0", "0", "1"]


def test_options() -> None:
    with pytest.raises(InputError, match="denormals: expected one of keep, flush, got 'zero'"):
        tilewright.compile(product(), denormals="zero")  # type: ignore[arg-type]
    with pytest.raises(TargetError, match=r'denormals="flush": expected an x86 or 64-bit Arm CPU, got riscv64'):
        tilewright.compile(
            product(), target="llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64", denormals="flush"
        )


def test_sessions_take_the_entry() -> None:
    options = tilewright.SessionOptions()
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    session = tilewright.InferenceSession(product().SerializeToString(), options)
    assert (session.run(None, _feed())[0] == 0).all()
    options.config_entries["session.set_denormal_as_zero"] = "yes"
    with pytest.raises(InputError, match=r"session.set_denormal_as_zero: expected one of 0, 1, got 'yes'"):
        options.denormals()


# -- where they are --------------------------------------------------------------------------------------------------
def test_counts() -> None:
    assert count_denormals(np.array([0, -0.0, 1e-40, -1e-40, 1e-38, 1, np.nan, np.inf], np.float32)) == 3
    assert count_denormals(np.array([1e-310, 1e-300])) == 1
    assert count_denormals(np.array([1], np.int64)) == count_denormals("text") == 0


def two_results() -> onnx.ModelProto:
    """p = x * x, which is denormal where x is small, and its largest numbers."""
    return _parsed(
        "(float[4,64] x) => (float[4,1] z, float[4,64] p) <int64[1] a = {1}> "
        "{ p = Mul(x, x) z = ReduceMax<keepdims=1>(p, a) }"
    )


def test_a_profile_names_the_kernel(caplog: pytest.LogCaptureFixture) -> None:
    model = tilewright.compile(two_results())
    x = np.ones((4, 64), np.float32)
    x[:, :3] = 2.0**-65
    with caplog.at_level(logging.WARNING, logger="tilewright"):
        found = model.profile({"x": x}, 1)
    (row,) = found.denormals
    assert row.count == 12
    assert row.kernel in {k.kernel for k in found.kernels}
    assert f"denormal numbers, slow on some CPUs: 12 of {row.elements} in {row.kernel}" in str(found)
    assert 'denormals="flush"' in caplog.text
    flushed = tilewright.compile(two_results(), denormals="flush").profile({"x": x}, 1)
    assert flushed.denormals == ()


def test_inputs_and_constants_count() -> None:
    text = "(float[3] x) => (float[3] z) <float[3] c = {1e-40, 1, 1}> { z = Add(x, c) }"
    found = tilewright.compile(_parsed(text)).denormals({"x": np.array([1e-40, 1e-41, 1], np.float32)})
    assert {(d.count, d.elements, bool(d.kernel)) for d in found} == {(2, 3, False), (1, 3, False), (1, 3, True)}


def test_what_a_loop_gives_counts() -> None:
    feed = {"x": np.full((2, 4), np.float32(2.0**-65)), "s": np.ones(4, np.float32)}
    (found,) = tilewright.compile(products()).denormals(feed)
    assert (found.kernel, found.count, found.elements) == ("Scan", 8, 12)


def test_what_a_step_makes() -> None:
    plan = tilewright.compile(two_results()).plan
    made = [n for names in made_by_steps(plan).values() for n in names]
    assert len(made) == len(set(made))
    assert set(plan.outputs) <= set(made)


def test_a_border_is_not_what_lies_inside_of_it() -> None:
    b = GraphBuilder()
    x = b.input("x", "float32", (1, 8, 9, 9))
    r = b.op("Relu", b.op("Conv", x, np.ones((16, 8, 1, 1), np.float32)))
    plan = tilewright.compile(b.build(b.op("Conv", r, np.ones((16, 16, 3, 3), np.float32), pads=(1, 1, 1, 1)))).plan
    (border,) = (i for i, s in enumerate(plan.steps) if isinstance(s, KernelStep) and "border" in s.kernel)
    made = made_by_steps(plan)
    assert not made.get(border)
    assert any(made.get(i) for i in range(border + 1, len(plan.steps)))


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(two_results(), tmp_path)
    np.savez(tmp_path / "x.npz", x=np.full((4, 64), np.float32(2.0**-65)))
    words = ("profile", path, "--inputs", str(tmp_path / "x.npz"), "--runs", "1")
    assert said(capsys, *words)["denormals"]
    assert said(capsys, *words, "--denormals", "flush")["denormals"] == []
    assert main(list(words)) == 0
    assert "tilewright: profile: denormal numbers, " in capsys.readouterr().err
