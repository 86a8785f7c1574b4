"""The style that every piece of a page has, once; a page of our own adds what only a whole page needs.

Colours are variables. In a page of somebody else, a notebook, they must suit its background, which may be light or
dark and which CSS cannot ask for: text has the colour of the page, and the others can be read on white and on black.
"""

from __future__ import annotations

from collections.abc import Mapping

FRAGMENT = "tilewright"
"""The class of the element around a piece in a page of somebody else."""

FRAGMENT_COLOURS: Mapping[str, str] = {
    "fg": "currentColor", "soft": "#7a7f86", "line": "#8886", "faint": "#8881", "mark": "#888", "good": "#188a72",
    "bad": "#c4574a",
}  # fmt: skip

_CODE_COLOURS: Mapping[str, str] = {
    "text": "#4a8a28", "kind": "#a67600", "word": "#a457b8", "type": "#3a7fc4", "number": "#168a94",
}  # fmt: skip
"""Of what :func:`tilewright.core.html.code.highlighted` tells apart."""

READABLE = tuple(FRAGMENT_COLOURS[c] for c in ("soft", "good", "bad")) + tuple(_CODE_COLOURS.values())
"""What text is written in, whatever the background."""

_RULES: Mapping[str, str] = {
    ".soft, summary": "color:var(--soft)",
    "code, pre": "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace",
    "code": "font-size:.9em;overflow-wrap:anywhere",
    "dl": "display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:12px 20px;margin:18px 0",
    "dt": "font-size:.8rem;color:var(--soft);font-weight:400",
    "dd": "margin:0;font-variant-numeric:tabular-nums;font-weight:560;overflow-wrap:anywhere",
    ".scroll": "overflow-x:auto;margin:10px 0",
    "table": "border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;width:100%",
    "th, td": "padding:3px 12px 3px 0;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)",
    "th": "font-weight:500;color:var(--soft);vertical-align:bottom",
    "td:last-child, th:last-child": "padding-right:0",
    ".n": "text-align:right",
    ".name": "white-space:normal;min-width:13ch;overflow-wrap:anywhere",
    ".wide": "width:28%;min-width:80px",
    ".bar": "display:block;height:9px;background:var(--good);opacity:.75",
    ".bar.bad": "background:var(--bad)",
    ".changed td": "font-weight:600",
    "pre": "margin:4px 0 10px;padding:10px 12px;background:var(--faint);font-size:.74rem;line-height:1.4;"
    "overflow:auto;max-height:36rem;tab-size:4",
    "summary": "cursor:pointer;padding:4px 0;font-size:.9rem",
    **{f"pre .{name}": f"color:{colour}" for name, colour in _CODE_COLOURS.items()},
}  # fmt: skip


def page_style() -> str:
    """The rules for a page of our own, which sets the colours."""
    return "\n".join(f"{selectors}{{{rule}}}" for selectors, rule in _RULES.items())


def fragment_style() -> str:
    """The rules for a piece in a page of somebody else, which they leave as it is."""
    colours = ";".join(f"--{name}:{value}" for name, value in FRAGMENT_COLOURS.items())
    lines = [f".{FRAGMENT}{{{colours};color:var(--fg);line-height:1.4}}"]
    for selectors, rule in _RULES.items():
        within = ", ".join(f".{FRAGMENT} {s}" for s in selectors.split(", "))
        lines.append(f"{within}{{{rule}}}")
    return "\n".join(lines)
