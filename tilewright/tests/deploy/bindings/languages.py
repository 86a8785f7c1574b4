"""The languages that have bindings: how a program of each is built and run, and what is missing where it cannot be."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.detect_cpu import detect_host
from tilewright.deploy.include import get_include
from tilewright.deploy.toolchain import find_toolchain
from tilewright.tests.deploy.exported import has_compiler
from tilewright.tests.deploy.tools import find_program
from tilewright.tests.sources import ROOT

BINDINGS = ROOT / "bindings"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")


@dataclass(frozen=True, slots=True)
class Language:
    """``missing``: the tool that is not here, or None. ``build``: a source and an empty folder to a command."""

    example: Path
    missing: Callable[[], str | None]
    build: Callable[[Path, Path], list[str]]

    @property
    def check(self) -> Path:
        return Path(__file__).parent / "programs" / f"check{self.example.suffix}"


def done(command: Sequence[str | Path], folder: Path, **environment: str) -> str:
    """Run a command in a folder; what it prints. Fails with what it says."""
    run = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600
    )
    assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"
    return run.stdout


def c_compiler() -> tuple[str, ...]:
    """The command that exports use too; empty if there is none."""
    return find_toolchain(detect_host()).compiler if has_compiler() else ()


def cpp_compiler() -> tuple[str, ...]:
    """The system's, or that of the ``ziglang`` package; empty if there is none."""
    found = find_program("c++", "g++", "clang++")
    if found is None and importlib.util.find_spec("ziglang") is not None:
        return (sys.executable, "-m", "ziglang", "c++")
    return (found,) if found else ()


INCLUDE = f"-I{get_include()}"


def _lacks(what: str, tool: Callable[[], object]) -> Callable[[], str | None]:
    return lambda: None if tool() else f"needs {what}"


def _program(name: str) -> str:
    """Where a program is that is there."""
    found = find_program(name)
    assert found, name
    return found


def _version(tool: str, *arguments: str) -> tuple[int, ...]:
    """The first number that a tool prints, (1, 21) for go1.21.3; () if it is not there or fails."""
    if (program := find_program(tool)) is None:
        return ()
    run = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"(\d+)(?:\.(\d+))?", run.stdout + run.stderr)
    return tuple(int(n or 0) for n in found.groups()) if found and run.returncode == 0 else ()


def _c(source: Path, folder: Path) -> list[str]:
    """A program that opens libraries, or is linked with ./model.so, beside which it lies, if it does not."""
    linked = [] if "tilewright_dl.h" in source.read_text() else ["model.so", "-Wl,-rpath,$ORIGIN"]
    done([*c_compiler(), "-std=c99", *WARNINGS, INCLUDE, "-o", "program", source, *linked, "-ldl"], folder)
    return [str(folder / "program")]


def _cpp(source: Path, folder: Path) -> list[str]:
    command = [*cpp_compiler(), "-std=c++17", *WARNINGS, INCLUDE, f"-I{BINDINGS / 'cpp'}", "-o", "program", source]
    done([*command, "-pthread", "-ldl"], folder)
    return [str(folder / "program")]


def _rust(source: Path, folder: Path) -> list[str]:
    flags = ["--edition", "2021", "-D", "warnings", "-O"]
    library = BINDINGS / "rust/src/lib.rs"
    rustc = _program("rustc")
    done([rustc, *flags, "--crate-type", "rlib", "--crate-name", "tilewright", library], folder)
    done([rustc, *flags, "-L.", "--extern", "tilewright=libtilewright.rlib", "-o", "program", source], folder)
    return [str(folder / "program")]


def _rust_is_missing() -> str | None:
    return None if _version("rustc", "--version") >= (1, 79) and find_program("cc") else "needs rustc 1.79 and cc"


def _go(source: Path, folder: Path) -> list[str]:
    module = folder / "program"
    module.mkdir()
    shutil.copy(source, module / "main.go")
    (module / "go.mod").write_text(
        f"module program\n\ngo 1.21\n\nrequire tilewright v0.0.0\n\nreplace tilewright => {BINDINGS / 'go'}\n"
    )
    offline = {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "1"}
    compiler = {"CC": shlex.join(c_compiler()), "CGO_CFLAGS": "-O2 -Wall -Werror"}
    done([_program("go"), "build", "-o", "program", "."], module, **compiler, **offline)
    return [str(module / "program")]


def _go_is_missing() -> str | None:
    has_all = _version("go", "version") >= (1, 21) and c_compiler()
    return None if has_all else "needs go 1.21 or newer, and a C compiler"


def _node(source: Path, folder: Path) -> list[str]:
    package = folder / "node_modules/tilewright"
    package.mkdir(parents=True)
    for name in ("package.json", "index.js", "model.js", "addon.c", "build.js"):
        shutil.copy(BINDINGS / "node" / name, package)
    for name in ("tilewright.h", "tilewright_dl.h"):
        shutil.copy(Path(get_include()) / name, package)
    node = _program("node")
    said = done([node, package / "build.js"], folder, CC=shlex.join(c_compiler()))
    assert not said
    shutil.copy(source, folder / "program.mjs")
    return [node, "program.mjs"]


def _node_is_missing() -> str | None:
    has_all = _version("node", "--version") >= (18,) and c_compiler()
    return None if has_all else "needs node 18 or newer, and a C compiler"


def _java(source: Path, folder: Path) -> list[str]:
    found = re.search(r"^(?:final )?class (\w+)", source.read_text(), re.MULTILINE)
    assert found
    main = folder / f"{found[1]}.java"
    shutil.copy(source, main)
    wrapper = sorted((BINDINGS / "java/tilewright").glob("*.java"))
    done([_program("javac"), "-d", "classes", *wrapper, main], folder)
    return [_program("java"), "--enable-native-access=ALL-UNNAMED", "-cp", "classes", found[1]]


def _java_is_missing() -> str | None:
    found = min(_version(tool, "-version") for tool in ("javac", "java"))
    return None if found >= (22,) else f"needs a JDK of version 22 or newer, found {found or 'none'}"


LANGUAGES: Mapping[str, Language] = {
    "c": Language(BINDINGS / "c/classify.c", _lacks("a C compiler", c_compiler), _c),
    "cpp": Language(BINDINGS / "cpp/classify.cpp", _lacks("a C++ compiler", cpp_compiler), _cpp),
    "go": Language(BINDINGS / "go/examples/classify/classify.go", _go_is_missing, _go),
    "java": Language(BINDINGS / "java/examples/Classify.java", _java_is_missing, _java),
    "node": Language(BINDINGS / "node/classify.js", _node_is_missing, _node),
    "rust": Language(BINDINGS / "rust/examples/classify.rs", _rust_is_missing, _rust),
}


def main() -> None:
    """Prints which languages are tested here, and what the others need."""
    for name, language in LANGUAGES.items():
        missing = language.missing()
        print(f"binding of {name}: {f'not tested, {missing}' if missing else 'tested'}")


if __name__ == "__main__":
    main()
