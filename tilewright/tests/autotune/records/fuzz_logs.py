"""Damaged logs, read by everything that reads logs: ``python -m tilewright.tests.autotune.records.fuzz_logs``.

Whatever is wrong with a line, the lines beside it are found, and nothing is raised but our own errors.
"""

from __future__ import annotations

import argparse
import contextlib
import copy as copies
import dataclasses
import functools
import json
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright.autotune.base.workload import workload_of
from tilewright.autotune.lookup.lookup import best_traces, look_up
from tilewright.autotune.records.compact import compact_line, lines_with_definitions
from tilewright.autotune.records.database import POLICIES, JSONDatabase, MemoryDatabase
from tilewright.autotune.records.definitions import MissingDefinition
from tilewright.autotune.records.reading import LineReader, from_line
from tilewright.autotune.records.record import Choice, Line, Record, RecordWarning, Verdict, result_of, to_line
from tilewright.commands.db.show import rows_of, show
from tilewright.commands.db.top import best, names_of, top
from tilewright.core.errors import TilewrightError
from tilewright.inspect.report.page import report
from tilewright.tests.autotune.records.log_helper import HERE, candidates, dense, record, verdict, with_threads, wrong

NETWORK = "net"
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 3, 1 << 40, 10**30, 10**400, 0.5, -0.0, 1e308, "", "x", "i0", "8", "\x00",
    "\ud800", "é\u2028", [], {}, [None], ["x", 1], [[[[]]]], {"a": {"b": []}}, "def f(", "lambda: 0", "(" * 5000,
    [0] * 3000,
)  # fmt: skip


@functools.cache
def sample() -> tuple[str, ...]:
    """A log of two kernels with a record of each kind."""
    found = [record(dense(m), c, 1e-3 * (5 - i), time=float(i)) for m in (24, 30) for i, c in
             enumerate(candidates(dense(m), HERE, 3))]  # fmt: skip
    extra = dataclasses.replace(found[1], extra={"predicted": 0.5, "batch": 0, "weight": 0.2, "default": True})
    named = dataclasses.replace(found[2], function=found[2].workload.text.replace("x0", "left"))
    choice = Choice(found[0].workload.hash, NETWORK, HERE, "direct", {"direct": 1e-3, "other": 2e-3}, 9.0)
    bad = wrong(dense(), candidates(dense(), HERE, 5)[4])
    lines = [*found, extra, named, with_threads(found[0], 8), verdict(found[1], NETWORK, True, 7.0), choice, bad]
    return tuple(to_line(x) for x in lines)


@functools.cache
def short_sample() -> tuple[str, ...]:
    """The same log in schema 2: definitions in lines of their own."""
    out: list[bytes] = []
    known: set[str] = set()
    for text in sample():
        line = from_line(text)
        assert line is not None
        made, new = lines_with_definitions([compact_line(line)], known, known)
        known |= new
        out += made
    return tuple(x.decode() for x in out)


# -- damage --------------------------------------------------------------------------------------------------------
def _flipped(rng: random.Random, line: bytes) -> bytes:
    out = bytearray(line)
    for _ in range(rng.randint(1, 3)):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def _cut(rng: random.Random, line: bytes) -> bytes:
    return line[: rng.randrange(len(line))]


def _spliced(rng: random.Random, line: bytes) -> bytes:
    at, other = rng.randrange(len(line)), rng.choice(sample()).encode()
    return line[:at] + other[rng.randrange(len(other)) :]


def _garbage(rng: random.Random, line: bytes) -> bytes:
    return rng.randbytes(rng.randint(1, 400))


def _nested(rng: random.Random, line: bytes) -> bytes:
    depth = rng.choice((50, 700, 3000, 200_000))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}")))
    value = opening * depth + (b"1" if opening != b"[" else b"") + closing * depth
    at = rng.choice([n for n, c in enumerate(line) if c == ord(":")])
    return line[: at + 1] + value + line[at + 1 :] if rng.random() < 0.5 else b'{"schema":1,"x":' + value + b"}"


def _rewritten(rng: random.Random, line: bytes) -> bytes:
    data = json.loads(line)
    for _ in range(rng.randint(1, 2)):
        _change(rng, data)
    separators = rng.choice(((",", ":"), (", ", ": ")))
    return json.dumps(data, separators=separators).encode()


def _change(rng: random.Random, data: Any) -> None:
    """Another value, one key less or one more, somewhere."""
    while True:
        keys = list(data) if isinstance(data, dict) else list(range(len(data)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(data[key], dict | list) and data[key] and rng.random() < 0.8:
            data = data[key]
            continue
        match rng.randrange(4):
            case 0 if isinstance(data, dict):
                del data[key]
            case 1 if isinstance(data, dict):
                data[rng.choice(("mood", "seconds", "args", "x"))] = copies.deepcopy(rng.choice(JUNK))
            case 2:
                data[key] = copies.deepcopy(data[rng.choice(keys)])
            case _:
                data[key] = copies.deepcopy(rng.choice(JUNK))
        return


DAMAGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    _flipped, _cut, _spliced, _garbage, _nested, _rewritten, _rewritten, _rewritten,
)  # fmt: skip


def damaged(seed: int) -> tuple[bytes, list[str]]:
    """A log, and the lines that are in it as they were, with their definitions. Every other one is of schema 2."""
    rng = random.Random(seed)
    texts = short_sample() if seed % 2 else sample()
    lines = [x.encode() for x in texts]
    whole = [rng.random() < 0.6 for _ in lines]
    whole[0] = True  # what is a log is another test
    out = [x if w else rng.choice(DAMAGES)(rng, x).replace(b"\n", b" ") for x, w in zip(lines, whole, strict=True)]
    end = rng.random() < 0.8
    if not end:
        whole[-1] = False
    return b"\n".join(out) + b"\n" * end, _readable([x for x, w in zip(lines, whole, strict=True) if w])


def _readable(lines: list[bytes]) -> list[str]:
    """The lines among these that need nothing else, each by itself."""
    reader = LineReader()
    out = []
    for raw in [x for x in lines if not reader.define(x)]:
        with contextlib.suppress(MissingDefinition):
            line = reader.read(raw.decode())
            assert line is not None
            out.append(to_line(line))
    return out


# -- reading -------------------------------------------------------------------------------------------------------
def check(seed: int, folder: Path) -> None:
    """Raises what a damaged log should not."""
    data, good = damaged(seed)
    path = folder / f"{seed}.jsonl"
    path.write_bytes(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecordWarning)
        database = JSONDatabase(path)
        lines = list(database.lines())
        written = [to_line(x) for x in lines]
        assert set(good) <= set(written), "lines that were whole are lost"
        assert [from_line(x) for x in written] == lines
        _copy(database, folder / f"{seed}-copy.jsonl", lines)
        _use(database, path)
        copied = MemoryDatabase()
        assert copied.merge(database) == len(set(written))
        before = {to_line(r) for m in (24, 30) for r in database.top_k(workload_of(dense(m)), 1, HERE)}
        count = len(database.skipped)
        assert JSONDatabase(path).prune() >= 0
        assert before <= {to_line(x) for x in database.lines()}
        assert len(database.skipped) <= count + 1, "a last line without its end may be complete now"


def _copy(database: JSONDatabase, path: Path, lines: list[Line]) -> None:
    """A log of what was read has the same, and no damage."""
    copy = JSONDatabase(path)
    copy.merge(database)
    again = [x for x in copy.lines() if x in lines]
    assert len(again) >= len({to_line(x) for x in lines}), "lines that are lost when they are written again"
    copy.prune()
    assert all("definition" in x for x in copy.skipped), copy.skipped


def _use(database: JSONDatabase, path: Path) -> None:
    """Look-ups, commands, the page."""
    for m in (24, 30, 31):
        func = dense(m)
        for policy in POLICIES:
            database.top_k(workload_of(func), 3, HERE, policy)
        look_up(func, HERE, database, network=NETWORK)
        best_traces(func, HERE, database, 3)
        database.choice(workload_of(func), HERE, NETWORK)
        for r in database.measured(workload_of(func), HERE).values():
            result_of(r)
            r.choices()
    database.to_arrays()
    lines = list(database.lines())
    show(rows_of(lines), [x for x in lines if isinstance(x, Verdict)])
    for call in (lambda: top(best(lines, 2), names_of(lines), True), lambda: report(path).encode()):
        try:
            call()
        except TilewrightError:
            continue
    assert all(isinstance(x, Record) for x in database.records())


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=2000)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(args.seed, args.seed + args.count):
            try:
                check(seed, Path(folder))
            except Exception:  # noqa: BLE001 - whatever it is, it is what this looks for
                failed += 1
                print(f"seed {seed}:\n{traceback.format_exc(limit=-6)}", flush=True)
    print(f"{args.count} logs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
