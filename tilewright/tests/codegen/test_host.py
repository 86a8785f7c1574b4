"""Targets: detection, target strings, caches and thread counts from files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.codegen.host import detect_host, parse_target, read_caches, runs_here
from tilewright.core.errors import TargetError
from tilewright.runtime.threads import count_threads


def test_host() -> None:
    host = detect_host()
    assert host.vector_bits in (128, 256, 512)
    assert host.l1_bytes >= 8 * 1024
    assert host.threads >= 1
    assert parse_target(None) is host
    assert runs_here(host)


@pytest.mark.parametrize(
    ("cpu", "bits", "registers", "fma"),
    [("znver4", 512, 32, True), ("skylake-avx512", 512, 32, True), ("haswell", 256, 16, True),
     ("skylake", 256, 16, True), ("sandybridge", 256, 16, False), ("x86-64", 128, 16, False),
     ("x86-64-v3", 256, 16, True), ("diamondrapids", 512, 32, True), ("pantherlake", 256, 16, True)],
)  # fmt: skip
def test_named_cpus(cpu: str, bits: int, registers: int, fma: bool) -> None:
    t = parse_target(f"llvm -mtriple=x86_64-unknown-linux-gnu -mcpu={cpu}")
    assert (t.cpu, t.vector_bits, t.vector_registers, t.has_fma) == (cpu, bits, registers, fma)


def test_options() -> None:
    t = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -mattr=-avx512f -num-threads=3")
    assert (t.vector_bits, t.threads) == (256, 3)
    arm = parse_target("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1")
    assert (arm.vector_bits, arm.vector_registers) == (128, 32)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cuda", "expected 'llvm' first, got 'cuda'"),
        ("", "expected 'llvm' first"),
        ("llvm -mcpu", "expected -mcpu=, -mattr=, -mtriple= or -num-threads= with a value, got '-mcpu'"),
        ("llvm -O3=1", "got '-O3=1'"),
        ("llvm -num-threads=0", "-num-threads must be a number >= 1, got '0'"),
        ("llvm -mattr=avx2", "-mattr expects"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=pentium9", "unknown x86 CPU 'pentium9'"),
        ("llvm -mtriple=toaster-none-none", "toaster"),
    ],
)
def test_nonsense(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target(text)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def test_caches(tmp_path: Path) -> None:
    write(tmp_path, {"index0/level": "1", "index0/type": "Data\n", "index0/size": "48K",
                     "index1/level": "1", "index1/type": "Instruction", "index1/size": "32K",
                     "index2/level": "2", "index2/type": "Unified", "index2/size": "2M"})  # fmt: skip
    assert read_caches(tmp_path)[:2] == (48 * 1024, 2 * 1024**2)
    assert read_caches(tmp_path / "absent")[0] == 32 * 1024


def test_quota_of_cgroup_2(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/cpu.max": "max 100000",
                     "sys/fs/cgroup/a/cpu.max": "100000 100000"})  # fmt: skip
    found = count_threads(tmp_path)
    assert (found.quota, found.count) == (1.0, 1)
    assert "cgroup quota 1" in found.reasons


def test_quota_of_cgroup_1(tmp_path: Path) -> None:
    write(tmp_path, {"proc/self/cgroup": "4:cpu,cpuacct:/x\n3:memory:/x\n",
                     "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us": "150000",
                     "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us": "100000"})  # fmt: skip
    found = count_threads(tmp_path)
    assert (found.quota, found.count) == (1.5, 1)


def test_nothing_known(tmp_path: Path) -> None:
    found = count_threads(tmp_path)
    assert found.quota is None
    assert found.physical is None
    assert found.count == found.affinity


def test_hyperthreads_share_a_core(tmp_path: Path) -> None:
    files = {}
    for n in range(1024):
        files[f"sys/devices/system/cpu/cpu{n}/topology/core_id"] = "0"
        files[f"sys/devices/system/cpu/cpu{n}/topology/physical_package_id"] = "0"
        if n > 64:
            break
    write(tmp_path, files)
    assert count_threads(tmp_path).count == 1
