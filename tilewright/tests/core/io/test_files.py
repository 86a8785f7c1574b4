"""Files are written whole or not at all, and not in place of another kind."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from tilewright.core.errors import InputError
from tilewright.core.io.files import (
    TEMPORARY,
    TEXT,
    begins_with,
    create_file,
    marked,
    replacing,
    require_replaceable,
    write_file,
)

KIND = begins_with("a note", b"note:")


def _names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def _write_and_fail(place: Path, error: BaseException | None) -> None:
    with replacing(place, KIND) as f:
        f.write(b"note: 2")
        if error is not None:
            raise error


def test_written_and_replaced(tmp_path: Path) -> None:
    place = tmp_path / "a"
    write_file(place, KIND, b"note: 1")
    write_file(place, KIND, b"note: 2")
    assert place.read_bytes() == b"note: 2"
    assert _names(tmp_path) == ["a"]


def test_an_empty_file_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    write_file(tmp_path / "a", KIND, b"note: 1")
    assert (tmp_path / "a").read_bytes() == b"note: 1"


@pytest.mark.parametrize("contents", [b"x", b"note", b"\x08\x0a" * 5000, b" note:"])
def test_another_kind_stays(tmp_path: Path, contents: bytes) -> None:
    place = tmp_path / "a"
    place.write_bytes(contents)
    with pytest.raises(InputError, match="a: expected a note or no file, found another kind of file; it stays as"):
        write_file(place, KIND, b"note: 1")
    assert place.read_bytes() == contents
    assert _names(tmp_path) == ["a"]


def test_a_directory_stays(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a note or no file, found a directory"):
        require_replaceable(tmp_path, KIND)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_file(tmp_path / "none" / "a", KIND, b"note: 1")
    assert raised.value.filename == str(tmp_path / "none" / "a")


def test_what_fails_in_between_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "a"
    write_file(place, KIND, b"note: 1")
    with pytest.raises(KeyboardInterrupt):
        _write_and_fail(place, KeyboardInterrupt())
    assert place.read_bytes() == b"note: 1"
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("where", ["write", "fsync"])
def test_a_full_disk_changes_nothing_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    place = tmp_path / "a"
    write_file(place, KIND, b"note: 1")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if where == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if where == "write" else None
    with pytest.raises(OSError, match="No space left on device") as raised:
        _write_and_fail(place, error)
    assert raised.value.filename == str(place)
    assert place.read_bytes() == b"note: 1"
    assert _names(tmp_path) == ["a"]


def test_links_and_permissions_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    write_file(real, KIND, b"note: 1")
    real.chmod(0o640)
    link.symlink_to(real)
    write_file(link, KIND, b"note: 2")
    assert link.is_symlink()
    assert real.read_bytes() == b"note: 2"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_new_file_has_the_permissions_of_new_files(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    write_file(tmp_path / "a", KIND, b"note: 1")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "usual").stat().st_mode


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_file(pipe, KIND, b"note: 1")
    reader.join(30)
    assert got == [b"note: 1"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_names_in_use_get_a_number(tmp_path: Path) -> None:
    made = [create_file(tmp_path / "profile.json", str(n).encode()).name for n in range(3)]
    assert made == ["profile.json", "profile_2.json", "profile_3.json"]
    assert [(tmp_path / name).read_text() for name in made] == ["0", "1", "2"]


def test_unfinished_files_of_others_are_in_nobodys_way(tmp_path: Path) -> None:
    name = f"{TEMPORARY}{os.getpid()}-{threading.get_native_id()}-0"
    (tmp_path / name).write_bytes(b"note: of another host")
    write_file(tmp_path / "a", KIND, b"note: 1")
    assert _names(tmp_path) == [name, "a"]


def test_texts_are_known_by_their_first_line(tmp_path: Path) -> None:
    place = tmp_path / "a.txt"
    write_file(place, TEXT, marked("one"))
    write_file(place, TEXT, marked("two", ";"))
    assert place.read_text().splitlines()[1:] == ["two"]
    write_file(place, TEXT, marked(""))
    place.write_text("# written by tilewright\n")
    with pytest.raises(InputError, match="expected a text that tilewright wrote or no file"):
        write_file(place, TEXT, marked("three"))
