"""Nothing is lost by a command that writes: not somebody else's file in the place, not the old one when it fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilewright.cli import main
from tilewright.core.errors import InputError

pytest.importorskip("resource")
writers = pytest.importorskip("tilewright.tests.cli.writers")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writers.prepare(tmp_path)
    return tmp_path


CHECKING = [name for name, w in writers.WRITERS.items() if w.checks]


@pytest.mark.parametrize("name", CHECKING)
@pytest.mark.parametrize("foreign", ["model.onnx", "text", "log"])
def test_a_file_of_somebody_elses_stays(
    name: str, foreign: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    contents = {
        "model.onnx": (folder / "model.onnx").read_bytes(), "text": b"# tilewright\n\nmy notes\n" * 100,
        "log": b'{"schema": "https://json-schema.org"}\n' + b'{"level": "info", "message": "started"}\n' * 50,
    }[foreign]  # fmt: skip
    place = folder / writers.WRITERS[name].place
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(contents)
    with pytest.raises(InputError) as raised:
        writers.WRITERS[name].write(folder)
    said = str(raised.value) + capsys.readouterr().err
    assert f"{place}: expected a" in said or f"{place}: expected outputs" in said
    assert "found another kind of file; it stays as it is" in said
    assert place.read_bytes() == contents
    assert [p.name for p in place.parent.iterdir() if p.name.startswith(".tilewright")] == []


@pytest.mark.parametrize("words", [["tune", "MODEL", "--log", "MODEL"], ["demo", "squeezenet", "--log", "MODEL"]])
def test_a_model_is_no_log(words: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command that destroyed one."""
    model = folder / "model.onnx"
    before = model.read_bytes()
    assert main([str(model) if w == "MODEL" else w for w in words]) == 2
    assert f"{model}: expected a tuning log, found another kind of file; it stays as it is" in capsys.readouterr().err
    assert model.read_bytes() == before


def test_a_full_disk_and_a_kill_lose_nothing(tmp_path: Path) -> None:
    """In a process of its own, since a limit on the size of files is one of the process."""
    run = subprocess.run(
        [sys.executable, "-m", "tilewright.tests.cli.writers", str(tmp_path)], capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert [line for line in run.stdout.splitlines() if line.startswith("LOST")] == []
    assert run.stdout.count("DONE") == len(writers.WRITERS)
