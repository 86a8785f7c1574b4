"""Every case of ONNX's backend tests has its expected status; the counts are printed (``-s`` shows them)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.tests.conformance.expected import EXPORTED, UPDATE, WRITTEN, changes, counts_text, read_expected, status
from tilewright.tests.deploy.exported import needs_compiler

SHARDS = 2  # each loads all cases, which takes seconds
NEEDED = 1500
EXPORTED_SHARDS, NEEDED_EXPORTED = 24, 1850
WRITTEN_SHARDS, NEEDED_WRITTEN = 80, 1600
PASSING = ("native", "host")
SMALL = ("node", "simple", "pytorch-converted", "pytorch-operator")


def run(folder: Path, *options: str) -> dict[str, str]:
    """Results of cases from a process of their own; inside it a worker process runs them, so that a crash costs one."""
    out = folder / "results.json"
    command = [sys.executable, "-m", "tilewright.tests.conformance", "--jobs", "1", "--json", str(out), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.exists(), done.stderr[-2000:]
    results: dict[str, str] = json.loads(out.read_text())
    print(f"{' '.join(options)}\n{counts_text(results)}")
    return results


@pytest.mark.parametrize("part", range(SHARDS))
def test_cases_have_their_expected_status(part: int, tmp_path: Path) -> None:
    worse, better = changes(run(tmp_path, "--shard", f"{part}/{SHARDS}"), read_expected())
    assert not worse, "worse than expected:\n" + "\n".join(worse)
    assert not better, f"better than expected, run {UPDATE}:\n" + "\n".join(better)


@needs_compiler
def test_some_cases_through_artifacts(tmp_path: Path) -> None:
    """One of so many; all of them are ``python -m tilewright.tests.conformance --exported``."""
    worse, better = changes(run(tmp_path, "--exported", "--shard", f"0/{EXPORTED_SHARDS}"), read_expected(EXPORTED))
    assert not worse, "worse than expected:\n" + "\n".join(worse)
    assert not better, f"better than expected, run {UPDATE} --exported:\n" + "\n".join(better)


@pytest.mark.parametrize(("level", "part"), [("none", 0), ("extended", 1)])
def test_some_cases_written(level: str, part: int, tmp_path: Path) -> None:
    """All of them are ``python -m tilewright.tests.conformance --written none``, and ``basic``, and ``extended``."""
    pytest.importorskip("onnxruntime")
    options = ("--written", level, "--shard", f"{part}/{WRITTEN_SHARDS}", *(x for k in SMALL for x in ("--kind", k)))
    worse, better = changes(run(tmp_path, *options), read_expected(WRITTEN[level]))
    assert not worse, "worse than expected:\n" + "\n".join(worse)
    assert not better, f"better than expected, run {UPDATE} --written {level}:\n" + "\n".join(better)


@pytest.mark.parametrize("level", WRITTEN)
def test_what_passes_still_does_when_written(level: str) -> None:
    written = read_expected(WRITTEN[level])
    lost = [n for n, r in read_expected().items() if status(r) in PASSING and status(written[n]) not in PASSING]
    assert not lost
    assert sum(r.endswith("in onnxruntime too") for r in written.values()) >= NEEDED_WRITTEN


def test_enough_cases_run_without_python() -> None:
    passing = [n for n, r in read_expected(EXPORTED).items() if status(r) == "native"]
    assert len(passing) >= NEEDED_EXPORTED


def test_enough_cases_pass() -> None:
    expected = read_expected()
    passing = [n for n, r in expected.items() if status(r) in PASSING]
    print(counts_text(expected))
    assert len(passing) >= NEEDED
