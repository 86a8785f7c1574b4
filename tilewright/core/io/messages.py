"""What a command says beside its result: messages of the logger ``tilewright`` and warnings, on standard error.

The library itself prints nothing: it logs, and it warns. Only a command shows what was said, and for its own time only.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

LOGGER = logging.getLogger("tilewright")
_LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG)


class _Once(logging.Filter):
    """Lets each text pass once."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if text in self._seen:
            return False
        self._seen.add(text)
        return True


@contextmanager
def shown_messages(quiet: bool, verbose: int, out: TextIO | None = None) -> Iterator[None]:
    """Show messages and warnings on ``out`` (standard error), a line each, the same text once. ``quiet``: errors alone;
    ``verbose``: how much more than warnings (1: what is done, 2: in which steps)."""
    handler = logging.StreamHandler(sys.stderr if out is None else out)
    handler.setFormatter(logging.Formatter("tilewright: %(message)s"))
    handler.addFilter(_Once())
    before, propagated = LOGGER.level, LOGGER.propagate
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.ERROR if quiet else _LEVELS[min(verbose, len(_LEVELS) - 1)])
    LOGGER.propagate = False
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _log_warning
            yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
        LOGGER.propagate = propagated


def _log_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    """In a line of its own; where in our code it was said helps nobody."""
    LOGGER.warning("%s: %s", category.__name__, message)
