"""The names of TVM and Halide: each does what it says, and the pages name what is there and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import tilewright
from tilewright.api.aliases import Aliases
from tilewright.core import dtypes
from tilewright.core.errors import ScheduleError
from tilewright.schedule import schedule
from tilewright.schedule.primitives import PRIMITIVES
from tilewright.tensor_ir.compute import build_func, compute, placeholder, reduce_axis, sum_over
from tilewright.tests.sources import ROOT

PAGES = ("docs/from-tvm.md", "docs/from-halide.md")


def stages() -> tilewright.Schedule:
    """A -> B -> C, whose sums are D."""
    a = placeholder("A", (8, 12), dtypes.float32)
    b = compute("B", (8, 12), lambda i, j: a[i, j] + 1.0, axis_names=("i", "j"))
    c = compute("C", (8, 12), lambda i, j: b[i, j] * 2.0, axis_names=("i", "j"))
    k = reduce_axis(12, "k")
    d = compute("D", (8,), lambda i: sum_over(c[i, k], k), axis_names=("i",))
    return tilewright.Schedule(build_func("stages", [a], [d], [b, c]))


def test_blocks_and_loops() -> None:
    s = stages()
    assert s.get_block("C") == "C"
    assert s.get_loops("B") == s.loops("B") == ["B_i", "B_j"]
    assert s.get_child_blocks(s.loops("B")[0]) == ["B"]
    assert s.get_producers("C") == ["B"]
    assert s.get_producers("B") == []
    assert s.get_consumers("B") == ["C"]
    assert s.get_consumers("D") == []
    assert s.get_output_blocks() == ["D"]
    assert s.mod is s.func
    with pytest.raises(ScheduleError, match="'E'"):
        s.get_block("E")


def test_a_stage_in_loops_of_its_own_is_computed_at_the_root() -> None:
    s = stages()
    s.compute_root("B")
    s.split("B_i", (None, 2))
    s.compute_root("B")
    s.decompose_reduction("D", s.loops("D")[-1])
    s.compute_root("D")
    assert len(s.trace) == 2
    s.compute_at("B", s.loops("C")[0])
    with pytest.raises(ScheduleError, match=r"compute_root\(B\): expected a stage in loops of its own, .* C_i with C"):
        s.compute_root("B")


def test_the_loop_nest(capsys: pytest.CaptureFixture[str]) -> None:
    s = stages()
    s.parallel(s.loops("B")[0])
    s.vectorize(s.split("C_j", (None, 4))[1])
    s.print_loop_nest()
    printed = capsys.readouterr().out
    s.func.print_loop_nest()
    assert capsys.readouterr().out == printed
    assert printed == (
        "for B_i in parallel(8):\n"
        "    for B_j in range(12):\n"
        "        B -> B\n"
        "for C_i in range(8):\n"
        "    for C_j_0 in range(3):\n"
        "        for C_j_1 in vectorized(4):\n"
        "            C -> C\n"
        "for D_i in range(8):\n"
        "    for k in range(12):\n"
        "        D -> D\n"
    )


def test_tiles_are_those_of_both() -> None:
    s = stages()
    assert s.tile("B_i", "B_j", 2, 4) == ("B_i_0", "B_j_0", "B_i_1", "B_j_1")
    assert s.loops("B") == ["B_i_0", "B_j_0", "B_i_1", "B_j_1"]


def rows(page: str) -> Iterator[tuple[str, str, str]]:
    """Theirs, ours and the difference."""
    for line in (ROOT / page).read_text(encoding="utf-8").splitlines():
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and not set(cells[0]) <= {"-"} and cells[0] != "theirs":
            yield cells[0], cells[1], cells[2]


def names_of(cell: str) -> list[str]:
    """What is called in a cell: ``split(loop, ...)`` gives ``split``."""
    return re.findall(r"`([\w.]+)", cell)


needs_pages = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="needs the source tree")


@needs_pages
@pytest.mark.parametrize("page", PAGES)
def test_what_a_page_calls_ours_is_there(page: str) -> None:
    found = list(rows(page))
    assert len(found) > 25
    for theirs, ours, difference in found:
        assert names_of(theirs), theirs
        assert names_of(ours) or ours == "not there", theirs
        assert difference or ours != "not there", theirs
        for name in names_of(ours):
            if not name.startswith("tilewright."):
                assert hasattr(stages(), name), f"{page}: {name}"
            else:
                place, _, last = name.rpartition(".")
                assert hasattr(__import__(place, fromlist=[last]), last), f"{page}: {name}"


@needs_pages
def test_every_alias_and_every_primitive_is_on_a_page() -> None:
    told = {n for page in PAGES for _, ours, _ in rows(page) for n in names_of(ours)}
    aliases = {n for n in vars(Aliases) if not n.startswith("_")}
    assert aliases <= told
    assert set(PRIMITIVES) <= told
    assert not aliases & set(vars(schedule.Schedule)), "an alias hides a step"
