"""The object cache: hits, damage, limits, keys; and the settings that name it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tilewright.codegen.cache import ObjectCache, object_key, sources_version
from tilewright.codegen.detect_cpu import detect_host
from tilewright.codegen.llvm import jit
from tilewright.codegen.llvm.jit import cached_object
from tilewright.core.config import Config, from_environment
from tilewright.core.errors import TilewrightError
from tilewright.core.io.files import TEMPORARY

KEY = object_key("kernel", detect_host())


def test_hit_and_miss(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "c")
    assert cache.get(KEY) is None
    cache.put(KEY, b"code")
    assert cache.get(KEY) == b"code"
    assert [p.name for p in (tmp_path / "c" / KEY[:2]).iterdir()] == [KEY[2:] + ".o"]


def test_an_object_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, host, cache = "define void @f() { ret void }", detect_host(), ObjectCache(tmp_path)
    code = cached_object(text, host, 2, cache)
    assert code == cached_object(text, host, 2, None)
    monkeypatch.setattr(jit, "compile_object", lambda *_: b"again")
    assert cached_object(text, host, 2, cache) == code
    assert cached_object(text, host, 1, cache) == b"again"


@pytest.mark.parametrize("damage", [b"", b"x", b"x" * 40])
def test_damaged_entry_is_ignored_and_rewritten(tmp_path: Path, damage: bytes) -> None:
    cache = ObjectCache(tmp_path)
    cache.put(KEY, b"code")
    next(tmp_path.glob("*/*.o")).write_bytes(damage)
    assert cache.get(KEY) is None
    cache.put(KEY, b"code")
    assert cache.get(KEY) == b"code"


def test_least_recently_used_goes_first(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, limit_bytes=250)
    keys = [object_key(str(i), detect_host()) for i in range(3)]
    for i, k in enumerate(keys):
        cache.put(k, bytes(68))
        os.utime(cache._path(k), (i, i))
    assert cache.get(keys[0]) is not None  # renews it
    assert cache.trim() == 1
    assert [cache.get(k) is None for k in keys] == [False, True, False]


def test_a_cache_is_not_looked_through_after_every_build(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path, limit_bytes=100)
    keys = [object_key(str(i), detect_host()) for i in range(3)]
    deleted = []
    for k in keys:
        cache.put(k, bytes(68))
        deleted.append(cache.trim_sometimes())
    assert deleted == [0, 0, 0]  # the first look found one entry only
    os.utime(tmp_path / "trimmed", (0, 0))
    assert cache.trim_sometimes() == 2


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ObjectCache(tmp_path / "file" / "below").put(KEY, b"code")
    none = ObjectCache(None)
    none.put(KEY, b"code")
    assert none.get(KEY) is None
    assert none.trim() == 0


def test_key_depends_on_everything() -> None:
    host = detect_host()
    other = dataclasses.replace(host, features=host.features + ",+new")
    rooms = ("core", "machine", "tensor_ir", "schedule", "codegen")
    keys = {
        KEY,
        object_key("kernel2", host),
        object_key("kernel", other),
        object_key("kernel", host, 1),
        object_key("kernel", host, rooms=rooms),
    }
    assert len(keys) == 5
    assert len(sources_version(rooms)) == 16


def test_settings() -> None:
    assert from_environment({"HOME": "/h"}) == Config(Path("/h/.cache/tilewright"))
    assert from_environment({"XDG_CACHE_HOME": "/x"}).cache_dir == Path("/x/tilewright")
    assert from_environment({"TILEWRIGHT_CACHE": "/y", "TILEWRIGHT_CACHE_BYTES": "5"}) == Config(Path("/y"), 5)
    assert from_environment({"TILEWRIGHT_CACHE": "off"}).cache_dir is None
    assert [from_environment({"HOME": "/h", "TILEWRIGHT_VERIFY": v}).verify for v in "01"] == [False, True]
    with pytest.raises(TilewrightError, match="TILEWRIGHT_VERIFY: expected 0 or 1, got 'yes'"):
        from_environment({"TILEWRIGHT_VERIFY": "yes", "HOME": "/h"})
    with pytest.raises(TilewrightError, match="TILEWRIGHT_CACHE_BYTES: expected a number of bytes, got 'many'"):
        from_environment({"TILEWRIGHT_CACHE_BYTES": "many", "HOME": "/h"})


def test_other_files_in_the_directory_stay(tmp_path: Path) -> None:
    """Whoever names a directory that has files already keeps them; what a killed process left goes after a while."""
    zeros = "0" * 62
    names = ["ab/main.o", f"ab/{zeros}0.o", f"build/{zeros}.o", f"ab/{zeros}.txt", f"ab/{TEMPORARY}1-1-0", "notes"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(1000))
    cache = ObjectCache(tmp_path, limit_bytes=10)
    cache.put("ab" + "1" * 62, bytes(100))
    assert cache.trim() == 1
    assert all((tmp_path / name).exists() for name in names)
    os.utime(tmp_path / names[4], (1, 1))
    cache.trim()
    assert [name for name in names if not (tmp_path / name).exists()] == [names[4]]
