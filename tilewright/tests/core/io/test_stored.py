"""Parts of files as arrays: read when asked for, never seen to change, and let go of."""

from __future__ import annotations

import dataclasses
import gc
import io
import os
import weakref
from pathlib import Path

import numpy as np
import pytest

from tilewright.core.errors import ModelError
from tilewright.core.io.stored import Scratch, StoredArray, StoredBytes, StoredFile, content_of, loaded

WORDS = np.arange(60_000, dtype=np.uint32)
CHANGED = r"words has changed since it was opened"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    out = tmp_path / "words"
    out.write_bytes(b"head" + WORDS.tobytes())
    return out


def opened(path: Path) -> StoredFile:
    return StoredFile(path, io.FileIO(path))


def words(path: Path) -> StoredArray:
    return StoredArray.dense(StoredBytes(opened(path), 4, WORDS.nbytes), WORDS.dtype, (200, 300))


@pytest.mark.parametrize("has_preadv", [True, False])
def test_a_file_is_indexed_and_read_like_bytes(path: Path, has_preadv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not has_preadv:
        monkeypatch.delattr(os, "preadv", raising=False)
    file, data = opened(path), path.read_bytes()
    assert len(file) == len(data)
    for at in (0, 5, 40_000, 3, len(data) - 1, 100_000):
        assert file[at] == data[at]
    assert file.read(7, 100_001) == data[7:100_008]
    assert file.read(9, 0) == b""
    np.testing.assert_array_equal(words(path).array(), WORDS.reshape(200, 300))


def test_arrays_are_locked_aligned_and_in_memory_once(path: Path) -> None:
    stored = words(path)
    a, b = stored.array(), stored.array()
    assert np.shares_memory(a, b)
    assert a.__array_interface__["data"][0] % 64 == 0
    with pytest.raises(ValueError, match="read-only"):
        a[0] = 1


def test_views_are_described_and_keep_nothing(path: Path) -> None:
    stored = words(path)
    array = stored.array()
    views = [array.T, array[3:90:2, ::-1], array.reshape(-1)[7:8], array.view(np.int16), np.transpose(array[None])]
    wanted = [v.copy() for v in views]
    contents = [content_of(v) for v in views]
    memory = array
    while isinstance(memory.base, np.ndarray):
        memory = memory.base
    dead = weakref.ref(memory)
    del array, memory, views
    gc.collect()
    assert dead() is None
    for c, w in zip(contents, wanted, strict=True):
        assert isinstance(c, StoredArray)
        assert (c.shape, c.dtype, c.nbytes) == (w.shape, w.dtype, w.nbytes)
        np.testing.assert_array_equal(c.array(), w)


def test_a_transposed_description_reads_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = words(path)
    with monkeypatch.context() as m:
        m.setattr(StoredFile, "read_into", None)
        turned = stored.transposed()
    wanted = content_of(stored.array().T)
    assert isinstance(wanted, StoredArray)
    assert turned.key() == wanted.key()
    np.testing.assert_array_equal(turned.array(), WORDS.reshape(200, 300).T)


def test_a_converted_description_reads_nothing_until_it_is_asked(path: Path) -> None:
    own = words(path)
    other = own.converted(np.dtype(np.float32)).transposed()
    assert (other.dtype, other.shape, other.nbytes) == (np.float32, own.shape[::-1], own.array().size * 4)
    np.testing.assert_array_equal(other.array(), own.array().T.astype(np.float32))
    again = own.converted(np.dtype(np.float32)).converted(np.dtype(np.float64))
    np.testing.assert_array_equal(again.array(), own.array().astype(np.float64))
    assert own.key() != other.key() != again.key()


def test_copies_and_arrays_of_other_memory_are_themselves(path: Path) -> None:
    stored = words(path)
    for a in (stored.array().copy(), stored.array() + 1, WORDS, WORDS[3:], stored.array()[:0]):
        assert content_of(a) is a
        assert loaded(a) is a
    assert stored.key() == dataclasses.replace(stored).key()
    assert stored.key() != words(path).key()


def test_scratch_is_used_again_and_not_remembered(path: Path) -> None:
    stored, scratch = words(path), Scratch()
    a = stored.array(scratch)
    np.testing.assert_array_equal(a, WORDS.reshape(200, 300))
    assert content_of(a) is a
    assert not np.shares_memory(stored.array(), a)
    assert np.shares_memory(words(path).array(scratch), a)
    assert scratch.take(1 << 30) is None


def written_to(path: Path) -> None:
    with path.open("r+b") as f:
        f.write(b"HEAD")
    os.utime(path, ns=(1, 1))


def cut(path: Path) -> None:
    os.truncate(path, 100)


def grown(path: Path) -> None:
    with path.open("ab") as f:
        f.write(b"more")


@pytest.mark.parametrize("change", [written_to, cut, grown])
def test_a_change_is_told_and_not_seen(path: Path, change) -> None:  # type: ignore[no-untyped-def]
    stored, late = words(path), words(path)
    held = stored.array()
    change(path)
    np.testing.assert_array_equal(held, WORDS.reshape(200, 300))
    np.testing.assert_array_equal(stored.array(), held)
    with pytest.raises(ModelError, match=CHANGED):
        late.array()
    del held
    with pytest.raises(ModelError, match=CHANGED):
        stored.array()


def test_a_file_in_its_place_is_another_one(path: Path) -> None:
    stored, other = words(path), path.with_name("other")
    other.write_bytes(bytes(100))
    other.replace(path)
    np.testing.assert_array_equal(stored.array(), WORDS.reshape(200, 300))


def test_a_file_is_closed_with_the_last_that_needs_it(path: Path) -> None:
    raw = io.FileIO(path)
    stored = StoredBytes(StoredFile(path, raw), 4, 100)
    assert not raw.closed
    array = stored.array()
    del stored
    assert raw.closed
    assert array.size == 100


def test_what_was_found_out_is_remembered_for_all_views(path: Path) -> None:
    stored, asked = words(path), list[int]()

    def find(elements: np.ndarray) -> bool:
        asked.append(elements.size)
        return bool(elements.size == WORDS.size)

    assert stored.once("whole", find)
    path.write_bytes(b"")
    assert stored.transposed().once("whole", find)
    assert asked == [WORDS.size]
    with pytest.raises(ModelError, match=CHANGED):
        stored.once("another question", find)
