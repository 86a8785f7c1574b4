"""The C compiler and linker: the system's, for this machine and for those that it has cross compilers for, or the
``ziglang`` package, which has one for every target.

``$CC`` names another for this machine.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.config import compiler_words
from tilewright.core.errors import TargetError
from tilewright.deploy.systems import parts, zig_target
from tilewright.machine.target import Target

_SYSTEM = ("cc", "gcc", "clang")


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``compiler``: the words of a command that compiles and links C as gcc does; ``archiver``: of one that is like ar;
    ``what``: for people."""

    compiler: tuple[str, ...]
    archiver: tuple[str, ...]
    what: str

    def identity(self) -> str:
        """What compiles the same code in the same way: the command, and its file's size and time."""
        facts = Path(self.compiler[0]).stat()
        return f"{shlex.join(self.compiler)} {facts.st_size} {facts.st_mtime_ns}"


class Workshop:
    """A temporary directory in which a toolchain works: ``with Workshop(toolchain) as shop``."""

    def __init__(self, toolchain: Toolchain) -> None:
        self._toolchain = toolchain
        self._directory = tempfile.TemporaryDirectory(prefix="tilewright-")
        self._place = Path(self._directory.name)

    def __enter__(self) -> Workshop:
        return self

    def __exit__(self, *_: object) -> None:
        self._directory.cleanup()

    def __getitem__(self, name: str) -> Path:
        """Where the file ``name`` is."""
        return self._place / name

    def write(self, name: str, pieces: Iterable[bytes]) -> str:
        """Make a file; its name."""
        with self[name].open("wb") as f:
            for piece in pieces:
                f.write(piece)
        return name

    def append(self, name: str, data: bytes) -> None:
        """Make a file longer."""
        with self[name].open("ab") as f:
            f.write(data)

    def run(self, arguments: Sequence[str]) -> None:
        """Compile or link. Raises TargetError with what the compiler says."""
        self._call([*self._toolchain.compiler, *arguments])

    def archive(self, name: str, members: Sequence[str]) -> None:
        """Make a static library of objects. Raises TargetError with what the archiver says."""
        self._call([*self._toolchain.archiver, "rcsD", name, *members])

    def _call(self, command: Sequence[str]) -> None:
        done = subprocess.run(command, cwd=self._place, capture_output=True, text=True, check=False)
        if done.returncode:
            shown = "\n  ".join((done.stderr or done.stdout).strip().splitlines()[-12:])
            raise TargetError(f"export: {self._toolchain.what} fails with status {done.returncode}:\n  {shown}")

    def compile(self, source: str, flags: Sequence[str], headers: Iterable[str], cache: ObjectCache | None) -> str:
        """Compile one C file, which includes ``headers``, or take what ``cache`` has of it; the object's name."""
        texts = [self[name].read_text() for name in (*headers, source)]
        key = hashlib.sha256("\0".join([self._toolchain.identity(), *flags, *texts]).encode()).hexdigest()
        name = f"{source}.o"
        code = cache.get(key) if cache is not None else None
        if code is not None:
            return self.write(name, [code])
        self.run([*flags, "-c", source, "-o", name])
        if cache is not None:
            cache.put(key, self[name].read_bytes())
        return name


def find_toolchain(target: Target) -> Toolchain:
    """The toolchain for a target. Raises TargetError if there is none."""
    arch, system, environment = parts(target.triple)
    is_ours = (arch, system, environment) == parts(detect_host().triple)
    if is_ours:
        for words in (compiler_words(), *([w] for w in _SYSTEM)):
            if words and (found := shutil.which(words[0])) and (archiver := shutil.which("ar")):
                return Toolchain((found, *words[1:]), (archiver,), " ".join(words))
    cross = f"{arch}-{system}-{environment}-"
    if (found := shutil.which(f"{cross}gcc")) and (archiver := shutil.which(f"{cross}ar")):
        return Toolchain((found,), (archiver,), f"{cross}gcc")
    if (zig := _find_zig()) is not None:
        return Toolchain((zig, "cc", "-target", zig_target(target.triple)), (zig, "ar"), "zig cc")
    raise TargetError(
        f"export: expected a C compiler ({'cc, gcc, clang, or what $CC names' if is_ours else f'{cross}gcc'}), found "
        "none; pip install 'tilewright[deploy]' brings one"
    )


def _find_zig() -> str | None:
    """The program of the ``ziglang`` package, if that is installed."""
    spec = importlib.util.find_spec("ziglang")
    places = spec.submodule_search_locations or () if spec is not None else ()
    return next((found for p in places if (found := shutil.which("zig", path=p))), None)
