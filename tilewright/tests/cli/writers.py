"""Everything that writes a file where a user says: each command and call, with what it leaves there.

As a program (``python -m tilewright.tests.cli.writers FOLDER``) it lets each of them fail in the middle: on a full
disk, which is a limit on the size of files, and killed. It prints a line for each that lost something.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import tilewright
from tilewright.autotune.cost_model.features import COLUMNS
from tilewright.autotune.cost_model.xgboost_model import XGBoostConfig, XGBoostModel
from tilewright.autotune.measure.measurer import TableMeasurer
from tilewright.autotune.records.database import JSONDatabase
from tilewright.cli import main
from tilewright.codegen.cache import ObjectCache
from tilewright.core.errors import InputError
from tilewright.core.io.files import TEMPORARY
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.pipeline import Dump
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, mlp_model, record
from tilewright.writer import save_onnx

KEY = "ab" + "0" * 62


@dataclass(frozen=True, slots=True)
class Writer:
    """``place``: the file, in the folder. ``appends``: what was there stays in front. ``checks``: it looks at what is
    there."""

    place: str
    write: Callable[[Path], None]
    appends: bool = False
    checks: bool = True


def prepare(folder: Path) -> None:
    """A model and a log for the writers to work on."""
    onnx.save(mlp_model(4, 8), str(folder / "model.onnx"))
    database = JSONDatabase(folder / "log.jsonl")
    for n, c in enumerate(candidates(dense(), HERE, 4)):
        database.append(record(dense(), c, 1e-3 * (9 - n), time=float(n)))


def _command(*words: object) -> None:
    if main([str(w) for w in words]) != 0:
        raise InputError(f"{words[0]} failed")


def _save_cost_model(folder: Path) -> None:
    model = XGBoostModel(XGBoostConfig(rounds=2))
    rows = np.random.default_rng(0).random((16, len(COLUMNS)), np.float32)
    model.fit(rows, np.arange(1.0, 17.0), ["a"] * 16)
    model.save(folder / "cost.json")


def _graph_dump(folder: Path) -> None:
    tilewright.compile(str(folder / "model.onnx"), instruments=[Dump(folder / "passes")], stop_after="passes")


def _session(folder: Path) -> None:
    options = tilewright.SessionOptions(optimized_model_filepath=str(folder / "optimized.onnx"))
    tilewright.InferenceSession(str(folder / "model.onnx"), options)


def _external_data(folder: Path) -> None:
    save_onnx(read_model(folder / "model.onnx"), folder / "large.onnx", external_data=True)


def _append(folder: Path) -> None:
    database = JSONDatabase(folder / "kept.jsonl")
    database.append(record(dense(), candidates(dense(), HERE, 1)[0], 1.0, time=7.0 + len(database)))


def _merge(folder: Path) -> None:
    shutil.copy(folder / "log.jsonl", folder / "more.jsonl")
    found = candidates(dense(), HERE, 1)[0]
    place = folder / "merged.jsonl"
    size = place.stat().st_size if place.exists() else 0
    JSONDatabase(folder / "more.jsonl").append(record(dense(), found, 1.0, time=9.0 + size))
    _command("db", "merge", folder / "more.jsonl", "-o", place)


def _tune(folder: Path) -> None:
    """One candidate that is not in the log yet."""
    tilewright.tune(
        str(folder / "model.onnx"), database=folder / "tuned.jsonl", measurer=TableMeasurer(lambda c: 1.0),
        time_budget_s=None, max_trials=1, check_network=False, cache=False,
    )  # fmt: skip


WRITERS: Mapping[str, Writer] = {
    "report": Writer("page.html", lambda d: _command("report", d / "log.jsonl", "-o", d / "page.html", "--no-peaks")),
    "run": Writer("y.npz", lambda d: _command("run", d / "model.onnx", "--output", d / "y.npz")),
    "quantize": Writer(
        "small.onnx", lambda d: _command("quantize", d / "model.onnx", "--weight-only", "int8", "-o", d / "small.onnx")
    ),
    "simplify": Writer(
        "simple.onnx", lambda d: _command("simplify", d / "model.onnx", "--no-check", "-o", d / "simple.onnx")
    ),
    "explain": Writer("dump/2_passes.txt", lambda d: _command("explain", d / "model.onnx", "--dump", d / "dump")),
    "session": Writer("optimized.onnx", _session),
    "external data": Writer("large.onnx.data", _external_data),
    "pass dump": Writer("passes/04_simplify.txt", _graph_dump),
    "cost model": Writer("cost.json", _save_cost_model),
    "object cache": Writer(
        f"cache/{KEY[:2]}/{KEY[2:]}.o", lambda d: ObjectCache(d / "cache").put(KEY, bytes(5000)), checks=False
    ),
    "db prune": Writer("small.jsonl", lambda d: _command("db", "prune", d / "small.jsonl")),
    "db merge": Writer("merged.jsonl", _merge, appends=True),
    "append": Writer("kept.jsonl", _append, appends=True),
    "tune": Writer("tuned.jsonl", _tune, appends=True),
}


def make(name: str, folder: Path) -> Path:
    """The file as the writer leaves it; for a prune, before it."""
    place = folder / WRITERS[name].place
    if name == "db prune":
        shutil.copy(folder / "log.jsonl", place)
    else:
        WRITERS[name].write(folder)
    return place


# -- failing in the middle -----------------------------------------------------------------------------------------
@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """No file grows beyond ``left`` bytes, and no half of a compiled module is kept for who imports it next."""
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        sys.dont_write_bytecode = written


def killed_while_writing(name: str, folder: Path) -> bool:
    """Whether a child that writes died where it renames a file, or in the middle of an append."""
    child = os.fork()
    if child == 0:
        real = os.write

        def half(descriptor: int, data: bytes) -> int:
            real(descriptor, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
            return 0

        os.write = half
        os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment]
        WRITERS[name].write(folder)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def lost(name: str, folder: Path) -> list[str]:
    """What went wrong when a writer was made to fail."""
    writer, place = WRITERS[name], make(name, folder)
    before, out = place.read_bytes(), []
    unfinished = set(place.parent.glob(f"{TEMPORARY}*"))  # of those that were killed before
    try:
        with full_disk(len(before) + 100 if writer.appends else 100):
            writer.write(folder)
        if writer.checks:
            out.append("no error on a full disk")
    except (InputError, OSError):
        pass
    if place.read_bytes() != before:
        out.append("changed on a full disk")
    if set(place.parent.glob(f"{TEMPORARY}*")) != unfinished:
        out.append("left an unfinished file")
    if not killed_while_writing(name, folder):
        out.append("not killed")
    after = place.read_bytes()
    if not (after.startswith(before) if writer.appends else after == before):
        out.append("changed when killed")
    writer.write(folder)  # what is left of a killed one is in nobody's way
    return out


if __name__ == "__main__":
    where = Path(sys.argv[1])
    prepare(where)
    for each in WRITERS:
        for what in lost(each, where):
            print(f"LOST {each}: {what}")
        print(f"DONE {each}")
