"""What files and linkers are on the systems that artifacts are for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tilewright.codegen.llvm.features import architecture
from tilewright.core.errors import InputError, TargetError
from tilewright.core.options import require_choice
from tilewright.machine.target import Target

ARCHIVE = "a"
"""The format of static libraries, on every system."""


@dataclass(frozen=True, slots=True)
class System:
    """How artifacts are made for an operating system.

    ``shared``: extension of its shared libraries, and the name of their format. ``compile``, ``link``: options of a
    compiler that takes those of gcc; ``export``: the one for a function that a library shows, with ``{name}`` in it;
    ``shown``: such functions besides ours. ``section``: assembler text ahead of read-only data called ``{name}``,
    ``behind`` what follows it, of ``{size}`` bytes. ``mark``: what the system puts before the names of C.
    """

    shared: str
    compile: tuple[str, ...]
    link: tuple[str, ...]
    section: tuple[str, ...]
    behind: tuple[str, ...] = ()
    mark: str = ""
    export: str = ""
    shown: tuple[str, ...] = ()

    def weights(self, symbol: str, file: str, size: int) -> str:
        """Assembler text that makes the bytes of ``file``, aligned to pages, known as ``symbol``."""
        facts = {"name": self.mark + symbol, "size": size + 1}
        head = [line.format(**facts) for line in self.section]
        tail = [line.format(**facts) for line in self.behind]
        return "\n".join([*head, f"{self.mark}{symbol}:", f'.incbin "{file}"', ".byte 0", *tail, ""])


_NO_UNWINDING = ("-fno-asynchronous-unwind-tables", "-fno-unwind-tables")
"""Tables that nothing reads, a fifth of the code of the runtime."""

_LINUX = System(
    "so", ("-fPIC", "-pthread", *_NO_UNWINDING),
    ("-shared", "-s", "-Wl,--build-id=none,--gc-sections,-Bsymbolic,-z,noexecstack", "-Wl,--version-script=exports",
     "-pthread", "-ldl", "-lm"),
    ('.section .rodata.weights,"a",%progbits', ".globl {name}", ".hidden {name}", ".balign 4096"),
    ('.section .note.GNU-stack,"",%progbits',),
)  # fmt: skip
_WINDOWS = System(
    "dll", (), ("-shared", "-s"),
    ('.section .rdata$weights,"dr"', ".globl {name}", ".balign 4096"),
)  # fmt: skip
_MACOS = System(
    "dylib", ("-fPIC", *_NO_UNWINDING),
    ("-dynamiclib", "-Wl,-dead_strip", "-Wl,-x", "-Wl,-install_name,@rpath/{file}"),
    (".section __TEXT,__const", ".globl {name}", ".private_extern {name}", ".balign 4096"), mark="_",
)  # fmt: skip
_WASM = System(
    "wasm", (),
    ("-mexec-model=reactor", "-s", "-Wl,--no-entry", "-Wl,--gc-sections", "-Wl,-z,stack-size=4194304", "-lm"),
    ('.section .rodata.weights,"",@', ".hidden {name}", ".globl {name}", ".type {name},@object", ".balign 64"),
    (".size {name}, {size}",), export="-Wl,--export={name}", shown=("malloc", "free"),
)  # fmt: skip

_SYSTEMS: Mapping[str, System] = {
    "linux": _LINUX, "windows": _WINDOWS, "darwin": _MACOS, "macosx": _MACOS, "macos": _MACOS, "wasi": _WASM,
}  # fmt: skip
_GLIBC = {"x86_64": ".2.17", "aarch64": ".2.17"}
"""The version of the C library that artifacts need: where an old one exists, that of distributions from 2014 on."""


_MACOS_VERSIONS = {"x86_64": "10.15", "aarch64": "11.0"}
"""The oldest versions of macOS that artifacts run on."""


def parts(triple: str) -> tuple[str, str, str]:
    """Architecture, operating system without version, and environment of a triple of LLVM (empty if it has none)."""
    words = [*triple.split("-"), "", "", ""]
    return architecture(triple), words[2].rstrip("0123456789."), words[3].rstrip("0123456789.")


def system_of(target: Target) -> System:
    """The system that a target has. Raises TargetError for one that artifacts cannot be made for."""
    _, name, environment = parts(target.triple)
    if name not in _SYSTEMS:
        raise TargetError(
            f"export: expected a target with one of the systems {', '.join(_SYSTEMS)}, got {target.triple}"
        )
    if environment == "msvc":
        gnu = target.triple.replace("msvc", "gnu")
        raise TargetError(
            f"export: expected -mtriple={gnu}, whose libraries other compilers can use, got {target.triple}"
        )
    return _SYSTEMS[name]


def zig_target(triple: str) -> str:
    """The same machine in the words of ``zig cc -target``."""
    arch, system, environment = parts(triple)
    if system == "linux":
        environment = environment or "gnu"
        return f"{arch}-linux-{environment}{_GLIBC.get(arch, '') if environment == 'gnu' else ''}"
    others = {"windows": f"{arch}-windows-gnu", "wasi": f"{arch}-wasi"}
    return others.get(system) or f"{arch}-macos.{_MACOS_VERSIONS.get(arch, '11.0')}"


def format_of(path: Path, format_: str | None, target: Target) -> str:
    """The format of an artifact at ``path``: what is asked for, or what the extension says. Raises InputError if the
    target has no such files."""
    known = (system_of(target).shared, ARCHIVE)
    if format_ == "shared":
        return known[0]
    if format_ is not None:
        require_choice("format", format_, known)
        return format_
    said = path.suffix[1:].lower()
    if said not in known:
        expected = " or ".join(f"{path.stem or 'model'}.{f}" for f in known)
        raise InputError(f"export: expected {expected} for {target.triple}, or format=, got {path.name}")
    return said
