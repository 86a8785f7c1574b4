"""Numbers on the command line: what no count, seed or amount can be is refused before anything runs."""

from __future__ import annotations

import pytest

from tilewright.cli import main


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["run", "m.onnx", "--threads", "0"], "argument --threads: expected a whole number of at least 1, got '0'"),
        (["run", "m.onnx", "--threads", "two"], "argument --threads: expected a whole number of at least 1, got 'two'"),
        (["run", "m.onnx", "--seed", "-1"], "argument --seed: expected a whole number of at least 0, got '-1'"),
        (["bench", "m.onnx", "--runs", "0"], "argument --runs: expected a whole number of at least 1, got '0'"),
        (["bench", "m.onnx", "--seconds", "nan"], "argument --seconds: expected a finite number of at least 0"),
        (["profile", "m.onnx", "--runs", "1.5"], "argument --runs: expected a whole number of at least 1, got '1.5'"),
        (["verify", "m.onnx", "--tolerance", "-1"], "argument --tolerance: expected a finite number of at least 0"),
        (["tune", "m.onnx", "--log", "l", "--time", "inf"], "argument --time: expected a finite number of at least 0"),
        (["tune", "m.onnx", "--log", "l", "--trials", "x"], "argument --trials: expected a whole number of at least 0"),
        (["db", "top", "-k", "0", "l"], "argument -k: expected a whole number of at least 1, got '0'"),
        (["demo", "--time", "-5"], "argument --time: expected a finite number of at least 0, got '-5'"),
    ],
)
def test_numbers(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(argv)
    assert end.value.code == 2
    assert message in capsys.readouterr().err
