"""Registers, code and bytes read off the loops."""

from tilewright.autotune.base.resource_check import local_bytes, tile_bytes, tile_vectors, written_out
from tilewright.machine.target import Target
from tilewright.schedule.schedule import Schedule
from tilewright.tests.schedule.kernels import packed_matmul

TARGET = Target("x86_64-unknown-linux-gnu", "x86-64-v3", "+avx2,+fma", 256, 16, 32 << 10, 512 << 10, 32 << 20, 2)


def tiled(rows: int) -> Schedule:
    """A matrix product of 48 x 64 x 32 in tiles of ``rows`` x 16, written out."""
    s = Schedule(packed_matmul(48, 64, 32))
    over, _ = s.split("C_m", (None, rows))
    columns, _ = s.split("C_n", (None, 16))
    s.reorder(over, columns, "C_m_1", "C_n_1")
    s.compute_at("acc", columns)
    s.reorder("k", "acc_m", "acc_ni")
    s.decompose_reduction("acc", "k")
    s.unroll("acc_m")
    s.vectorize("acc_ni")
    return s


def test_a_tile_counts_its_written_out_results():
    assert tile_vectors(tiled(6).func, TARGET) == 12
    assert tile_vectors(Schedule(packed_matmul(48, 64, 32)).func, TARGET) == 1


def test_code_counts_every_copy():
    func = tiled(6).func
    assert written_out(func.body) == 1 + 6 + 1  # the initial values and the epilogue are loops


def test_local_buffers_that_live_together():
    assert local_bytes(tiled(6).func.body) == 6 * 16 * 4


def test_a_tile_reads_a_panel_and_its_rows():
    assert tile_bytes(tiled(6).func) == 4 * 32 * (6 + 16)
    assert tile_bytes(Schedule(packed_matmul(48, 64, 32)).func) == 0
