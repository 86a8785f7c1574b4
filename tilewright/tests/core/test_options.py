"""Checks of options: what stands for a plain value is taken, the rest is refused by name in one line."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.errors import InputError
from tilewright.core.options import (
    require_calls,
    require_choice,
    require_flag,
    require_mapping,
    require_names,
    require_number,
    require_path,
    require_whole,
)
from tilewright.core.suggestions import did_you_mean


def test_what_stands_for_a_plain_value_is_taken() -> None:
    assert require_whole("n", np.int64(3)) == 3
    assert type(require_whole("n", np.uint8(3))) is int
    assert require_number("x", np.float32(0.5)) == 0.5
    assert require_number("x", 2) == 2.0
    assert require_flag("f", np.True_) is True
    assert require_names("a", "one") == ("one",)
    assert require_names("a", ["one", np.str_("two")]) == ("one", "two")
    assert require_calls("c", len) == (len,)
    assert require_choice("s", None, (None, "a")) is None
    assert require_path("p", "x/y") == require_path("p", Path("x/y")) == Path("x/y")
    assert require_mapping("m", {"a": 1}) == {"a": 1}


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: require_whole("threads", "2"), "threads: expected a whole number of at least 1, got '2'"),
        (lambda: require_whole("threads", True), "threads: expected a whole number of at least 1, got True"),
        (lambda: require_whole("threads", 2.0), "threads: expected a whole number of at least 1, got 2.0"),
        (lambda: require_whole("threads", 0), "threads: expected a whole number of at least 1, got 0"),
        (lambda: require_number("t", math.nan), "t: expected a finite number of at least 0, got nan"),
        (lambda: require_number("t", 2, most=1), "t: expected a finite number from 0 to 1, got 2"),
        (lambda: require_number("t", "1"), "t: expected a finite number of at least 0, got '1'"),
        (lambda: require_flag("cache", "no"), "cache: expected True or False, got 'no'"),
        (lambda: require_flag("cache", None), "cache: expected True or False, got None"),
        (lambda: require_choice("policy", "exakt", ("exact", "any")),
         "policy: expected one of exact, any, got 'exakt'; did you mean 'exact'?"),
        (lambda: require_choice("policy", 3, ("exact", "any")), "policy: expected one of exact, any, got 3"),
        (lambda: require_choice("policy", ["any"], ("any",)), "policy: expected one of any, got list ['any']"),
        (lambda: require_names("names", 5), "names: expected names, got 5"),
        (lambda: require_names("names", {"a": 1}), "names: expected names, got dict {'a': 1}"),
        (lambda: require_names("names", ["a", 5]), "names: expected names, got 5"),
        (lambda: require_names("names", "winogard", ("winograd",)),
         "names: expected names, got 'winogard'; did you mean 'winograd'?"),
        (lambda: require_calls("on_trial", 5), "on_trial: expected functions, got 5"),
        (lambda: require_mapping("sizes", [1]), "sizes: expected a dict by name, got list [1]"),
        (lambda: require_mapping("sizes", {1: 1}), "sizes: expected a dict by name, got dict {1: 1}"),
        (lambda: require_path("work_dir", 5), "work_dir: expected a path, got 5"),
        (lambda: require_flag("cache", np.zeros((50, 50))), "cache: expected True or False, got ndarray array([[0."),
    ],
)  # fmt: skip
def test_what_is_refused_is_named(check: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as found:
        check()
    assert str(found.value).startswith(message)
    assert "\n" not in str(found.value)


def test_the_nearest_names() -> None:
    assert did_you_mean("skylak", ["skylake", "haswell"]) == "; did you mean 'skylake'?"
    assert did_you_mean("HASWELL", ["skylake", "haswell"]) == "; did you mean 'haswell'?"
    assert did_you_mean("ice", ["icelake-b", "icelake-a", "rice"]) == "; did you mean 'icelake-a' or 'icelake-b'?"
    assert did_you_mean("quantum", ["skylake", "haswell"]) == ""
    assert did_you_mean("", ["skylake"]) == ""
