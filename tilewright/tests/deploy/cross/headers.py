"""What the headers of libraries say: the machine they are for, and the functions that they show."""

from __future__ import annotations

import struct


def pe_exports(data: bytes) -> tuple[int, list[str]]:
    """Of a library for 64-bit Windows: the number of the machine, and the names."""
    start = struct.unpack_from("<I", data, 0x3C)[0]
    assert data[start : start + 4] == b"PE\0\0"
    machine, sections = struct.unpack_from("<2H", data, start + 4)
    options = start + 24
    assert struct.unpack_from("<H", data, options)[0] == 0x20B
    table = options + struct.unpack_from("<H", data, start + 20)[0]
    parts = [struct.unpack_from("<8s4I", data, table + 40 * k) for k in range(sections)]

    def place(address: int) -> int:
        return next(
            address - at + where for _, size, at, stored, where in parts if at <= address < at + max(size, stored)
        )

    exports = place(struct.unpack_from("<I", data, options + 112)[0])
    count = struct.unpack_from("<I", data, exports + 24)[0]
    names = place(struct.unpack_from("<I", data, exports + 32)[0])
    starts = [place(struct.unpack_from("<I", data, names + 4 * k)[0]) for k in range(count)]
    return machine, [data[at : data.index(b"\0", at)].decode() for at in starts]


def mach_o_exports(data: bytes) -> tuple[int, set[str]]:
    """The same of one for 64-bit macOS."""
    magic, machine, _, kind, commands = struct.unpack_from("<5I", data)
    assert (magic, kind) == (0xFEEDFACF, 6)
    at, names = 32, set()
    for _ in range(commands):
        command, size = struct.unpack_from("<2I", data, at)
        if command == 2:
            symbols, count, text, _ = struct.unpack_from("<4I", data, at + 8)
            for k in range(count):
                name, flags = struct.unpack_from("<IB", data, symbols + 16 * k)
                if flags & 0x01 and flags & 0x0E and not flags & 0x10:
                    start = text + name
                    names.add(data[start : data.index(b"\0", start)].decode())
        at += size
    return machine, names
