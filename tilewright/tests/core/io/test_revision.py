"""The commit of a checkout is read from git's files, in each form that these have."""

from __future__ import annotations

from pathlib import Path

from tilewright.core.io.revision import commit_of

COMMIT = "0123456789abcdef" * 2 + "01234567"


def test_each_form(tmp_path: Path) -> None:
    git = tmp_path / "main" / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert commit_of(tmp_path / "main") == COMMIT
    (git / "HEAD").write_text("ref: refs/heads/work\n")
    assert commit_of(tmp_path / "main") == "", "a branch without a commit"
    (git / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{COMMIT} refs/heads/work\n"
    )
    assert commit_of(tmp_path / "main") == COMMIT
    (git / "refs/heads/work").write_text("e" * 40 + "\n")
    assert commit_of(tmp_path / "main") == "e" * 40


def test_a_worktree(tmp_path: Path) -> None:
    own = tmp_path / "main" / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (tmp_path / "main/.git/refs/heads").mkdir(parents=True)
    (tmp_path / "main/.git/refs/heads/side").write_text(COMMIT)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {own}\n")
    assert commit_of(tmp_path / "side") == COMMIT


def test_no_checkout(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    (tmp_path / ".git").write_bytes(b"\xff\xfe")
    assert commit_of(tmp_path) == ""
