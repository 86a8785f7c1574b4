"""Tuning records of TVM: what is in them, and why none becomes a record here.

Read are the two files of a ``JSONDatabase`` of MetaSchedule and logs of AutoTVM. Of the first two,
``database_workload.json`` has a line ``[hash, module]`` per workload (the module as base64),
``database_tuning_record.json`` a line ``[workload, [trace, run_secs, target, args_info]]`` per record; a trace is
``[instructions, decisions]``, args_info has a ``["TENSOR", dtype, shape]`` per parameter. In a log a line is an
object: ``input`` (target, template, arguments, keywords), ``config`` (``entity`` has the knobs), ``result`` (costs,
error number, total cost, time) and ``version``.
Source: ``src/meta_schedule/database`` and ``python/tvm/autotvm/record.py`` of Apache TVM.

A record here is a trace of a function here, with times that its own machine code took. A trace of TVM names blocks and
loops of TVM's functions (other layouts, no packed operand, other stages), and its times are of TVM's code. What has a
counterpart in kernels of ours is the register tile: how many rows by how many columns of results are summed up at once
(:data:`TILES`). Without a time of ours that is something to try, not a record, and it is told as what it is.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tilewright.core.errors import InputError

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"
NO_TRACE = "its schedule is of TVM's function, whose blocks and loops this compiler does not have"
NO_TIME = "its time is of code that TVM made"
FAILED = "it failed"
OLD = "a log of AutoTVM before version 0.2, which TVM does not read either"
DAMAGED = "not of the form that TVM writes"
TILES: Mapping[str, tuple[tuple[str, ...], str]] = {
    "conv2d_NCHWc.x86": (("tile_oh", "tile_ow"), "tile_oc"),
    "depthwise_conv2d_NCHWc.x86": (("tile_ow",), "tile_oc"),
    "dense_pack.x86": (("tile_y",), "tile_x"),
}
"""Templates of AutoTVM that sum up a tile of results in registers: the knobs whose innermost sizes make up its rows,
and the one that makes up its columns. The others sum along vectors (``dense_nopack.x86``, ``batch_matmul.x86``), or
call a library, or are for other machines."""
_SPATIAL_LEVELS = 4
"""Levels into which MetaSchedule's rule for CPUs cuts each loop over results; the innermost are the register tile."""
_NO_COST = 1e9
"""What AutoTVM writes as the cost of a failure."""


@dataclass(slots=True)
class ForeignTask:
    """What TVM tuned. ``what``: an operator of AutoTVM, or a workload of MetaSchedule by its hash. ``arguments``:
    shapes and types. ``best``: seconds by TVM's code; None if all failed. ``decisions``: of the best record; ``tile``:
    rows and columns of its register tile, None where there is none, or none that is known. ``why``: the reasons that
    its records are not taken, with how often each holds."""

    what: str
    target: str
    arguments: tuple[str, ...] = ()
    records: int = 0
    best: float | None = None
    decisions: Mapping[str, Any] = field(default_factory=dict)
    tile: tuple[int, int] | None = None
    why: dict[str, int] = field(default_factory=dict)

    def refuse(self, *reasons: str) -> None:
        """One more record that is not taken."""
        self.records += 1
        for r in reasons:
            self.why[r] = self.why.get(r, 0) + 1

    def measured(self, seconds: float, decisions: Mapping[str, Any], tile: tuple[int, int] | None) -> None:
        """One more record with a time."""
        self.refuse(NO_TRACE, NO_TIME)
        if self.best is None or seconds < self.best:
            self.best, self.decisions, self.tile = seconds, decisions, tile

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "what": self.what, "target": self.target, "arguments": list(self.arguments), "records": self.records,
            "best_seconds": self.best, "decisions": {k: json.dumps(v) for k, v in self.decisions.items()},
            "tile": None if self.tile is None else list(self.tile), "why": self.why,
        }  # fmt: skip


def is_metaschedule(path: Path) -> bool:
    """True for the directory of a MetaSchedule database, or one of its two files."""
    return (path / RECORDS).is_file() if path.is_dir() else path.name in (WORKLOADS, RECORDS)


def is_autotvm(first: str) -> bool:
    """True for the first line of a log of AutoTVM."""
    data = _json(first)
    return isinstance(data, dict) and ({"input", "config", "result"} <= data.keys() or {"i", "r", "v"} <= data.keys())


def read_metaschedule(path: Path) -> list[ForeignTask]:
    """The tasks of the database in a directory, or that has this file. Raises InputError if a file is missing."""
    folder = path if path.is_dir() else path.parent
    for name in (WORKLOADS, RECORDS):
        if not (folder / name).is_file():
            raise InputError(f"{folder}: expected a database of MetaSchedule, found no {name}")
    hashes = [_hash(line) for line in _lines(folder / WORKLOADS)]
    tasks: dict[tuple[str, str], ForeignTask] = {}
    for line in _lines(folder / RECORDS):
        match _json(line):
            case [int(number), [[list(instructions), list(decisions)], seconds, target, arguments]] if (
                0 <= number < len(hashes)
            ):
                task = _task(tasks, f"workload {hashes[number]}", _target(target))
                task.arguments = task.arguments or tuple(map(_argument, arguments or ()))
                costs = [x for x in seconds or () if isinstance(x, int | float) and 0.0 < x < _NO_COST]
                if costs:
                    made = _decisions(instructions, decisions)
                    task.measured(sum(costs) / len(costs), made, _tile_of_trace(made))
                else:
                    task.refuse(NO_TRACE, FAILED)
            case _:
                _task(tasks, "lines", "").refuse(DAMAGED)
    return list(tasks.values())


def read_autotvm(lines: Iterable[str]) -> list[ForeignTask]:
    """The tasks of a log."""
    tasks: dict[tuple[str, str], ForeignTask] = {}
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        match _json(line):
            case {
                "input": [str(target), str(name), list(arguments), *_],
                "config": {"entity": list(entity)},
                "result": [list(costs), int(error), *_],
            }:
                shown = tuple(map(_argument, arguments))
                task = _task(tasks, name, target, shown)
                good = [x for x in costs if isinstance(x, int | float) and 0.0 < x < _NO_COST]
                if error == 0 and good:
                    knobs = {str(k[0]): k[-1] for k in entity if isinstance(k, list) and k}
                    task.measured(sum(good) / len(good), knobs, _tile_of_knobs(name, knobs))
                else:
                    task.refuse(NO_TRACE, FAILED)
            case {"v": _, "i": _, "r": _}:
                _task(tasks, "lines", "").refuse(OLD)
            case _:
                _task(tasks, "lines", "").refuse(DAMAGED)
    return list(tasks.values())


def _task(
    tasks: dict[tuple[str, str], ForeignTask], what: str, target: str, arguments: tuple[str, ...] = ()
) -> ForeignTask:
    return tasks.setdefault((f"{what} {arguments}", target), ForeignTask(what, target, arguments))


def _argument(x: object) -> str:
    """``float32[1, 3, 224, 224]`` for a tensor of either form; another argument as it is."""
    match x:
        case ["TENSOR", str(dtype), [*shape]]:
            return f"{dtype}{shape}"
        case ["TENSOR", [*shape], str(dtype)]:
            return f"{dtype}{shape}"
    return json.dumps(x)


def _decisions(instructions: Sequence[object], decisions: Sequence[object]) -> dict[str, Any]:
    """What was sampled, by the number and name of the instruction."""
    out: dict[str, Any] = {}
    for d in decisions:
        match d:
            case [int(n), value] if 0 <= n < len(instructions):
                made = instructions[n]
                out[f"{n} {made[0] if isinstance(made, list) and made else '?'}"] = value
    return out


def _tile_of_knobs(template: str, knobs: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns of the register tile that a configuration of AutoTVM asks for."""
    if template not in TILES:
        return None
    rows, columns = TILES[template]
    inner = {k: v[-1] if isinstance(v, list) and v else v for k, v in knobs.items()}
    if template == "dense_pack.x86" and _is_size(inner.get("tile_inner")) and inner["tile_inner"] > 1:
        inner["tile_y"] = inner["tile_inner"]  # which cuts the rows once more
    sizes = [inner[k] for k in rows if k in inner]
    if not sizes or not all(map(_is_size, [*sizes, inner.get(columns)])):
        return None
    return math.prod(sizes), inner[columns]


def _tile_of_trace(decisions: Mapping[str, Any]) -> tuple[int, int] | None:
    """The same of a trace of MetaSchedule: the innermost sizes of the loops that are cut into four, of which the last
    one is that of the columns. A loop that is summed over is cut into two."""
    cuts = [v for k, v in decisions.items() if k.endswith(" SamplePerfectTile") and isinstance(v, list)]
    inner = [v[-1] for v in cuts if len(v) == _SPATIAL_LEVELS]
    return (math.prod(inner[:-1]), inner[-1]) if len(inner) > 1 and all(map(_is_size, inner)) else None


def _is_size(x: object) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and x > 0


def _hash(line: str) -> str:
    match _json(line):
        case [str(name), str(_)]:
            return name
    return "?"


def _target(x: Any) -> str:
    match x:
        case {"kind": str(kind)}:
            return " ".join([kind, *(f"-{k}={v}" for k in ("mcpu", "num-cores") if (v := x.get(k)) is not None)])
    return str(x or "")


def _lines(path: Path) -> list[str]:
    return [x for x in path.read_text("utf-8", errors="replace").splitlines() if x.strip()]


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
