"""A compiled model as a file that runs without Python: a library with the interface of ``tilewright.h``."""

from __future__ import annotations

import mmap
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.llvm.features import NOT_COMPUTING
from tilewright.codegen.llvm.jit import cached_object
from tilewright.codegen.native.checks import check_text
from tilewright.codegen.native.thread_pool import thread_pool_text
from tilewright.core.errors import InputError
from tilewright.core.io.files import Kind, replacing, require_replaceable, write_file
from tilewright.core.options import require_choice, require_path
from tilewright.core.plan import Plan
from tilewright.deploy.files.digest import Digest
from tilewright.deploy.files.mach_o import with_private_names
from tilewright.deploy.files.seal import seal_of
from tilewright.deploy.header import HEADER, model_header
from tilewright.deploy.include import get_include
from tilewright.deploy.manifest import BEGIN, Origin, manifest
from tilewright.deploy.source.constants import HEAD, Constants
from tilewright.deploy.source.host_calls import require_native
from tilewright.deploy.source.model import WEIGHTS, ModelSource, Version
from tilewright.deploy.systems import ARCHIVE, System, format_of, system_of
from tilewright.deploy.toolchain import Workshop, find_toolchain
from tilewright.kernels.link import PlanObjects
from tilewright.machine.target import Target
from tilewright.runtime.signature import TensorSpec

_API = re.compile(r"^TW_API .*?(tw_\w+)\(", re.MULTILINE)
_LARGEST_INSIDE = 1 << 30
"""Bytes of weights that code of the small model can have beside it."""
_FLAGS = (
    "-std=c11", "-Os", "-ffp-contract=off", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffunction-sections",
)  # fmt: skip


def _is_ours(file: IO[bytes]) -> bool:
    tail = b""
    while piece := file.read(1 << 20):
        if BEGIN in tail + piece:
            return True
        tail = piece[-len(BEGIN) :]
    return False


ARTIFACT = Kind("an artifact that tilewright wrote", _is_ours)
_WEIGHTS_FILE = Kind("weights that tilewright wrote", lambda f: f.read(len(HEAD)) == HEAD)


@dataclass(frozen=True, slots=True)
class Build:
    """One version of a compiled model, as the build leaves it. ``objects``: makes its code. ``origin``: for the
    manifest."""

    plan: Plan
    objects: Callable[[], PlanObjects]
    target: Target
    origin: Origin
    cache: ObjectCache | None

    def export(
        self, path: Path, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], general: Build | None,
        is_judged_late: bool, weights: str, format_: str | None,
    ) -> list[Path]:  # fmt: skip
        """Write a library, and its weights inside or beside it; the paths. ``general``: the version for sizes that
        broadcast; ``format_``: what kind of file, None for what the extension says. Raises UnsupportedError,
        TargetError and InputError, and then writes nothing."""
        require_choice("weights", weights, ("inside", "beside"))
        path = require_replaceable(require_path("path", path), ARTIFACT)
        system, kind = system_of(self.target), format_of(path, format_, self.target)
        header = path.with_suffix(".h")
        if kind == ARCHIVE:
            require_replaceable(header, HEADER)
        builds = [self, *([general] if general is not None else [])]
        for b in builds:
            require_native(b.plan)
        with Workshop(find_toolchain(self.target)) as shop:
            linked = [b.objects() for b in builds]
            constants = Constants()
            names = [o.name for o in outputs]
            versions = [Version(b.plan, o.entries, names) for b, o in zip(builds, linked, strict=True)]
            source = ModelSource(versions, constants)
            digest = Digest()
            shop.write("weights.bin", digest.of(constants.pieces()))
            block = (constants.size, *digest.value)
            if weights == "inside" and constants.size > _LARGEST_INSIDE:
                raise InputError(
                    f"export: weights of {constants.size:,} bytes do not fit inside: expected weights='beside'"
                )
            features = sorted(self.target.enabled - NOT_COMPUTING)
            said = manifest(self.plan, inputs, outputs, self.target, self.origin, block, features)
            beside = None if weights == "inside" else f"{path.name}.weights"
            text = source.text(said, self.target.threads, features, is_judged_late, block, beside)
            flags = (*_FLAGS, *system.compile)
            files = [*_compile_runtime(shop, flags, self.cache), *self._write_objects(linked, shop, system)]
            sources = [shop.write("model.c", [text.encode()])]
            if beside is None:
                code = system.weights(WEIGHTS, "weights.bin", constants.size)
                sources.append(shop.write("weights.s", [code.encode()]))
            made = f"out.{kind}"
            if kind == ARCHIVE:
                for name in sources:
                    shop.run([*flags, "-c", name, "-o", f"{name}.o"])
                shop.archive(made, [*files, *(f"{name}.o" for name in sources)])
            else:
                _link(shop, system, [*flags, "-o", made, *sources, *files], path.name)
            paths = [path]
            if kind == "so":  # others have their own signatures, or no place for one
                shop.append(made, _seal(shop[made], 0 if beside else constants.size))
            _put(shop[made], path, ARTIFACT)
            if kind == ARCHIVE:
                write_file(header, HEADER, model_header(path.stem, inputs, outputs, source.arena_bytes).encode())
                paths.append(header)
            if beside is not None:
                paths.append(path.with_name(beside))
                _put(shop["weights.bin"], paths[1], _WEIGHTS_FILE)
        return paths

    def _write_objects(self, linked: Sequence[PlanObjects], shop: Workshop, system: System) -> list[str]:
        """The object files of kernels and entries, and of what generated code calls."""
        objects = {name: code for part in linked for name, code in part.objects.items()}
        for dtype in sorted({d for part in linked for d in part.checked}, key=str):
            objects[f"check_{dtype}"] = cached_object(check_text(dtype, self.target), self.target, 1, self.cache, False)
        objects["pool"] = cached_object(thread_pool_text(self.target), self.target, 2, self.cache)
        if system.shared == "dylib":
            objects = {name: with_private_names(code) for name, code in objects.items()}
        return [shop.write(f"{name}.o", [objects[name]]) for name in sorted(objects)]


def _compile_runtime(shop: Workshop, flags: Sequence[str], cache: ObjectCache | None) -> list[str]:
    """Compile the C files of the runtime; the objects."""
    files = sorted((f for f in Path(get_include()).iterdir() if f.name.endswith((".c", ".h"))), key=lambda f: f.name)
    names = [shop.write(f.name, [f.read_bytes()]) for f in files]
    headers = [n for n in names if n.endswith(".h")]
    return [shop.compile(n, flags, headers, cache) for n in names if n.endswith(".c")]


def _seal(library: Path, weights: int) -> bytes:
    """The seal of a library with so many bytes of weights inside."""
    with library.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(HEAD) if weights else 0
        with memoryview(data) as view:
            return seal_of(view, (start, weights))


def _link(shop: Workshop, system: System, arguments: Sequence[str], name: str) -> None:
    """Link a library called ``name``, which shows the functions of ``tilewright.h``."""
    shown = sorted(set(_API.findall(shop["tilewright.h"].read_text())))
    shop.write("exports", [f"{{ global: {''.join(f'{n}; ' for n in shown)}local: *; }};\n".encode()])
    each = [system.export.format(name=n) for n in (*shown, *system.shown)] if system.export else []
    shop.run([*arguments, *each, *(x.format(file=name) for x in system.link)])


def _put(made: Path, path: Path, kind: Kind) -> None:
    with made.open("rb") as source, replacing(path, kind) as out:
        shutil.copyfileobj(source, out, 1 << 20)
