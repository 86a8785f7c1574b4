"""Object files of macOS: names that a library does not show.

The linker of ``zig`` shows whatever an object shows, and code generated for Linux, where a list for the linker decides,
shows all.
"""

from __future__ import annotations

import struct

_MAGIC = 0xFEEDFACF
_HEADER = "<8I"
_LC_SYMTAB = 2
_EXTERNAL, _PRIVATE, _KIND = 0x01, 0x10, 0x0E


def with_private_names(code: bytes) -> bytes:
    """A 64-bit object whose functions are known to the objects that it is linked with alone."""
    out = bytearray(code)
    magic, *_, commands, _, _, _ = struct.unpack_from(_HEADER, out)
    assert magic == _MAGIC
    at = struct.calcsize(_HEADER)
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", out, at)
        if command == _LC_SYMTAB:
            first, count = struct.unpack_from("<2I", out, at + 8)
            for entry in range(first, first + 16 * count, 16):
                kind = out[entry + 4]
                if kind & _EXTERNAL and kind & _KIND:  # defined here
                    out[entry + 4] = kind | _PRIVATE
        at += size
    return bytes(out)
