"""Pieces of C: strings and tables."""

from __future__ import annotations

from collections.abc import Sequence

_WIDTH = 116


def quoted(text: str) -> str:
    """A string literal of UTF-8."""
    out = []
    for b in text.encode():
        c = chr(b)
        out.append(f"\\{c}" if c in '"\\?' else c if 32 <= b < 127 else f"\\{b:03o}")
    return '"' + "".join(out) + '"'


def long_string(text: str) -> str:
    """A string literal over several lines."""
    step = 96
    return "\n".join(f"    {quoted(text[k : k + step])}" for k in range(0, max(len(text), 1), step))


def table(head: str, items: Sequence[object]) -> str:
    """A constant array; of one zero where there are no items, since C has no empty arrays."""
    lines, line = [], " "
    for item in items or ("{0}" if "tw_" in head and "*" not in head else "0",):
        text = f" {item},"
        if len(line) + len(text) > _WIDTH:
            lines.append(line)
            line = " "
        line += text
    return "\n".join([f"static const {head}[] = {{", *lines, line, "};"])
