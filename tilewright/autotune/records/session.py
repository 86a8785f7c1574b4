"""Where a record is from: one tuning of one model.

Equal for all records of a session, so that a log has it once. Two sessions have different digests if they began at
different times or tuned different models.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Session:
    """``id``: for people and filters. ``model``: the name of the model's file, without directories, or of its graph.
    ``digest``: SHA-256 of the file, in hex. ``started``: seconds since the epoch. ``commit``: of the compiler's source,
    if it ran from a checkout. ``host``: a name, only if somebody asked for it. ``extra``: unknown fields."""

    id: str
    model: str = ""
    digest: str = ""
    started: float = 0.0
    commit: str = ""
    host: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def label(self) -> str:
        """``resnet18.onnx 3f2a91c0``: the model and the beginning of its digest."""
        return f"{self.model} {self.digest[:8]}".strip()

    def to_json(self) -> dict[str, Any]:
        """Its fields, without those that are empty."""
        own = {
            "id": self.id, "model": self.model, "digest": self.digest, "started": self.started, "commit": self.commit,
            "host": self.host,
        }  # fmt: skip
        return {**{k: v for k, v in own.items() if k == "id" or v}, **self.extra}


def make_session(
    model: str = "", digest: str = "", started: float = 0.0, seed: int | None = None, commit: str = "", host: str = ""
) -> Session:
    """The session that begins at ``started``; its ``id`` follows from what is given."""
    text = "\n".join((model, digest, repr(started), str(seed), commit, host))
    return Session(hashlib.sha256(text.encode()).hexdigest()[:12], model, digest, started, commit, host)
