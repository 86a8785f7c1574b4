"""Where a model comes from: a path, bytes or a message; and where the bytes of its tensors are."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from tilewright.core.errors import ModelError
from tilewright.core.io.stored import LEAST, StoredBytes, StoredFile
from tilewright.frontend.model_file.wire import Buffer, Span, open_file, split_payloads

ModelLike: TypeAlias = "str | Path | bytes | memoryview | onnx.ModelProto"


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A parsed model. Large tensors of a serialized model are not in ``model`` but in ``buffer`` at ``spans``."""

    model: onnx.ModelProto
    buffer: Buffer | None = None
    spans: tuple[Span, ...] = ()
    directory: Path | None = None
    files: dict[str, Buffer] = field(default_factory=dict)
    """External data files, by location."""
    parts: dict[tuple[int, int, int], StoredBytes] = field(default_factory=dict)

    def part(self, buffer: Buffer, offset: int, nbytes: int) -> np.ndarray | StoredBytes:
        """Some bytes of a buffer of this source (uint8, read-only). A large part of a file is not read yet, and is the
        same object each time."""
        if not isinstance(buffer, StoredFile):
            return np.frombuffer(buffer, np.uint8, nbytes, offset)
        if nbytes < LEAST:
            return np.frombuffer(buffer.read(offset, nbytes), np.uint8)
        key = id(buffer), offset, nbytes
        if key not in self.parts:
            self.parts[key] = StoredBytes(buffer, offset, nbytes)
        return self.parts[key]


def open_source(model: ModelLike) -> Source:
    """Parse a model given by path, by its serialized bytes or as a message. Raises ModelError."""
    if isinstance(model, onnx.ModelProto):
        return Source(model)
    if isinstance(model, str | Path):
        path = Path(model)
        return _parse(open_file(path), str(path), path.resolve().parent)
    if isinstance(model, bytes | bytearray | memoryview):
        held = model if isinstance(model, bytes) else bytes(model)  # others may be written to later
        return _parse(memoryview(held), "model", None)
    raise ModelError(f"model: expected a path, bytes or an onnx.ModelProto, got {type(model).__name__}")


def _parse(buffer: Buffer, who: str, directory: Path | None) -> Source:
    if len(buffer) == 0:
        raise ModelError(f"{who}: expected an ONNX model, got an empty file")
    try:
        small, spans = split_payloads(buffer)
        message = onnx.ModelProto.FromString(small)
    except ModelError as e:
        raise ModelError(f"{who} is not an ONNX model: {e}") from e
    except (DecodeError, UnicodeDecodeError) as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise ModelError(f"{who} is not an ONNX model: {reason}") from e
    return Source(message, buffer, spans, directory)
