"""Models as programs that read and write files: ``driver.c`` with a model linked in, run here or by an emulator."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import pytest

from tilewright.codegen.detect_cpu import parse_target
from tilewright.deploy.include import get_include
from tilewright.deploy.systems import parts, system_of
from tilewright.deploy.toolchain import find_toolchain
from tilewright.tests.deploy.tools import find_program

if TYPE_CHECKING:
    from tilewright.runtime.model import CompiledModel

DRIVER = Path(__file__).parent / "driver.c"
_SECONDS = 600
_WASI = """
import { readFileSync } from 'node:fs';
import { WASI } from 'node:wasi';
import { argv, exit } from 'node:process';
const wasi = new WASI({ version: 'preview1', args: argv.slice(2), preopens: { '/': '/' }, returnOnExit: true });
const { instance } = await WebAssembly.instantiate(readFileSync(argv[2]), wasi.getImportObject());
exit(wasi.start(instance));
"""

needs_zig = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs the package ziglang")


class ProgramError(RuntimeError):
    """A run that failed. ``code``: the exit code, 10 more than the status of ``tilewright.h``."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Program:
    """The driver. ``before``: the words of the emulator's command; ``model``: the library that it loads, or ``-`` for
    a model that is linked in. ``inputs``: names of the model's."""

    file: Path
    before: tuple[str, ...]
    model: str
    inputs: tuple[str, ...]

    def run(
        self, feed: Mapping[str, np.ndarray], threads: int = 0, before: Sequence[str] | None = None
    ) -> dict[str, np.ndarray]:
        """All outputs, by name. ``before``: another emulator. Raises ProgramError with the message."""
        folder = self.file.parent
        words = []
        for k, name in enumerate(self.inputs):
            x = np.asarray(feed[name])
            (folder / f"{k}.in").write_bytes(np.ascontiguousarray(x).tobytes())
            words.append(f"{x.dtype.name}:{'x'.join(map(str, x.shape))}:{folder / f'{k}.in'}")
        command = [*(self.before if before is None else before), str(self.file), self.model, str(threads), str(folder)]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=_SECONDS, check=False)
        if done.returncode:
            raise ProgramError(done.returncode, done.stderr.strip() or f"exit code {done.returncode}")
        out = {}
        for k, line in enumerate(done.stdout.splitlines()):
            facts, _, name = line.partition(" ")
            kind, _, shape = facts.partition(":")
            sizes = [int(n) for n in shape.split("x") if n]
            out[name] = np.frombuffer((folder / f"{k}.bin").read_bytes(), dtype_of(kind)).reshape(sizes)
        return out


def dtype_of(name: str) -> np.dtype:
    """The element type that the driver calls ``name``."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def build_program(
    model: CompiledModel, target: str, folder: Path, is_linked: bool = True, is_random: bool = False
) -> Program:
    """The driver in ``folder`` with a model that is compiled for ``target``, linked in or as a library to load.
    ``is_random``: a second run may give other results. Raises what exports raise."""
    machine = parse_target(target)
    system = system_of(machine).shared
    library = model.export(folder / f"model.{'a' if is_linked else system}")[0]
    program = folder / _NAMES.get(system, "program")
    more = ["-DLINKED", str(library), *_STATIC.get(system, ["-static"])] if is_linked else []
    command = [
        *find_toolchain(machine).compiler, "-Os", "-Wall", "-Wextra", "-Werror", "-I", get_include(), "-o",
        str(program), str(DRIVER), *more, "-lm", *(["-DRANDOM"] if is_random else []),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before = EMULATORS.get(parts(machine.triple)[:2], ())
    if system == "wasm":
        (folder / "run.mjs").write_text(_WASI)
        before = (find_program("node") or "node", "--no-warnings", str(folder / "run.mjs"))
    return Program(program, before, "-" if is_linked else str(library), tuple(s.name for s in model.inputs))


_NAMES = {"dll": "program.exe", "wasm": "program.wasm"}
_STATIC = {"dylib": [], "wasm": ["-Wl,-z,stack-size=4194304"]}
EMULATORS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("aarch64", "linux"): ("qemu-aarch64",),
    ("riscv64", "linux"): ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    ("x86_64", "windows"): ("wine",),
}
"""What runs programs for others, by architecture and system."""

Linked = Callable[[object, str], Program]
