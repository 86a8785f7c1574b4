"""What measuring one candidate gave: a time, or a failure with its kind. A failure is not a large number."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class FailureKind(StrEnum):
    """Why a candidate has no time.

    ``illegal``: its trace does not replay. ``compile_error``, ``compile_timeout``: no machine code, or not in time.
    ``run_timeout``: it did not finish. ``crash``: it killed its process. ``memory``: it wanted more than its cap.
    ``wrong_result``: its result is not that of the naive schedule. ``worker_lost``: the process or host that measured
    it went away for a reason of its own, twice.
    """

    ILLEGAL = "illegal"
    COMPILE_ERROR = "compile_error"
    COMPILE_TIMEOUT = "compile_timeout"
    RUN_TIMEOUT = "run_timeout"
    CRASH = "crash"
    MEMORY = "memory"
    WRONG_RESULT = "wrong_result"
    WORKER_LOST = "worker_lost"

    @property
    def is_hard(self) -> bool:
        """True if measuring the candidate again can only cost time: it is the candidate's own fault."""
        return self is not FailureKind.WORKER_LOST


@dataclass(frozen=True, slots=True)
class Ok:
    """``samples``: seconds of one run each; ``seconds``: their median, or that of the fastest visit's. ``error``:
    largest deviation from the naive result, relative to the larger of the element and the root mean square.
    ``compile_seconds``: what building took. ``preliminary``: a later result of the same measurement will follow."""

    seconds: float
    samples: tuple[float, ...]
    error: float
    compile_seconds: float
    preliminary: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """No time, and why."""

    kind: FailureKind
    message: str


MeasureResult: TypeAlias = Ok | Failed
