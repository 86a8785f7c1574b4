"""Packages that not every user needs: they come with extras of this one, and are imported when they are used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any


def optional_package(name: str, extra: str) -> Any:
    """The module ``name``. Raises ModuleNotFoundError with the command that installs what has it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as e:
        raise ModuleNotFoundError(
            f"{name.partition('.')[0]} is not installed: pip install 'tilewright[{extra}]'", name=name
        ) from e


def dataframe(rows: Sequence[Mapping[str, object]]) -> Any:
    """The rows as a ``pandas.DataFrame``, a column for each key. Raises ModuleNotFoundError without pandas."""
    return optional_package("pandas", "plots").DataFrame(list(rows))
