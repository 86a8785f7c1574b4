import json
import re
from pathlib import Path

import pytest

from tilewright.core.arith.expr import var
from tilewright.core.errors import ParseError, ScheduleError
from tilewright.schedule import primitives
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.schedule.primitives.loops.split import Split
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.trace import Trace
from tilewright.tests.schedule.helper import elementwise, matmul

TEXT = 'split("C_i", factors=(None, 8))\nreorder(("C_i_0", "C_j", "C_i_1"))\nset_scope("acc", scope="local")\n'


def test_text_and_json_round_trip():
    trace = Trace.from_text(TEXT)
    assert trace.to_text() == TEXT
    assert trace.steps[0] == Split("C_i", (None, 8))
    assert Trace.from_json(json.dumps(trace.to_json())) == trace
    assert trace.to_json()[0] == {"primitive": "split", "args": {"loop": "C_i", "factors": [None, 8]}}


def test_comments_blank_lines_and_lists():
    assert Trace.from_text('# rows\n\nsplit(loop="i", factors=[None, 8])').steps == (Split("i", (None, 8)),)
    assert Trace.from_text("").steps == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('split("i", (None, 8)', "trace line 1: '(' was never closed"),
        ('\nspilt("i", factors=(None, 8))', "trace line 2: expected one of split, "),
        ('split("i")', "trace line 1: split expects (loop, factors), got 1 values and ()"),
        ('split("i", factors=(1, 2), loop="i")', "split expects (loop, factors), got 1 values and (factors, loop)"),
        ('split("i", factors=(None, x))', "line 1: expected literal arguments, got split('i', factors=(None, x))"),
        ('split("i", factors=(None, 1.5))', "split(i): factors: expected whole numbers or None, got (None, 1.5"),
        ("x = 1", "trace line 1: expected a call, got x = 1"),
    ],
)
def test_text_that_does_not_parse(text, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        Trace.from_text(text)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("{", "trace: not JSON"),
        ({}, "trace: expected a list of steps, got dict"),
        ([{"name": "split"}], "trace step 1: expected 'primitive' and 'args', got {'name': 'split'}"),
        ([{"primitive": "x", "args": {}}], "trace step 1: expected one of split, "),
    ],
)
def test_json_that_does_not_parse(data, message):
    with pytest.raises(ParseError, match=re.escape(message)):
        Trace.from_json(data)


def test_an_error_says_the_number_of_the_step():
    trace = Trace.from_text('split("B_i", factors=(None, 8))\nunroll("B_i")')
    with pytest.raises(ScheduleError, match=r"^step 2 of 2: unroll\(B_i\): expected the name of a loop"):
        trace.apply(elementwise(16))


def test_every_primitive_is_listed_under_its_name_and_file():
    files = {p.stem for p in Path(primitives.__file__).parent.glob("*/*.py")} - {"__init__"}
    assert set(PRIMITIVES) == files
    for name, cls in PRIMITIVES.items():
        assert cls.name == name
        assert cls.__module__.rsplit(".", 1)[1] == name
        assert hasattr(Schedule, name)
        for part in ("Rewrite:", "-->", "Keeps:", "Refuses:", "Cost:"):
            assert part in (cls.__doc__ or ""), f"{name}: {part}"


def test_schedule_records_what_it_does(capsys):
    func = matmul(var("n"), 16, 16)
    s = Schedule(func)
    i0, j0, i1, j1 = s.tile("C_i", "C_j", 4, 8)
    assert s.loops("C") == [i0, j0, i1, j1, "k"]
    s.vectorize(j1)
    with pytest.raises(ScheduleError):
        s.parallel("k")
    tail = s.loop_partition(i0)
    fused = s.fuse(tail, f"{j0}_t")
    s.parallel(i0)
    s.stream(i0, "C")
    assert s.blocks() == ["C", "C_t"]
    assert fused in str(s)
    assert Trace.from_text(str(s.trace)).apply(func) == s.func == Schedule(func, s.trace).func
    assert len(s.trace) == 8
    s.show()
    assert capsys.readouterr().out.startswith("def matmul(")
