"""Records of TVM are read for what they are; none becomes a record of ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilewright.autotune.exchange import tvm
from tilewright.core.errors import InputError

TARGET = {"kind": "llvm", "mcpu": "znver4", "num-cores": 2, "keys": ["cpu"]}
TRACE = [
    [
        ["GetBlock", [], ["matmul", "main"], ["b0"]],
        ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
        ["SamplePerfectTile", ["l1"], [4, 64], ["v4", "v5", "v6", "v7"]],
        ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v8"]],
    ],
    [[2, [1, 8, 2, 32]], [3, 1]],
]
ARGUMENTS = [["TENSOR", "float32", [512, 512]]] * 3


def metaschedule(folder: Path, *more: object) -> Path:
    """A database of two workloads with three records and what else is given."""
    records = [[0, [TRACE, [2e-3, 4e-3], TARGET, ARGUMENTS]], [0, [TRACE, [1e-3], TARGET, ARGUMENTS]],
               [1, [TRACE, None, TARGET, None]]]  # fmt: skip
    (folder / tvm.WORKLOADS).write_text('["1234567890", "e30="]\n["987", "e30="]\n')
    (folder / tvm.RECORDS).write_text("".join(f"{json.dumps(r)}\n" for r in [*records, *more]))
    return folder


def autotvm(**changes: object) -> str:
    """A line of a log."""
    data = {
        "input": [
            "llvm -keys=cpu -mcpu=core-avx2", "conv2d_NCHWc.x86",
            [["TENSOR", [1, 3, 224, 224], "float32"], ["TENSOR", [64, 3, 7, 7], "float32"], [2, 2], "NCHW"], {},
        ],
        "config": {"index": 3, "code_hash": None, "entity": [["tile_ic", "sp", [-1, 3]], ["unroll_kw", "ot", True]]},
        "result": [[0.002, 0.004], 0, 1.2, 1600000000.0], "version": 0.2, "tvm_version": "0.9.0",
    }  # fmt: skip
    return json.dumps({**data, **changes})


def test_a_metaschedule_database(tmp_path: Path) -> None:
    metaschedule(tmp_path, [7, [TRACE, [1.0], TARGET, None]], [0, "x"])
    for place in (tmp_path, tmp_path / tvm.RECORDS, tmp_path / tvm.WORKLOADS):
        assert tvm.is_metaschedule(place)
        first, second, damaged = tvm.read_metaschedule(place)
        assert (first.what, first.target, first.records, first.best) == (
            "workload 1234567890", "llvm -mcpu=znver4 -num-cores=2", 2, 1e-3,
        )  # fmt: skip
        assert first.arguments == ("float32[512, 512]",) * 3
        assert first.decisions == {"2 SamplePerfectTile": [1, 8, 2, 32], "3 SampleCategorical": 1}
        assert first.why == {tvm.NO_TRACE: 2, tvm.NO_TIME: 2}
        assert second.why == {tvm.NO_TRACE: 1, tvm.FAILED: 1}
        assert second.best is None
        assert damaged.why == {tvm.DAMAGED: 2}
    (tmp_path / tvm.WORKLOADS).unlink()
    with pytest.raises(InputError, match=r"expected a database of MetaSchedule, found no database_workload\.json"):
        tvm.read_metaschedule(tmp_path)


def test_a_log_of_autotvm() -> None:
    failed = autotvm(result=[[1e9], 4, 1.0, 1.0])
    old = json.dumps({"i": [], "r": [], "v": 0.1})
    first, others = tvm.read_autotvm(["# a comment", autotvm(), failed, "", old, "{", "[]"])
    assert (first.what, first.records, first.best) == ("conv2d_NCHWc.x86", 2, pytest.approx(0.003))
    assert first.arguments[:3] == ("float32[1, 3, 224, 224]", "float32[64, 3, 7, 7]", "[2, 2]")
    assert first.decisions == {"tile_ic": [-1, 3], "unroll_kw": True}
    assert first.why == {tvm.NO_TRACE: 2, tvm.NO_TIME: 1, tvm.FAILED: 1}
    assert first.tile is None, "its configuration is not whole"
    assert others.why == {tvm.OLD: 1, tvm.DAMAGED: 2}
    assert tvm.is_autotvm(autotvm())
    assert tvm.is_autotvm(old)
    assert not tvm.is_autotvm('{"schema": 1}')
    assert not tvm.is_autotvm("text")


@pytest.mark.parametrize(
    ("template", "entity", "tile"),
    [
        ("conv2d_NCHWc.x86", [["tile_ic", "sp", [-1, 3]], ["tile_oc", "sp", [-1, 16]], ["tile_ow", "sp", [-1, 14]],
                              ["unroll_kw", "ot", True]], (14, 16)),
        ("conv2d_NCHWc.x86", [["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, 7]], ["tile_oh", "ot", 2]], (14, 32)),
        ("depthwise_conv2d_NCHWc.x86", [["tile_oc", "sp", [-1, 8]], ["tile_ow", "sp", [-1, 4]]], (4, 8)),
        ("dense_pack.x86", [["tile_y", "sp", [-1, 2, 8]], ["tile_x", "sp", [-1, 4, 32]], ["tile_k", "sp", [-1, 1]],
                            ["tile_inner", "sp", [-1, 1]]], (8, 32)),
        ("dense_pack.x86", [["tile_y", "sp", [-1, 2, 8]], ["tile_x", "sp", [-1, 4, 32]],
                            ["tile_inner", "sp", [-1, 4]]], (4, 32)),
        ("dense_nopack.x86", [["tile_y", "sp", [-1, 1]], ["tile_x", "sp", [-1, 8]]], None),
        ("batch_matmul.x86", [["tile_y", "sp", [-1, 8]], ["tile_x", "sp", [-1, 8]]], None),
        ("conv2d_nchw_spatial_pack.arm_cpu", [["tile_co", "sp", [-1, 8]], ["tile_ow", "sp", [-1, 8]]], None),
        ("dense_pack.x86", [["tile_y", "sp", [-1, 2, "8"]], ["tile_x", "sp", []]], None),
        ("dense_pack.x86", [["tile_y", "ot", True], ["tile_x", "sp", [-1, 8]]], None),
    ],
)  # fmt: skip
def test_tiles_of_templates(template: str, entity: object, tile: tuple[int, int] | None) -> None:
    data = json.loads(autotvm())
    line = autotvm(input=[data["input"][0], template, *data["input"][2:]], config={"entity": entity})
    (task,) = tvm.read_autotvm([line])
    assert task.tile == tile
    assert task.to_json()["tile"] == (None if tile is None else list(tile))


@pytest.mark.parametrize(
    ("cuts", "tile"),
    [
        ([[1, 8, 2, 32], [2, 4, 4, 16], [64, 8]], (32, 16)),
        ([[1, 1, 1, 1], [2, 2, 7, 2], [1, 14, 1, 4], [8, 1, 1, 16], [16, 4], [3, 1]], (8, 16)),
        ([[1, 8, 2, 32], [64, 8]], None),
        ([[4, 4], [8, 8]], None),
        ([[1, 8, 2, None], [2, 4, 4, 16]], None),
    ],
)
def test_tiles_of_traces(cuts: list[object], tile: tuple[int, int] | None, tmp_path: Path) -> None:
    trace = [[["SamplePerfectTile", ["l"], [4, 64], []]] * len(cuts), [[n, cut] for n, cut in enumerate(cuts)]]
    metaschedule(tmp_path, [1, [trace, [1e-4], TARGET, None]])
    assert tvm.read_metaschedule(tmp_path)[1].tile == tile


def test_the_tile_is_that_of_the_best_record() -> None:
    entities = [[["tile_oc", "sp", [-1, 16]], ["tile_ow", "sp", [-1, n]]] for n in (2, 7, 14)]
    lines = [
        autotvm(config={"entity": e}, result=[[s], 0, 1.0, 1.0])
        for e, s in zip(entities, (3e-3, 1e-3, 2e-3), strict=True)
    ]
    (task,) = tvm.read_autotvm(lines)
    assert (task.best, task.tile) == (1e-3, (7, 16))
