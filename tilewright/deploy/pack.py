"""Several builds of a model as one package, and what any artifact says of itself."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.core.errors import InputError
from tilewright.core.io.files import require_replaceable
from tilewright.core.options import require_path
from tilewright.deploy.files.package import MAGIC, PACKAGE, PackageError, manifests, write_package
from tilewright.deploy.manifest import BEGIN
from tilewright.deploy.systems import parts
from tilewright.runtime.model import CompiledModel

SUFFIX = ".twa"
_LIBRARIES = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\0asm")
"""How libraries of Linux, Windows, macOS and WebAssembly begin."""
_PYTHON_NAMES = {"windows": "win32", "macosx": "darwin", "macos": "darwin"}
"""What Python calls systems that LLVM calls otherwise."""


def export_package(path: str | Path, models: Sequence[CompiledModel]) -> Path:
    """Write builds of one model for several targets to one file, a package (``model.twa``). Gives its path.

    ``tilewright.load`` and ``tilewright.h`` take the first build that the CPU can run; those with more features come
    first. Weights that builds share are stored once. Raises what :meth:`CompiledModel.export` raises.

    >>> targets = ("llvm -mcpu=x86-64-v3", "llvm -mcpu=x86-64-v4")
    >>> models = [tilewright.compile("model.onnx", target=t) for t in targets]
    >>> path = tilewright.export_package("model.twa", models)
    >>> path.name
    'model.twa'
    """
    place = require_replaceable(require_path("path", path), PACKAGE)
    if not models:
        raise InputError(f"{path}: expected at least one model to put into a package")
    with tempfile.TemporaryDirectory(prefix="tilewright-") as name:
        found = []
        for k, model in enumerate(models):
            code, weights = model.export(Path(name) / f"{k}", weights="beside", format="shared")
            said = manifest_in(code.read_bytes())
            target = json.loads(said)["target"]
            found.append((-len(target["features"]), k, member_system(target["triple"]), code, said, weights))
        members = [(system, code.read_bytes(), said, weights) for _, _, system, code, said, weights in sorted(found)]
        write_package(place, members)
    return place


def member_system(triple: str) -> str:
    """``x86_64-linux``: what loaders compare with the machine they run on."""
    arch, system, _ = parts(triple)
    return f"{arch}-{_PYTHON_NAMES.get(system, system)}"


def manifest_in(code: bytes) -> bytes:
    """The manifest in a library, which need not be loaded for it. Raises InputError if there is none."""
    start = code.find(BEGIN)
    end = code.find(b"\0", start)
    if start < 0 or end < 0:
        raise InputError("expected an artifact of tilewright: there is no manifest in the file")
    return code[start:end]


def read_manifests(path: str | Path) -> list[dict[str, Any]]:
    """What an artifact says of itself, a dict for each target. Raises InputError for another kind of file."""
    data = require_path("path", path).read_bytes()
    try:
        if data.startswith(MAGIC):
            return manifests(memoryview(data))
        return [json.loads(manifest_in(data))]
    except (PackageError, InputError, ValueError) as e:
        raise InputError(f"{path}: {e}") from e


def is_artifact(path: str | Path) -> bool:
    """True for a package or a library, by how the file begins."""
    place = require_path("path", path)
    if not place.is_file():
        return False
    with place.open("rb") as f:
        return f.read(8).startswith((MAGIC, *_LIBRARIES))


def described(said: dict[str, Any]) -> Iterator[str]:
    """The lines of a listing of one manifest."""
    target, weights = said["target"], said["weights"]
    yield f"model {said['model']}, graph {said['graph'][:16]}, tilewright {said['tilewright']}, format {said['format']}"
    yield f"target {target['triple']} {target['cpu']}, {target['threads']} thread(s)"
    yield f"features {' '.join(target['features'])}"
    yield f"weights {weights['bytes']:,} bytes, digest {weights['digest']}"
    for what in ("inputs", "outputs"):
        for s in said[what]:
            shape = "?" if s["shape"] is None else ", ".join(map(str, s["shape"]))
            yield f"{what[:-1]:6} {s['name']}: {s['type']}[{shape}]"
    for output, name in said["in_place"].items():
        yield f"in place: {output} may be the memory of {name}"
    tuning = said["tuning"]
    yield (
        f"{said['kernels']} kernels: {tuning['hit']} by tuning records ({100 * tuning['share']:.1f} % of the run time, "
        f"estimated), {tuning['near_miss']} by near ones, {tuning['miss']} without"
    )
    yield from (f"  record of {kernel}: {reason}" for kernel, reason in tuning["records"].items())
    by_name: dict[str, list[str]] = {}
    for node, name in said["implementations"].items():
        by_name.setdefault(name, []).append(node)
    yield from (f"computed by {name}: {', '.join(nodes)}" for name, nodes in by_name.items())
    yield f"steps: {' '.join(said['steps'])}"
