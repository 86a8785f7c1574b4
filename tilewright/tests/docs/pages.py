"""What documentation has in its fences, and the scripts that write pages."""

from __future__ import annotations

import re
import sys
from functools import cache
from importlib import import_module
from typing import Any

from tilewright.tests.sources import ROOT


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """A page without its blocks of code and its comments."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.sub(r"^```.*?^```$|<!--.*?-->", "", text, flags=re.MULTILINE | re.DOTALL)


@cache
def script(name: str) -> Any:
    """The script of docs that writes a page."""
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(ROOT / "docs"))
