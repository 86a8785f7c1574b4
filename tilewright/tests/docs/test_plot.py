"""The picture of a benchmark's table: what is in the table, and nothing else."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tilewright.tests.sources import ROOT

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="needs the source tree")

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plot() -> Any:
    spec = importlib.util.spec_from_file_location("plot_of_networks", ROOT / "benchmarks" / "plot.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def row(name: str, ours: float, ort: float, ov: float | None = None, threads: int = 2) -> dict[str, Any]:
    out: dict[str, Any] = {"name": name, "threads": threads, "speed": ort / ours}
    for who, ms in (("ours", ours), ("ort", ort), ("ov", ov)):
        if ms is not None:
            out |= {f"{who}_ms": ms, f"{who}_p10": 0.9 * ms, f"{who}_p90": 1.1 * ms}
    return out


TABLE = {
    "machine": {"cpu": "znver5", "threads": 2},
    "rows": [
        row("slow & small", 4.0, 3.0, 5.0),
        row("fast", 1.0, 2.0, 3.0),
        row("one thread", 2.0, 2.0, threads=1),
        {"name": "broken", "threads": 2, "failed": "no result"},
    ],
}


def test_rows_are_in_order_and_points_at_their_gains(plot: Any) -> None:
    tree = ElementTree.fromstring(plot.drawn(TABLE))
    texts = [t.text for t in tree.iter(f"{SVG}text")]
    assert texts[0] == "Time of others over ours: 2 networks, znver5, 2 threads, fp32, untuned"
    assert [t for t in texts if t in ("fast", "slow & small", "one thread", "broken")] == ["fast", "slow & small"]
    assert texts[-3:] == ["2.00, 3.00", "slow & small", "0.75, 1.25"]
    points = [(c.get("class"), float(str(c.get("cx")))) for c in tree.iter(f"{SVG}circle")][2:]
    assert [who for who, _ in points] == ["ort", "ov", "ort", "ov"]
    scale = plot.Scale.of([plot.network_of(r) for r in TABLE["rows"][:2]])
    wanted = [scale.at(g) for g in (2.0, 3.0, 0.75, 1.25)]
    assert [x for _, x in points] == pytest.approx(wanted, abs=0.1)
    assert wanted[2] < scale.at(1.0) < wanted[3] < wanted[0] < wanted[1]


def test_the_mean_is_geometric_and_of_those_that_ran(plot: Any) -> None:
    networks = [plot.network_of(r) for r in TABLE["rows"][:3]]
    assert plot.mean_gain(networks, "ort") == (pytest.approx(math.cbrt(0.75 * 2.0)), 3)
    assert plot.mean_gain(networks, "ov") == (pytest.approx(math.sqrt(1.25 * 3.0)), 2)


def test_ranges_are_those_of_both_sides(plot: Any) -> None:
    gain = plot.network_of(row("n", 1.0, 2.0)).gains["ort"]
    assert (gain.low, gain.median, gain.high) == pytest.approx((1.8 / 1.1, 2.0, 2.2 / 0.9))


def test_a_table_without_times_is_refused(plot: Any) -> None:
    with pytest.raises(ValueError, match="rows: expected some that were timed, got none"):
        plot.drawn({"machine": {}, "rows": TABLE["rows"][3:]})
    with pytest.raises(ValueError, match=r"threads: expected one of \[1, 2\], got 4"):
        plot.drawn(TABLE, threads=4)


def test_the_command_writes_the_picture(plot: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.json").write_text(json.dumps(TABLE), encoding="utf-8")
    words = ["plot.py", str(tmp_path / "rows.json"), "-o", str(tmp_path / "speed.svg"), "--threads", "1"]
    monkeypatch.setattr(sys, "argv", words)
    assert plot.main() == 0
    text = (tmp_path / "speed.svg").read_text(encoding="utf-8")
    assert "1 networks" not in text
    assert "1 network, znver5, 1 thread, fp32, untuned" in text
    assert "prefers-color-scheme: dark" in text
    assert plot.main() == 0  # it replaces what it wrote
