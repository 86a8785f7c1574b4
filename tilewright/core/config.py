"""Settings from the environment. The only file of the package that reads it.

``TILEWRIGHT_CACHE``: directory of the object cache (default ``$XDG_CACHE_HOME/tilewright``, else
``~/.cache/tilewright``); ``0`` or ``off`` turns the cache off. ``TILEWRIGHT_CACHE_BYTES``: its size limit in bytes
(default 1 GiB). ``TILEWRIGHT_SPIN_MS``: how long an idle worker thread spins before it sleeps (default 5, or 0 under a
CPU quota). ``TILEWRIGHT_VERIFY``: 1 has every build check the functions that it makes (default 0; the tests set it).
``NO_COLOR`` and ``TERM`` mean what they mean elsewhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.core.errors import TilewrightError

_DEFAULT_CACHE_BYTES = 1 << 30


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
