"""Every option of every way in: what is not meant is refused at once, by name, before anything is built."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import tilewright
from tilewright.api.session import InferenceSession
from tilewright.api.session_options import SessionOptions
from tilewright.autotune.network.options import TuneKeywords, TuneOptions
from tilewright.codegen.kernel import build
from tilewright.core import dtypes
from tilewright.core.errors import InputError, TargetError
from tilewright.options import BuildKeywords, BuildOptions, CompileKeywords, CompileOptions
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tests.api.models import convolution, perceptron

WRONG_BUILD = [
    ({"policy": "foo"}, "policy: expected one of exact, compatible, any, got 'foo'"),
    ({"near_misses": "replai"}, "near_misses: expected one of measure, replay, ignore, got 'replai'; did you"),
    ({"stop_after": "lowering"}, "stop_after: expected one of import, passes, fuse, lower, schedule, codegen, got 'l"),
    ({"stop_after": False}, "stop_after: expected one of import, .*, got False"),
    ({"opt_level": 3}, "opt_level: expected one of none, basic, extended, all, got 3"),
    ({"opt_level": "al"}, "opt_level: expected one of none, .*, got 'al'; did you mean 'all'"),
    ({"threads": "2"}, "threads: expected a whole number of at least 1, got '2'"),
    ({"threads": 2.0}, "threads: expected a whole number of at least 1, got 2.0"),
    ({"threads": True}, "threads: expected a whole number of at least 1, got True"),
    ({"disabled_pass": "winogrd"}, "disabled_pass: expected the name of a pass or rule, got 'winogrd'; did you me"),
    ({"enabled_pass": ["winogrd"]}, "enabled_pass: expected the name of a pass or rule, got 'winogrd'"),
    ({"disabled_pass": 5}, "disabled_pass: expected names, got 5"),
    ({"disabled_pass": [5]}, "disabled_pass: expected names, got 5"),
    ({"instruments": 5}, "instruments: expected a list of objects with before and after, got 5"),
    ({"cache": "no"}, "cache: expected True or False, got 'no'"),
    ({"progress": "bar"}, "progress: expected True or False, got 'bar'"),
    ({"require_tuned": 95}, "require_tuned: expected a finite number from 0 to 1, got 95"),
    ({"require_tuned": "0.5"}, "require_tuned: expected a finite number from 0 to 1, got '0.5'"),
    ({"broadcasting": "yes"}, "broadcasting: expected one of lazy, ahead, refuse, only, got 'yes'"),
    ({"out_of_range": "wrap"}, "out_of_range: expected one of error, clamp, got 'wrap'"),
    ({"input_shapes": [1, 32]}, r"input_shapes: expected a dict by name, got list \[1, 32\]"),
    ({"input_shapes": {"batch": 2.5}}, r"input_shapes\['batch'\]: expected sizes in 0..2\*\*40 or names, got 2.5"),
    ({"input_shapes": {"x": (1, None)}}, r"input_shapes\['x'\]: expected sizes in .*, got None"),
    ({"input_shapes": {"x": np.array([1, 32])}}, r"input_shapes\['x'\]: expected sizes in .*, got ndarray"),
    ({"database": 5}, "database: expected a database or paths of logs, got int"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_BUILD)
def test_compile(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        tilewright.compile(perceptron(), **options)  # type: ignore[call-overload]


def test_compile_takes_what_is_meant() -> None:
    x = np.ones((1, 3, 32, 32), np.float32)
    plain = tilewright.compile(convolution(), disabled_pass=["winograd"], threads=2)
    same = tilewright.compile(convolution(), disabled_pass="winograd", threads=np.int64(2), cache=np.True_)  # type: ignore[call-overload]
    np.testing.assert_array_equal(same.run({"x": x})["y"], plain.run({"x": x})["y"])
    assert same.threads == 2
    with pytest.raises(TargetError, match="target: expected text like 'llvm -mcpu=znver4' or a Target, got 5"):
        tilewright.compile(perceptron(), target=5)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "keywords"),
    [(BuildOptions, BuildKeywords), (CompileOptions, CompileKeywords), (TuneOptions, TuneKeywords)],
)
def test_keywords_are_the_fields(options: type, keywords: type) -> None:
    said = {name: type_.__forward_arg__ for name, type_ in keywords.__annotations__.items()}
    assert said == {f.name: f.type for f in fields(options)}


def test_keywords_count_before_the_options() -> None:
    options = CompileOptions(threads=2, opt_level="basic")
    assert tilewright.compile(perceptron(), options).threads == 2
    assert tilewright.compile(perceptron(), options, threads=1).threads == 1
    with pytest.raises(InputError, match=r"^compile: unknown option treads; expected .*; did you mean 'threads'"):
        tilewright.compile(perceptron(), options, treads=1)  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^compile: expected CompileOptions, got TuneOptions"):
        tilewright.compile(perceptron(), TuneOptions())  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time_budget_s": "60"}, "time_budget_s: expected a finite number of at least 0, got '60'"),
        ({"time_budget_s": float("nan")}, "time_budget_s: expected a finite number of at least 0, got nan"),
        ({"max_trials": 2.5}, "max_trials: expected a whole number of at least 0, got 2.5"),
        ({"effort": "norma"}, "effort: expected one of quick, normal, thorough, got 'norma'; did you mean 'normal'"),
        ({"strategy": "anealing"}, "strategy: expected one of annealing, .*, got 'anealing'; did you mean 'annealing'"),
        ({"strategy_params": 5}, "strategy_params: expected a dict by name, got 5"),
        ({"seed": -1}, "seed: expected a whole number of at least 0, got -1"),
        ({"sizes": {"batch": "4"}}, r"sizes\['batch'\]: expected a whole number of at least 0, got '4'"),
        ({"feed": np.ones(3)}, "feed: expected a dict by name, got ndarray"),
        ({"check_network": "no"}, "check_network: expected True or False, got 'no'"),
        ({"on_trial": 5}, "on_trial: expected functions, got 5"),
        ({"on_progress": 5}, "on_progress: expected a function, got 5"),
        ({"opt_level": 3}, "opt_level: expected one of none, basic, extended, all, got 3"),
        ({"threads": "2"}, "threads: expected a whole number of at least 1, got '2'"),
        ({"disabled_pass": [5]}, "disabled_pass: expected names, got 5"),
        ({"work_dir": 5}, "work_dir: expected a path, got 5"),
        ({"trials": 5}, "tune: unknown option trials; expected target, "),
    ],
)
def test_tune(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        tilewright.tune(perceptron(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SessionOptions(graph_optimization_level=7), r"graph_optimization_level: expected one of \[0, .*, got 7"),
        (SessionOptions(graph_optimization_level=True), "graph_optimization_level: expected one of .* got True"),
        (SessionOptions(graph_optimization_level="alll"), "graph_optimization_level: .*'alll'; did you mean 'all'"),
        (SessionOptions(intra_op_num_threads="2"), "intra_op_num_threads: expected a whole number of at least 0"),
        (SessionOptions(free_dimensions={"batch": 2.5}), r"free_dimensions\['batch'\]: expected a whole number"),
        (SessionOptions(enable_profiling=5), "enable_profiling: expected True or False, got 5"),
        ({"intra_op_num_threads": 2}, "sess_options: expected tilewright.SessionOptions, got dict"),
    ],
)  # type: ignore[arg-type]
def test_session(options: SessionOptions, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}"):
        InferenceSession(perceptron(), options)


def test_run() -> None:
    model = tilewright.compile(perceptron())
    x = np.ones((1, 32), np.float32)
    with pytest.raises(InputError, match=r"^inputs: expected a dict of arrays by name, x: float32\[.*\]; got ndarray"):
        model.run(x)  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^inputs: expected a dict of arrays by name, .*; got list"):
        model.run(None, [x])  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^output_names: expected names, got dict"):
        model.run({"x": x}, ["y"])  # type: ignore[call-overload]
    with pytest.raises(InputError, match=r"^input 'x': expected x: .* got list \[\[1\], \[1, 2\]\]"):
        model.run({"x": [[1], [1, 2]]})
    with pytest.raises(InputError, match=r"^runs: expected a whole number of at least 1, got 0"):
        model.profile({"x": x}, runs=0)
    np.testing.assert_array_equal(model.run("y", {"x": x})[0], model.run({"x": x})["y"])


def test_no_names_are_all_outputs() -> None:
    session = InferenceSession(perceptron())
    feed = {"x": np.ones((1, 32), np.float32)}
    (every,) = session.run([], feed)
    np.testing.assert_array_equal(every, session.run(None, feed)[0])


def test_kernels() -> None:
    x = placeholder("X", (4,), dtypes.float32)
    kernel = build(build_func("double", [x], [compute("Y", (4,), lambda i: x[i] + x[i])]), "llvm")
    a = np.ones(4, np.float32)
    assert kernel([a], threads=np.int64(1))[0].tolist() == [2.0] * 4  # type: ignore[arg-type]
    with pytest.raises(InputError, match="double: expected a list of 1 arrays, got ndarray"):
        kernel(a)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="threads: expected a whole number of at least 1, got '2'"):
        kernel([a], threads="2")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="dims: expected a dict by name, got 5"):
        kernel([a], 5)  # type: ignore[arg-type]
    schedule = tilewright.Schedule(kernel.func)
    with pytest.raises(InputError, match="EvaluatorConfig: number: expected a whole number of at least 1, got '3'"):
        schedule.time(number="3")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="EvaluatorConfig: timeout_s: expected a finite number of at least"):
        schedule.time(timeout_s=0)
