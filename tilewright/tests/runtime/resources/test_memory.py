"""How much memory a run may take, from files as Linux has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.core.errors import ResourceError
from tilewright.runtime.resources.memory import UNLIMITED, memory_limit, require_memory


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="ascii")


MEMINFO = "MemTotal:       2048 kB\nMemFree:   1 kB\nSwapTotal:      1024 kB\n"


def test_memory_and_swap_of_the_machine(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", MEMINFO)
    assert memory_limit(tmp_path) == 3072 << 10


def test_the_tightest_control_group_of_version_2(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", MEMINFO)
    _write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    _write(tmp_path / "sys/fs/cgroup/a/b/memory.max", "max\n")
    _write(tmp_path / "sys/fs/cgroup/a/memory.max", "1000000\n")
    assert memory_limit(tmp_path) == 1000000


def test_a_control_group_of_version_1(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", MEMINFO)
    _write(tmp_path / "proc/self/cgroup", "5:memory:/a\n3:cpu,cpuacct:/a\n")
    limit = tmp_path / "sys/fs/cgroup/memory/a/memory.limit_in_bytes"
    _write(limit, "9223372036854771712\n")
    assert memory_limit(tmp_path) == 3072 << 10
    _write(limit, "4096\n")
    assert memory_limit(tmp_path) == 4096


def test_where_nothing_tells_there_is_no_limit(tmp_path: Path) -> None:
    assert memory_limit(tmp_path) == UNLIMITED


def test_what_no_machine_has_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"m: outputs need 10{30} bytes, expected at most the memory of \d+ bytes"):
        require_memory("m", "outputs", 10**30)
    require_memory("m", "outputs", 1)
