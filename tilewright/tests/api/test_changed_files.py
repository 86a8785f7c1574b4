"""A model's file that is written to in place, cut off or replaced while the model is compiled and afterwards.

Each case is a process of its own: what this is about is a signal that ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.core.io.stored import StoredFile

_ROWS, _WIDTH = 1500, 256


def overwrite(file: Path) -> None:
    """The same size, other bytes, as a deployment does that writes the new version in place."""
    with file.open("r+b") as f:
        f.seek(file.stat().st_size // 10)
        f.write(b"\x3f" * (file.stat().st_size * 8 // 10))


def cut(file: Path) -> None:
    os.truncate(file, 300)


def replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_bytes(b"\x3f" * file.stat().st_size)
    other.replace(file)


CHANGES: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (overwrite, cut, replace)}
IN_PLACE = ("overwrite", "cut")
PLACES = ("inside", "external")


def store(directory: Path, place: str) -> tuple[Path, Path]:
    """The path of a model whose table is used as it is, whose matrix is packed, and which has a second version; and the
    file that has its weights."""
    rng = np.random.default_rng(0)
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (int64[n] i, float[a,{_WIDTH}] x, float[b,{_WIDTH}] v)
        => (float[] y, float[] z) {{
        r = Gather(table, i) y = MatMul(r, matrix) s = Add(x, v) z = MatMul(s, matrix) }}"""
    model = onnx.parser.parse_model(text)
    for name, shape in (("table", (_ROWS, _WIDTH)), ("matrix", (_WIDTH, _WIDTH))):
        array = rng.integers(-3, 4, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    path = directory / "m.onnx"
    onnx.save(model, path, save_as_external_data=place == "external", location="weights.bin", size_threshold=0)
    file = path if place == "inside" else directory / "weights.bin"
    os.utime(file, ns=(1, 1))  # so that a change within the file system's tick of time is one, too
    return path, file


def feed(rows: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    i = np.append(rng.integers(0, _ROWS, 20), (0, _ROWS - 1))
    return {"i": i, "x": np.ones((rows, _WIDTH), np.float32), "v": rng.integers(0, 3, (4, _WIDTH)).astype(np.float32)}


def require_same(model: tilewright.CompiledModel, wanted: dict[str, np.ndarray], rows: int) -> None:
    got = model.run(feed(rows))
    for name, array in wanted.items():
        np.testing.assert_array_equal(got[name], array)


class _During:
    """Changes a file when the first pass runs."""

    def __init__(self, change: Callable[[Path], None], file: Path) -> None:
        self._change, self._file = change, file

    def before(self, step: int, pass_: object, graph: object) -> None:
        if step == 0:
            self._change(self._file)

    def after(self, step: int, pass_: object, graph: object, log: object) -> None: ...


def after_compile(name: str, place: str, directory: Path) -> None:
    path, file = store(directory, place)
    model = tilewright.compile(path, threads=1)
    ahead = tilewright.compile(path, threads=1, broadcasting="ahead")
    wanted, repeated = model.run(feed(4)), ahead.run(feed(1))
    CHANGES[name](file)
    require_same(model, wanted, 4)
    require_same(ahead, wanted, 4)
    require_same(ahead, repeated, 1)
    model.explain()
    model.profile(feed(4), runs=1)
    if name == "replace":
        require_same(model, repeated, 1)
        model.dump(directory / "dump")
    else:
        with pytest.raises(InputError, match=rf"{file.name} has changed since it was opened"):
            model.run(feed(1))
        with pytest.raises(ModelError, match=rf"{file.name} has changed since it was opened"):
            model.dump(directory / "dump")
    require_same(model, wanted, 4)


def during_compile(name: str, place: str, directory: Path) -> None:
    path, file = store(directory, place)
    wanted = tilewright.compile(path, threads=1).run(feed(4))
    during = [_During(CHANGES[name], file)]
    if name == "replace":
        require_same(tilewright.compile(path, threads=1, instruments=during), wanted, 4)
    else:
        with pytest.raises(ModelError, match=rf"{file.name} has changed since it was opened"):
            tilewright.compile(path, threads=1, instruments=during)


def during_import(name: str, place: str, directory: Path) -> None:
    """At every read of the file, in turn."""
    path, file = store(directory, place)
    read, reads, at = StoredFile.read_into, 0, 0

    def changing(self: StoredFile, out: memoryview, offset: int) -> None:
        nonlocal reads
        is_it = self._path == file
        reads += is_it
        if is_it and reads == at:
            CHANGES[name](file)
        read(self, out, offset)

    def weights() -> list[np.ndarray]:
        graph = tilewright.compile(path, stop_after="import")
        return [graph.constants[c].array for c in ("table", "matrix")]

    StoredFile.read_into = changing  # type: ignore[method-assign]
    own = weights()
    most = reads
    for turn in range(1, most + 1):
        reads, at = 0, turn
        path.unlink()
        file.unlink(missing_ok=True)
        store(directory, place)
        if name == "replace":
            assert all(map(np.array_equal, weights(), own))
        else:
            with pytest.raises(ModelError, match=rf"{file.name} has changed since it was opened"):
                weights()


CASES = [(f, n, p) for f in (after_compile, during_compile, during_import) for n in CHANGES for p in PLACES]


@pytest.mark.parametrize(("case", "name", "place"), CASES, ids=[f"{f.__name__}-{n}-{p}" for f, n, p in CASES])
def test_results_stay_or_the_change_is_told(
    case: Callable[[str, str, Path], None], name: str, place: str, tmp_path: Path
) -> None:
    call = f"from tilewright.tests.api import test_changed_files as t; from pathlib import Path; t.{case.__name__}"
    script = f"{call}({name!r}, {place!r}, Path({str(tmp_path)!r}))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, f"{run.returncode}: {run.stderr[-3000:]}"
