"""Tasks: what identifies them, and what they refuse."""

from __future__ import annotations

import pytest

from tilewright.autotune.base.task import Task
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.ir import Func
from tilewright.tests.autotune.measure.measuring import matmul, task


def doubled(name: str, array: str, size: int) -> Func:
    a = placeholder(array, (size,), dtypes.float32)
    return build_func(name, [a], [compute(f"{array}_twice", (size,), lambda i: a[i] + a[i])])


def test_names_do_not_matter() -> None:
    assert task(doubled("f", "A", 8)).workload == task(doubled("g", "input_12", 8)).workload
    assert task(doubled("f", "A", 8)).workload != task(doubled("f", "A", 9)).workload


def test_name_is_that_of_the_function() -> None:
    assert task(matmul(name="mm")).name == "mm"
    assert Task(matmul(), detect_host(), name="layer 3").name == "layer 3"


def test_every_dim_needs_a_size() -> None:
    a = placeholder("A", (var("n"),), dtypes.float32)
    func = build_func("f", [a], [compute("B", (var("n"),), lambda i: a[i] + 1.0)])
    with pytest.raises(InputError, match="task f: expected a size for every dim, got none for n"):
        Task(func, detect_host())
    assert Task(func, detect_host(), {"n": 4}).dims == {"n": 4}
