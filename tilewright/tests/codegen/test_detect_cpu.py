"""Targets: detection, target strings, caches and thread counts from files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import pytest

from tilewright import Schedule
from tilewright.codegen import detect_cpu
from tilewright.codegen.detect_cpu import (
    detect_host,
    parse_target,
    require_runs_here,
    runs_here,
    tiles_refusal,
    usable_features,
    why_foreign,
)
from tilewright.codegen.kernel import build
from tilewright.codegen.permissions import why_no_matrix_tiles
from tilewright.core import dtypes
from tilewright.core.errors import TargetError
from tilewright.machine.target import Target
from tilewright.machine.vectors import has_matrix_tiles
from tilewright.runtime.resources.threads import count_threads
from tilewright.tensor_ir.compute import build_func, compute, placeholder

FOREIGN = Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon", 128, 32, 32 << 10, 512 << 10, 0, 1)


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


def test_what_a_named_cpu_has_is_what_llvm_says() -> None:
    triple = "x86_64-unknown-linux-gnu"
    haswell = parse_target(f"llvm -mtriple={triple} -mcpu=haswell").features.split(",")
    assert {"+avx2", "+bmi2", "+f16c", "+fma", "+movbe"} <= set(haswell)
    assert not any(f.startswith("+avx512") for f in haswell)
    rapids = parse_target(f"llvm -mtriple={triple} -mcpu=sapphirerapids").features.split(",")
    assert {"+amx-int8", "+avx512fp16", "+avx512vnni"} <= set(rapids)


AMX = {"amx-tile": True, "amx-bf16": True, "avx2": True, "sse4a": False}


def test_matrix_tiles_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(text: str) -> None:
        def why() -> str:
            asked.append(text)
            return text

        monkeypatch.setattr(detect_cpu, "why_no_matrix_tiles", why)

    answer("")
    assert usable_features(AMX) == "+amx-bf16,+amx-tile,+avx2,-sse4a"
    assert tiles_refusal(AMX) == ""
    answer("the system refuses them")
    assert usable_features(AMX) == "-amx-bf16,-amx-tile,+avx2,-sse4a"
    assert tiles_refusal(AMX) == "the system refuses them"
    asked.clear()
    assert usable_features({**AMX, "amx-tile": False, "amx-bf16": False}) == "-amx-bf16,-amx-tile,+avx2,-sse4a"
    assert usable_features({"neon": True}) == "+neon"
    assert not asked, "a CPU without them asks nobody"


def test_who_has_matrix_tiles() -> None:
    linux, rapids = "llvm -mtriple=x86_64-unknown-linux-gnu", "-mcpu=sapphirerapids"
    cases = {
        f"{linux} {rapids}": {"dot2", "dot4"},
        f"{linux} {rapids} -mattr=-amx-bf16": {"dot4"},
        f"{linux} {rapids} -mattr=-amx-tile": set(),
        f"{linux} -mcpu=rocketlake -mattr=+amx-bf16,+amx-int8": {"dot2", "dot4"},
        f"{linux} -mcpu=znver4": set(),
        f"llvm -mtriple=x86_64-pc-windows-msvc {rapids}": set(),
    }
    for text, wanted in cases.items():
        assert {p for p in ("dot2", "dot4") if has_matrix_tiles(parse_target(text), p)} == wanted, text


def test_the_system_s_answer_is_a_reason_or_a_permission() -> None:
    """Asked on any machine: one without the tiles says no in words."""
    reason = why_no_matrix_tiles()
    if not llvm.get_host_cpu_features().get("amx-tile"):
        assert "arch_prctl" in reason or "permission" in reason


def test_what_this_machine_cannot_run() -> None:
    host = detect_host()
    assert why_foreign(replace(host, threads=77)) == ""
    assert "built for aarch64-unknown-linux-gnu, this machine is" in why_foreign(FOREIGN)
    lacking = replace(host, cpu="generic", features="+quantum,+shstk")
    assert why_foreign(lacking) == f"built for generic, this CPU ({host.cpu}) lacks quantum"
    with pytest.raises(TargetError, match=r"net: built for generic, this CPU .* lacks quantum"):
        require_runs_here(lacking, "net")
    if host.triple.startswith("x86_64"):
        assert "lacks" in why_foreign(replace(host, cpu="diamondrapids", features="")), "the name implies features"
        assert "this machine is" in why_foreign(replace(host, triple="x86_64-pc-windows-msvc"))
        assert runs_here(parse_target("llvm -mcpu=x86-64"))


def test_foreign_code_is_not_called() -> None:
    x = placeholder("X", (4,), dtypes.float32)
    func = build_func("double", [x], [compute("Y", (4,), lambda i: x[i] + x[i])])
    with pytest.raises(TargetError, match="double: built for aarch64-unknown-linux-gnu"):
        build(func, FOREIGN)
    with pytest.raises(TargetError, match=r"time\(double\): built for aarch64-unknown-linux-gnu"):
        Schedule(func).time(target=FOREIGN)


def test_options() -> None:
    t = parse_target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=znver4 -mattr=-avx512f -num-threads=3")
    assert (t.vector_bits, t.threads) == (256, 3)
    words = t.features.split(",")
    assert "+avx2" in words
    assert {"-avx512f", "-avx512bw"} <= set(words), "what needs the feature goes with it"
    assert not any(w.startswith("+avx512") for w in words)
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
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=icelake",
         "LLVM knows no CPU 'icelake' for x86_64; did you mean 'icelake-client' or 'icelake-server'"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylkae", "LLVM knows no CPU 'skylkae' .* 'skylake'"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=Haswell", r"did you mean 'haswell'\?"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=help", "LLVM knows no CPU 'help'"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=pentium4", "LLVM cannot compile for this CPU: .*64-bit code"),
        ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n9", "for aarch64; did you mean 'neoverse-n"),
        ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell -mattr=+avx3", "LLVM knows no feature 'avx3'; did you"),
        ("llvm -mattr=+fast-math", "LLVM knows no feature 'fast-math'"),
        ("llvm -mtriple=toaster-none-none", "LLVM has no architecture 'toaster' in -mtriple"),
        ("llvm -mtriple=x86_46-unknown-linux-gnu", "LLVM has no architecture 'x86_46' .* did you mean 'x86_64'"),
        ("llvm -mtriple=x86_64-linx-gnu", "unknown system 'linx' in -mtriple; did you mean 'linux'"),
        ("llvm -mtriple=x86_64-unknown-linx-gnu", "unknown system 'linx' in -mtriple; did you mean 'linux'"),
    ],
)  # fmt: skip
def test_nonsense(text: str, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_target(text)


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


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
