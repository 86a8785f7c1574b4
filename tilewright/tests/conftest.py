"""Builds of the tests, and of processes that they start, check their functions by the verifier of the tensor IR."""

from __future__ import annotations

import gc
import os

os.environ.setdefault("TILEWRIGHT_VERIFY", "1")


def pytest_collection_finish() -> None:
    """Thousands of tests, and the modules they import, are not looked through for garbage again and again."""
    gc.collect()
    gc.freeze()
