"""Properties of traces: what prints reads back, and what is replayed gives the same function."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import random
import typing

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.core.errors import ScheduleError
from tilewright.schedule.base import Primitive
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.text import parse_func
from tilewright.tests.schedule.fuzz_traces import random_step
from tilewright.tests.schedule.helper import check_round_trip
from tilewright.tests.tensor_ir.wild_programs import wild_program

NAMES = st.text(min_size=1, max_size=12)
INTEGERS = st.integers(-(2**40), 2**40)
ATOMS = st.one_of(
    st.text(max_size=4), st.text(st.characters(categories=("Cs",)), max_size=2), st.integers(), st.floats(), st.none(),
    st.booleans(), st.binary(max_size=2), INTEGERS.map(np.int64), st.integers(-9, 9).map(np.int8),
    st.floats(width=32).map(np.float32), st.booleans().map(np.bool_), st.text(max_size=2).map(np.str_),
)  # fmt: skip
ANYTHING = st.recursive(ATOMS, lambda x: st.lists(x, max_size=3) | st.lists(x, max_size=3).map(tuple), max_leaves=4)
ANYTHING |= st.lists(INTEGERS, max_size=3).map(np.array) | st.dictionaries(st.text(max_size=2), INTEGERS, max_size=2)
FACTORS = st.lists(st.none() | INTEGERS, min_size=0, max_size=4).map(tuple)
VALUES: dict[object, st.SearchStrategy[object]] = {
    str: NAMES,
    int: INTEGERS,
    bool: st.booleans(),
    tuple[str, ...]: st.lists(NAMES, max_size=4).map(tuple),
    tuple[int, ...]: st.lists(INTEGERS, max_size=4).map(tuple),
    tuple[int | None, ...]: FACTORS,
    tuple[int | str, ...]: st.lists(NAMES | INTEGERS, max_size=4).map(tuple),
    int | str: NAMES | INTEGERS,
}


def steps() -> st.SearchStrategy[Primitive]:
    """Any primitive with any arguments of the right types, legal or not."""
    return st.one_of(*(_step(cls) for cls in PRIMITIVES.values()))


def _step(cls: type[Primitive]) -> st.SearchStrategy[Primitive]:
    hints = typing.get_type_hints(cls)
    fields = {f.name: VALUES.get(hints[f.name], NAMES) for f in dataclasses.fields(cls)}
    return st.builds(cls, **fields)


@given(st.lists(steps(), max_size=6).map(tuple))
@settings(max_examples=300, deadline=None)
def test_text_and_json_read_back(chosen: tuple[Primitive, ...]) -> None:
    trace = Trace(chosen)
    assert Trace.from_text(trace.to_text()) == trace
    assert Trace.from_json(trace.to_json()) == trace
    assert Trace.from_json(json.dumps(trace.to_json())) == trace
    assert Trace.from_text(trace.to_text()).to_text() == trace.to_text()
    assert len(trace) == len(chosen) == trace.to_text().count("\n")


@given(st.data())
@settings(max_examples=600, deadline=None)
def test_a_step_of_any_arguments_is_refused_or_reads_back(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(list(PRIMITIVES.values())))
    hints = typing.get_type_hints(cls)
    values = {f.name: data.draw(VALUES.get(hints[f.name], NAMES) | ANYTHING) for f in dataclasses.fields(cls)}
    try:
        step = cls(**values)
    except ScheduleError:
        return
    trace = Trace((step,))
    assert Trace.from_text(trace.to_text()) == trace
    assert Trace.from_json(json.dumps(trace.to_json())) == trace
    assert hash(step) == hash(cls(**values))


@given(st.integers(0, 2**32), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_a_trace_replays(program: int, seed: int) -> None:
    rng = random.Random(seed)
    func = wild_program(program).func
    trace, after = Trace(), func
    for _ in range(8):
        step = random_step(rng, after)
        try:
            after = step.apply(after)
        except ScheduleError:
            continue
        trace = trace.then(step)
    check_round_trip(after)
    assert trace.apply(func) == after
    assert Trace.from_text(trace.to_text()).apply(func) == after
    assert Trace.from_json(json.dumps(trace.to_json())).apply(func) == after
    assert trace.apply(parse_func(str(func))) == after
    assert Schedule(func, trace).func == after
    middle = rng.randint(0, len(trace))
    assert Trace(trace.steps[middle:]).apply(Trace(trace.steps[:middle]).apply(func)) == after


@given(st.integers(0, 2**32), st.lists(steps(), min_size=1, max_size=3).map(tuple))
@settings(max_examples=60, deadline=None)
def test_nonsense_is_refused_and_changes_nothing(program: int, chosen: tuple[Primitive, ...]) -> None:
    func = wild_program(program % 50).func
    text = str(func)
    with contextlib.suppress(ScheduleError):
        check_round_trip(Trace(chosen).apply(func))
    assert str(func) == text
