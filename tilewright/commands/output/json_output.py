"""``--json``: one object on standard output, and nothing else there."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

SCHEMA = 1
"""Of the objects. A key may be added under the same number; one that goes or means something else raises it."""


def add_json_option(parser: argparse.ArgumentParser) -> None:
    """The option of commands whose results programs read."""
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text (docs/json-output.md)")


def print_json(command: str, found: Mapping[str, Any]) -> None:
    """The object of a command: what it found, after its name, the schema and the version."""
    head = {"command": command, "schema": SCHEMA, "tilewright": version("tilewright")}
    print(json.dumps(_plain({**head, **found}), indent=2, allow_nan=False))


def _plain(value: Any) -> Any:
    """``value`` with numbers that JSON does not have (infinity, NaN) as null."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
