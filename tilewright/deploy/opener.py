"""``libtilewright``: the library that opens artifacts by their paths, for programs that are not linked with a model."""

from __future__ import annotations

from pathlib import Path

from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.io.files import Kind, replacing, require_replaceable
from tilewright.core.options import require_path
from tilewright.deploy.include import get_include
from tilewright.deploy.toolchain import Workshop, find_toolchain

_SOURCES = ("loader/loader.c", "errors.c", "files.c")
_HEADERS = ("tilewright.h", "tilewright_dl.h", "internal.h", "platform.h")
_FLAGS = ("-std=c11", "-Os", "-fPIC", "-fvisibility=hidden", "-shared", "-s", "-Wl,--build-id=none,-Bsymbolic", "-I.")
_MARK = b"tilewright seal\n"
LOADER = Kind("a libtilewright that tilewright wrote", lambda f: _MARK in f.read(1 << 22))


def export_loader(path: str | Path) -> Path:
    """Write ``libtilewright``: a library with the interface of ``tilewright.h`` that opens artifacts by their paths,
    for programs in other languages. Gives the path. It needs a C compiler.

    Raises InputError where another kind of file is at ``path``, TargetError for what the C compiler refuses.

    >>> tilewright.export_loader("libtilewright.so").name
    'libtilewright.so'
    """
    place = require_replaceable(require_path("path", path), LOADER)
    native = Path(get_include())
    with Workshop(find_toolchain(detect_host())) as shop:
        names = [shop.write(Path(name).name, [(native / name).read_bytes()]) for name in (*_SOURCES, *_HEADERS)]
        shop.run([*_FLAGS, *(n for n in names if n.endswith(".c")), "-o", "out", "-ldl"])
        with replacing(place, LOADER) as f:
            f.write(shop["out"].read_bytes())
    return place
