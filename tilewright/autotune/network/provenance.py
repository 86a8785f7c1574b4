"""Where the records of a tuning are from: the model, when, on which state of the compiler, on request on which host."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import onnx

from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.records.session import Session, make_session
from tilewright.compile import ModelLike
from tilewright.core.io.revision import source_commit
from tilewright.graph_ir.ir import Graph

_LARGEST = 1 << 30
"""Bytes of a message whose digest is taken; a file's is always."""


def session_of(model: ModelLike, o: TuneOptions, started: float) -> Session:
    """The session that tunes ``model`` from ``started`` on (seconds since the epoch)."""
    name, digest = _identity(model)
    host = socket.gethostname() if o.record_host else ""
    return make_session(name, digest, started, o.seed, source_commit(), host)


def _identity(model: ModelLike) -> tuple[str, str]:
    """The name of a model and the SHA-256 of its file; empty if it has none."""
    match model:
        case str() | os.PathLike():
            path = Path(model).expanduser()
            with path.open("rb") as f:
                return path.name, hashlib.file_digest(f, "sha256").hexdigest()
        case bytes():
            return "", hashlib.sha256(model).hexdigest()
        case onnx.ModelProto():
            is_small = model.ByteSize() <= _LARGEST
            return model.graph.name, hashlib.sha256(model.SerializeToString()).hexdigest() if is_small else ""
        case Graph():
            return model.name, ""
    return model.graph.name, ""
