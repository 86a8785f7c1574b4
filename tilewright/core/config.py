"""Settings from the environment. The only file of the package that reads it; :data:`VARIABLES` lists what it reads."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.errors import TilewrightError

_DEFAULT_CACHE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of the environment: what it sets, in which unit, and what holds without it."""

    name: str
    meaning: str
    default: str


VARIABLES: tuple[Variable, ...] = (
    Variable(
        "TILEWRIGHT_CACHE",
        "directory of the cache of compiled kernels; it is made if it is missing. `0` or `off`: no cache",
        "`$XDG_CACHE_HOME/tilewright`, else `~/.cache/tilewright`",
    ),
    Variable(
        "TILEWRIGHT_CACHE_BYTES",
        "size limit of that cache in bytes; what was used least recently goes first",
        "1073741824 (1 GiB)",
    ),
    Variable(
        "TILEWRIGHT_SPIN_MS",
        "how long an idle worker thread looks for work before it sleeps, in milliseconds; a fraction is allowed",
        "5; 0 where the process has a CPU quota",
    ),
    Variable(
        "TILEWRIGHT_VERIFY",
        "`1`: every build checks the functions of the tensor IR, as lowered and as scheduled; `0`: it does not",
        "0",
    ),
    Variable("XDG_CACHE_HOME", "directory of the caches of all programs; its default is `~/.cache`", ""),
    Variable("HOME", "where `~` is", "the home directory of the user"),
    Variable(
        "CC", "the C compiler that links exported models for this machine, with its options: `clang -fuse-ld=lld`",
        "cc, gcc or clang, whichever is found first",
    ),
    Variable("NO_COLOR", "set to anything: no colours", ""),
    Variable("TERM", "`dumb`: no colours, and no table that is redrawn in place", ""),
)  # fmt: skip
"""What the package reads (``NO_COLOR`` and ``TERM`` through rich, which prints for it)."""


@dataclass(frozen=True, slots=True)
class Config:
    """``cache_dir`` None: no cache on disk. ``spin_milliseconds`` None: the default. ``verify``: builds check functions
    of the tensor IR, as lowered and as scheduled."""

    cache_dir: Path | None
    cache_bytes: int = _DEFAULT_CACHE_BYTES
    spin_milliseconds: float | None = None
    verify: bool = False


def child_environment(changes: Mapping[str, str]) -> dict[str, str]:
    """The environment for a process that this one starts: its own with ``changes``."""
    return {**os.environ, **changes}


def compiler_words(environment: Mapping[str, str] | None = None) -> list[str]:
    """The C compiler that ``CC`` names, with its options; empty if it names none."""
    return shlex.split((os.environ if environment is None else environment).get("CC", ""))


def from_environment(environment: Mapping[str, str] | None = None) -> Config:
    """The settings in ``environment`` (default: the process's). Raises TilewrightError for a malformed value."""
    env = os.environ if environment is None else environment
    size = env.get("TILEWRIGHT_CACHE_BYTES", str(_DEFAULT_CACHE_BYTES))
    if not size.isdigit():
        raise TilewrightError(f"TILEWRIGHT_CACHE_BYTES: expected a number of bytes, got {size!r}")
    spin_text = env.get("TILEWRIGHT_SPIN_MS")
    if spin_text is not None and not spin_text.replace(".", "", 1).isdigit():
        raise TilewrightError(f"TILEWRIGHT_SPIN_MS: expected a number of milliseconds, got {spin_text!r}")
    spin = None if spin_text is None else float(spin_text)
    verify = env.get("TILEWRIGHT_VERIFY", "0")
    if verify not in ("0", "1"):
        raise TilewrightError(f"TILEWRIGHT_VERIFY: expected 0 or 1, got {verify!r}")
    chosen = env.get("TILEWRIGHT_CACHE")
    if chosen is not None and chosen.lower() in ("0", "off"):
        return Config(None, int(size), spin, verify == "1")
    if chosen:
        return Config(Path(chosen).expanduser(), int(size), spin, verify == "1")
    base = env.get("XDG_CACHE_HOME")
    home = Path(base) if base else Path(env.get("HOME", str(Path.home()))) / ".cache"
    return Config(home / "tilewright", int(size), spin, verify == "1")
