"""Large tensors out of a serialized model without copying them: a scanner of the protobuf wire format.

A model file is not read as a whole. :func:`split_payloads` walks only messages that are large enough to hold a large
tensor (graph, node, attribute, function, tensor), cuts the fields that hold the elements (``raw_data``, packed
``float_data`` and ``double_data``) out, and leaves a marker in their place. What remains is a small message that
the onnx package parses; the cut fields are spans of the file, which are read into place, or of the bytes that were
given, which numpy can view.

A marker is an ``external_data`` entry with the key :data:`MARKER` and the number of the span as value, so it stays
with its tensor whatever the order of fields. Variable-length integer fields cannot be viewed and stay in the message.
"""

from __future__ import annotations

import io
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tilewright.core.errors import ModelError
from tilewright.core.io.stored import StoredFile

Buffer: TypeAlias = "StoredFile | memoryview"

MARKER = "tilewright.payload"
THRESHOLD = 1024
_MAX_DEPTH = 90  # protobuf itself refuses messages nested deeper than 100

RAW_DATA, FLOAT_DATA, DOUBLE_DATA = 9, 4, 10
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_PAYLOAD_FIELDS = frozenset((RAW_DATA, FLOAT_DATA, DOUBLE_DATA))

# message kind -> field number -> kind of the message in that field (only those that may contain tensors)
_CHILDREN: dict[str, dict[int, str]] = {
    "model": {7: "graph", 25: "function"},
    "graph": {1: "node", 5: "tensor"},
    "function": {7: "node", 11: "attribute"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph"},
    "tensor": {},
}


@dataclass(frozen=True, slots=True)
class Span:
    """One field that was cut out: its number in TensorProto and where its bytes are."""

    field: int
    offset: int
    length: int


def open_file(path: Path) -> Buffer:
    """A file to read from (an empty view for an empty file). Raises ModelError."""
    try:
        file = io.FileIO(path, opener=_without_waiting)
        stored = StoredFile(path, file)
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ModelError(f"cannot read {path}: expected a regular file")
    except (OSError, ValueError) as e:
        raise ModelError(f"cannot read {path}: {getattr(e, 'strerror', None) or e}") from e
    return stored if len(stored) else memoryview(b"")


def _without_waiting(name: str, flags: int) -> int:
    """Opens a file; a named pipe too, which otherwise waits until somebody writes to it."""
    return os.open(name, flags | getattr(os, "O_NONBLOCK", 0))


def split_payloads(buffer: Buffer, threshold: int = THRESHOLD) -> tuple[bytes, tuple[Span, ...]]:
    """The model message without its large tensor data, and the spans of that data in ``buffer``.

    Raises ModelError where the bytes are not a well-formed message.
    """
    spans: list[Span] = []
    parts = _strip(buffer, 0, len(buffer), "model", spans, threshold, 0)
    return (_copy(buffer, 0, len(buffer)) if parts is None else b"".join(parts)), tuple(spans)


def _copy(buffer: Buffer, start: int, end: int) -> bytes:
    return buffer.read(start, end - start) if isinstance(buffer, StoredFile) else bytes(buffer[start:end])


def _varint(buffer: Buffer, pos: int, end: int) -> tuple[int, int]:
    """The unsigned integer at ``pos`` and the position after it."""
    value = shift = 0
    while True:
        if pos >= end or shift > 63:
            raise ModelError(f"model file: malformed or truncated integer at byte {pos}")
        byte = buffer[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
        shift += 7


def encode_varint(value: int) -> bytes:
    """An unsigned integer as the wire format has it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field_bytes(number: int, content: bytes) -> bytes:
    return encode_varint(number << 3 | _BYTES) + encode_varint(len(content)) + content


def _strip(
    buffer: Buffer, start: int, end: int, kind: str, spans: list[Span], threshold: int, depth: int
) -> list[bytes] | None:
    """The message ``buffer[start:end]`` without large payloads, in pieces; None if nothing was cut."""
    if depth > _MAX_DEPTH:
        raise ModelError(f"model file: messages nested deeper than {_MAX_DEPTH} at byte {start}")
    children = _CHILDREN[kind]
    is_tensor = kind == "tensor"
    parts: list[bytes] = []
    cut: dict[int, Span] = {}
    kept_from = pos = start
    while pos < end:
        tag_at = pos
        tag, pos = _varint(buffer, pos, end)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            _, pos = _varint(buffer, pos, end)
        elif wire_type == _FIXED64:
            pos += 8
        elif wire_type == _FIXED32:
            pos += 4
        elif wire_type == _BYTES:
            length, body = _varint(buffer, pos, end)
            pos = body + length
            if pos > end:
                raise ModelError(f"model file: field {number} of a {kind} at byte {tag_at} needs {length} bytes, "
                                 f"got {end - body} (truncated?)")  # fmt: skip
            if length > threshold:
                replacement: list[bytes] | None = None
                if is_tensor and number in _PAYLOAD_FIELDS and number not in cut:
                    cut[number] = Span(number, body, length)
                    replacement = []
                elif number in children:
                    replacement = _strip(buffer, body, pos, children[number], spans, threshold, depth + 1)
                    if replacement is not None:
                        size = sum(map(len, replacement))
                        replacement = [encode_varint(tag) + encode_varint(size), *replacement]
                if replacement is not None:
                    parts.append(_copy(buffer, kept_from, tag_at))
                    parts.extend(replacement)
                    kept_from = pos
        else:
            raise ModelError(f"model file: unknown wire type {wire_type} at byte {tag_at}")
        if pos > end:
            raise ModelError(f"model file: truncated {kind} at byte {tag_at}")
    if not parts:
        return None
    parts.append(_copy(buffer, kept_from, end))
    for span in cut.values():
        entry = _field_bytes(1, MARKER.encode()) + _field_bytes(2, str(len(spans)).encode())
        parts.append(_field_bytes(13, entry))
        spans.append(span)
    return parts
