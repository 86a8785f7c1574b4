"""The page: complete, without anything from elsewhere, with nothing of a log taken for HTML; its facts by hand."""

from __future__ import annotations

import dataclasses
import math
import re
import warnings
from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from tilewright.autotune.records.database import JSONDatabase
from tilewright.autotune.records.record import Choice, NodeChoice, Record, RecordWarning, to_line
from tilewright.cli import main
from tilewright.core.errors import InputError, TilewrightError
from tilewright.inspect.report.charts import Work, roofline
from tilewright.inspect.report.drawing import GOOD, Axis, chart, dots, level, thin
from tilewright.inspect.report.facts import (
    batch_correlations,
    costs,
    running_mean,
    saved_shares,
    task_facts,
    total_speedup,
    weights_of,
)
from tilewright.inspect.report.page import report
from tilewright.inspect.report.rows import Row
from tilewright.inspect.report.words import duration, short_time
from tilewright.runtime.profile import Peaks
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, with_threads, wrong
from tilewright.tests.html_checker import checked

EVIL = "<script>alert(1)</script>&\"'"


def _records(**extra: object) -> Iterator[Record]:
    found = candidates(dense(), HERE, 12)
    for i, c in enumerate(found[:11]):
        r = record(dense(), c, 1e-3 / (1 + (i * 5) % 11), time=1763715600.0 + 2 * i)
        yield dataclasses.replace(r, extra={"predicted": float(i), "batch": 8 * (i // 8), **extra})
    yield wrong(dense(), found[11], time=1763715700.0)


@pytest.fixture
def log(tmp_path: Path) -> JSONDatabase:
    database = JSONDatabase(tmp_path / "log.jsonl")
    for r in _records():
        database.append(r)
    database.append(verdict(database.records()[0], "net", False, 5.0))
    return database


def test_the_page(log: JSONDatabase) -> None:
    text = checked(report(log.path))
    for words in (
        "1 task, together", "times as fast as with default schedules", "1 of 1 tasks run faster than by default",
        "1 of 12 candidates failed", "wrong result", "znver4, 2 threads", "default kept, 2.00",
        "they were not asked for", "The cost model's rank correlation was",
        "Loop nest", "for i", "compute", "2025-11-21",
    ):  # fmt: skip
        assert words in text, words


def test_peaks(log: JSONDatabase) -> None:
    text = checked(report(log.path, HERE, lambda threads: Peaks(1e11 * threads, 1e10)))
    assert "200 GFLOP/s" in text
    assert "10.0 GB/s" in text
    assert "of what the machine allows them" in text
    assert "more than 100 % of the peak" not in text
    assert "more than 100 % of the peak" in checked(report(log.path, HERE, lambda _: Peaks(1.0, 1e10)))
    other = dataclasses.replace(HERE, cpu="znver5")
    assert "the log is of another machine (znver4, 2 threads)" in checked(
        report(log.path, other, lambda _: Peaks(1, 1))
    )
    log.append(with_threads(log.records()[0], 8))
    assert "the log is of several machines" in checked(report(log.path, HERE, lambda _: Peaks(1, 1)))


def test_names_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "<b>.jsonl"
    lines = []
    for r in _records(weight=0.5):
        failure = EVIL if r.failure else None
        versions = {EVIL: EVIL}
        evil = dataclasses.replace(r, task=EVIL, failure=failure, tuner=EVIL, versions=versions, message=EVIL)
        lines.append(to_line(dataclasses.replace(evil, target=dataclasses.replace(HERE, cpu=EVIL))))
    path.write_text("\n".join(lines) + "\n")
    page = report(path)
    text = checked(page)
    assert EVIL in text
    assert "<script" not in page.lower()


def test_logs_with_little_in_them(tmp_path: Path) -> None:
    path = tmp_path / "log"
    (first, *_, bad) = _records()
    path.write_text(to_line(bad) + "\n")
    assert "has no candidate that works" in checked(report(path))
    path.write_text(to_line(dataclasses.replace(first, extra={})) + "\n" + '{"schema": 1, "kind": "measu')
    with pytest.warns(RecordWarning, match="1 lines were not understood"):
        assert "The log holds no predictions" in checked(report(path))
    unknown = dataclasses.replace(first, steps=({"primitive": "melt", "args": {}},), extra={})
    path.write_text(to_line(first) + "\n" + to_line(dataclasses.replace(unknown, seconds=1e-9, candidate="x")) + "\n")
    assert "no longer replays" in checked(report(path))
    path.write_text("")
    with pytest.raises(InputError, match="expected a log with measurements, found none"):
        report(path)
    with pytest.raises(InputError, match="expected a tuning log, found no such file"):
        report(tmp_path / "none")


def test_a_big_log_gives_a_small_page(tmp_path: Path) -> None:
    """Points are sampled: the page does not grow with the log."""
    sizes = []
    rng = np.random.default_rng(0)
    for count in (2500, 10_000):
        path = tmp_path / f"{count}"
        lines = list(_records())[:11]
        texts = [to_line(dataclasses.replace(r, candidate="@", time=-1.0, seconds=7.0)) for r in lines]
        with path.open("w") as f:
            for i in range(count):
                line = texts[i % len(texts)].replace('"candidate":"@"', f'"candidate":"{i}"')
                line = line.replace('"seconds":7.0', f'"seconds":{rng.uniform(1e-3, 2e-3)}')
                f.write(line.replace('"time":-1.0', f'"time":{i}.5') + "\n")
        sizes.append(len(report(path)))
    assert sizes[1] < 1.5 * sizes[0]


def test_the_command(log: JSONDatabase, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    assert main(["report", str(log.path), "-o", str(out), "--no-peaks"]) == 0
    assert "KiB" in capsys.readouterr().out
    checked(out.read_text(encoding="utf-8"))


# -- facts -----------------------------------------------------------------------------------------------------------
def _row(candidate: str, seconds: float | None, time: float, failure: str | None = None, **more: object) -> Row:
    machine = ("isa", "cpu", 2, 1, 2, 3)
    fields = {"predicted": None, "batch": None, "weight": None, "task": "t", **more}
    return Row("w", machine, candidate, seconds, failure, time, 0.5, place=int(time * 10), **fields)  # type: ignore[arg-type]


def test_the_latest_measurement_counts_and_wrong_never() -> None:
    rows = [_row("a", 4.0, 1), _row("b", 1.0, 2), _row("c", 2.0, 3), _row("b", 3.0, 4), _row("d", 0.1, 5)]
    rows.append(_row("d", None, 6, "wrong_result"))
    t = task_facts(rows, "a", costs(rows))
    assert [p.best for p in t.points] == [4.0, 3.0, 2.0, 2.0]
    assert t.best is not None
    assert t.best.candidate == "c"
    assert t.speedup == 2.0
    assert t.failures == {"wrong_result": 1}
    assert math.isinf(t.points[-1].seconds)


def test_a_night_between_two_sessions_is_not_tuning_time() -> None:
    rows = [_row("a", 1.0, 10), _row("b", 1.0, 12), _row("c", 1.0, 40_000)]
    assert list(costs(rows).values()) == [0.5, 2.0, 60.0]


def test_correlation_is_by_batch() -> None:
    """Within each batch the order is right; across batches the scores cannot be compared."""
    rows = [
        _row(f"{b}{i}", 1.0 + i, 10 * b + i, predicted=100.0 * b - i, batch=5 * b) for b in range(3) for i in range(5)
    ]
    t = task_facts(rows, None, costs(rows))
    assert t.correlations == ((5, pytest.approx(1.0)), (10, pytest.approx(1.0)), (15, pytest.approx(1.0)))
    assert running_mean([(1, 0.0), (2, 1.0), (3, 1.0)], 2) == [(1, 0.0), (2, 0.5), (3, 1.0)]


def test_batches_of_all_tasks_are_in_the_order_of_time() -> None:
    first, second = (
        task_facts(
            [_row(f"{n}{i}", 1.0 + i, n + 2 * i, predicted=-i, batch=0) for i in range(4)],
            None,
            dict.fromkeys(range(0, 80, 10), 1.0),
        )
        for n in (0, 1)
    )
    assert batch_correlations([second, first]) == [(7.0, pytest.approx(1.0)), (8.0, pytest.approx(1.0))]


def test_weights() -> None:
    fast = task_facts([_row("a", 4.0, 1, weight=0.6), _row("b", 2.0, 2, weight=0.6)], "a", {10: 1.0, 20: 1.0})
    slow = task_facts([_row("a", 1.0, 1, weight=0.2)], "a", {10: 1.0})
    assert weights_of([fast, slow]) == pytest.approx({0: 0.75, 1: 0.25})
    assert total_speedup([fast, slow], {0: 0.75, 1: 0.25}) == pytest.approx(1.0 / 0.625)
    assert saved_shares([fast, slow], {0: 0.75, 1: 0.25}) == [1.0, 0.0]
    without = dataclasses.replace(slow, weight=None)
    assert weights_of([fast, without]) == pytest.approx({0: 0.8, 1: 0.2})


# -- charts ----------------------------------------------------------------------------------------------------------
def _texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def test_a_chart_takes_its_colours_from_the_page_and_needs_nothing_else() -> None:
    x, y = Axis("trials", 0.0, 100.0), Axis("best time, ms", 10.0, 1000.0, log=True)

    def draw(axes: Axes) -> None:
        level(axes, 20.0, "default")
        dots(axes, [(10.0, 123.456), (100.0, 1000.0)])
        axes.plot(50.0, 50.0, "o", c=GOOD, clip_on=False, gid="disc1")

    svg = chart("of <b>", x, y, draw, {"disc1": EVIL})
    checked(svg)
    assert svg.startswith('<svg viewBox="0 0 360 210" role="img" aria-label="of &lt;b&gt;">')
    assert f"<title>{escape(EVIL)}</title>" in svg
    assert set(re.findall(r"(?:fill|stroke): ([^;\"]+)", svg)) <= {
        "none", "var(--fg)", "var(--soft)", "var(--line)", "var(--mark)", "var(--good)",
    }  # fmt: skip
    assert _texts(svg) == ["0", "20", "40", "60", "80", "100", "trials", "10", "20", "50", "100", "200", "500", "1000",
                           "best time, ms", "default"]  # fmt: skip
    assert not re.search(r'"[^"]*\.\d\d[^"]*"', svg), "more digits than anybody sees"


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [(0.0, 0.001, False), (1e-3, 1.01e-3, True), (3.0, 9.0, True), (1.0, 31.0, True), (1e-6, 1e6, True)],
)
def test_an_axis_has_a_few_ticks(low: float, high: float, log: bool) -> None:
    ticks = _texts(chart("c", Axis("x", 0.0, 1.0), Axis("y", low, high, log), lambda axes: None))
    assert 2 <= len(ticks) - len(["0", "0.2", "0.4", "0.6", "0.8", "1", "x", "y"]) <= 13


def test_points_are_sampled() -> None:
    points = [(float(i), 0.0) for i in range(5000)]
    assert len(thin(points)) <= 401
    assert thin(points)[-1] == points[-1]


def test_the_roofline_tells_of_every_task() -> None:
    work = [Work(n, f"task{n}", 10.0**n, 1e4, 2e-3, 1e-3, 0.5) for n in (4, 6)]
    svg = roofline(work, Peaks(1e11, 1e10))
    assert "100 GFLOP/s" in _texts(svg)
    assert "10.0 GB/s" in _texts(svg)
    assert "<title>6 task6: 1.0 Gop/s, 100.0 operations per byte</title>" in svg
    assert work[1].share_of(Peaks(1e11, 1e10)) == pytest.approx(0.01)
    assert "GFLOP/s" not in roofline(work, None)


@pytest.mark.parametrize("name", ["jinja2", "matplotlib"])
def test_what_is_missing_is_told(log: JSONDatabase, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda asked: None if asked == name else asked)
    with pytest.raises(TilewrightError, match=rf"found no {name}: pip install 'tilewright\[report\]'"):
        report(log.path)


def test_words() -> None:
    assert [duration(x) for x in (45, 600, 12_000)] == ["45 s", "10 min", "3 h 20 min"]
    assert [short_time(x) for x in (1.2, 4.56e-3, 12.3e-6)] == ["1.20 s", "4.56 ms", "12.3 µs"]


def test_the_latest_choice_of_precision_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    nodes = {f"{'0' * 64} 0": NodeChoice(EVIL, "bf16", {"fp32": 3e-6, "bf16": 1e-6}, 2e-3)}
    old = Choice("net", "net", HERE, "bf16", {"fp32": 3e-3, "bf16": 1e-3}, 1.0, errors={"bf16": 1e-2})
    new = dataclasses.replace(old, implementation="mixed", time=2.0, nodes=nodes)
    of_kernel = Choice("kernel", "net", HERE, "winograd4", {"winograd4": 1.0}, 3.0)
    lines = [record(dense(), candidates(dense(), HERE, 1)[0], 1e-3), new, old, of_kernel]
    path.write_text("".join(f"{to_line(x)}\n" for x in lines), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none of the lines is unknown
        text = checked(report(path))
    assert "precision mixed: fp32 3.000 ms; bf16 1.000 ms, off by 1.0e-02; 1 of 1 products on bfloat16" in text
    assert f"{EVIL}: bf16; by a record: 3.0 us in fp32, 1.0 us in bf16, results off by 2.0e-03" in text
    assert "precision bf16" not in text
