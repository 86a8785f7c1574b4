"""Workloads: names do not matter, everything else does."""

from __future__ import annotations

import dataclasses

from tilewright.autotune.base.workload import canonical, differences, distance, workload_of
from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.tensor_ir.compute import build_func, compute, placeholder
from tilewright.tensor_ir.text import parse_func
from tilewright.tensor_ir.verifier import verify
from tilewright.tests.autotune.records.log_helper import dense


def test_names_do_not_matter() -> None:
    assert workload_of(dense()) == workload_of(dense(prefix="zz_"))
    assert canonical(dense()) == canonical(dense(prefix="a_"))


def test_order_of_terms_does_not_depend_on_names() -> None:
    """Sums are sorted by name: renamed variables must come out in the same order."""

    def diagonal(first: str, second: str):  # type: ignore[no-untyped-def]
        a = placeholder("A", (9,), dtypes.float32)
        f = build_func("f", [a], [compute("B", (4, 5), lambda i, j: a[i + j])])
        text = str(f).replace("B_i", first).replace("B_j", second)
        return parse_func(text)

    assert workload_of(diagonal("a", "z")) == workload_of(diagonal("z", "a"))


def test_canonical_form_is_a_function_and_stays_itself() -> None:
    c = canonical(dense())
    verify(c)
    assert canonical(c) == c
    assert parse_func(workload_of(c).text) == c


def test_dims_are_renamed() -> None:
    def double(symbol: str):  # type: ignore[no-untyped-def]
        a = placeholder("A", (var(symbol), 4), dtypes.float32)
        return build_func("f", [a], [compute("B", (var(symbol), 4), lambda i, j: a[i, j] + a[i, j])])

    assert workload_of(double("batch")) == workload_of(double("n"))
    assert canonical(double("batch")).dims == ("n0",)


def test_sizes_matter_but_not_for_the_structure() -> None:
    a, b = workload_of(dense(24)), workload_of(dense(25))
    assert a.hash != b.hash
    assert a.structure == b.structure
    assert differences(a.text, b.text) == ("24 -> 25",)
    assert distance(a.text, a.text) == 0 < distance(a.text, b.text) < distance(a.text, workload_of(dense(99)).text)


def test_zeros_of_both_signs_are_different() -> None:
    text = str(dense())
    negative = parse_func(text.replace("float32(0.0)", "float32(-0.0)"))
    assert workload_of(negative).hash != workload_of(parse_func(text)).hash


def test_outputs_of_which_a_part_is_written_are_part_of_the_workload() -> None:
    f = dataclasses.replace(dense(), partial=("C",))
    assert canonical(f).partial == ("y0",)
    assert workload_of(f).text.startswith('@attrs(parts="y0")\n'), "as logs have written it since version 1"
