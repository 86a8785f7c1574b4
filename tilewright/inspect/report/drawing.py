"""One chart: matplotlib's axes as SVG text for a page, in the colours of the page's style."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FG, SOFT, LINE, MARK, GOOD, BG = "#1c1f23", "#626a73", "#d9dde2", "#a9b3be", "#0b6e5f", "#fefefe"
_VARIABLES = {FG: "fg", SOFT: "soft", LINE: "line", MARK: "mark", GOOD: "good", BG: "bg"}
"""The variables of the page's style that take the place of these colours: it has others in the dark."""
_RC: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "report", "path.simplify": False, "text.color": FG, "axes.labelcolor": SOFT,
    "axes.edgecolor": MARK, "axes.axisbelow": True, "grid.color": LINE,
    "axes.spines.top": False, "axes.spines.left": False, "axes.spines.right": False, "lines.linewidth": 1.8,
    "xtick.color": MARK, "xtick.labelcolor": SOFT, "ytick.labelcolor": SOFT, "ytick.major.size": 0,
}  # fmt: skip
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 24.0, 34.0
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Axis:
    """``low`` to ``high``; ``log``: by powers."""

    label: str
    low: float
    high: float
    log: bool = False


def chart(
    label: str, x: Axis, y: Axis, draw: Callable[[Axes], None], notes: Mapping[str, str] | None = None,
    size: tuple[float, float] = (360.0, 210.0),
) -> str:  # fmt: skip
    """What ``draw`` draws, as an SVG element. ``label``: what it shows, for those who cannot see it. ``notes``: texts
    that show when an artist is pointed at, by its gid."""
    import matplotlib
    from matplotlib.figure import Figure

    out = io.StringIO()
    with matplotlib.rc_context(_RC):
        figure = Figure((size[0] / 72, size[1] / 72))
        width, height = 1 - (_LEFT + _RIGHT) / size[0], 1 - (_TOP + _BOTTOM) / size[1]
        axes = figure.add_axes((_LEFT / size[0], _BOTTOM / size[1], width, height))
        _set_axes(axes, x, y)
        draw(axes)
        figure.savefig(
            out, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    return _inline(out.getvalue(), label, size, notes or {})


def _set_axes(axes: Axes, x: Axis, y: Axis) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, StrMethodFormatter

    axes.set_xlim(x.low, x.high)
    axes.set_ylim(y.low, y.high)
    for axis, a, set_scale, most in ((axes.xaxis, x, axes.set_xscale, 1e4), (axes.yaxis, y, axes.set_yscale, 1e3)):
        if a.log:
            set_scale("log")
            axis.set_minor_locator(NullLocator())
        if a.log and a.high > 30 * a.low:
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if a.high < most * a.low else (1.0,), numticks=99))
        else:
            axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.grid(axis="y", clip_on=False)
    axes.set_xlabel(x.label, loc="right")
    axes.annotate(y.label, (0, 1), (2 - _LEFT, 10), "axes fraction", "offset points", color=SOFT)


def dots(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """A sample of the points, as one path: the round ends of lines without length."""
    gap = float("nan")
    xs = [v for x, _ in thin(points) for v in (x, x, gap)]
    ys = [v for _, y in thin(points) for v in (y, y, gap)]
    axes.plot(xs, ys, color=MARK, lw=4, solid_capstyle="round", clip_on=False)


def line(axes: Axes, points: Sequence[tuple[float, float]], color: str = GOOD, width: float = 1.8) -> None:
    """Points joined by straight lines."""
    axes.plot(*zip(*thin(points), strict=True), color=color, lw=width, clip_on=False)


def steps(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """A value that holds until the next one."""
    axes.step(*zip(*thin(points), strict=True), where="post", color=GOOD, clip_on=False)


def level(axes: Axes, at: float, text: str = "") -> None:
    """A dashed line across, with what it is at its right end."""
    low, high = axes.get_xlim()
    axes.plot((low, high), (at, at), "--", color=SOFT, lw=1, clip_on=False)
    if text:
        note(axes, high, at, text, "right")


def note(axes: Axes, x: float, y: float, text: str, side: str = "center", lift: float = 4.0) -> None:
    """A text at a point."""
    axes.annotate(text, (x, y), (0, lift), textcoords="offset points", ha=side)


def thin(points: Sequence[tuple[float, float]], most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most about ``most`` of the points, evenly, the last one included."""
    if len(points) <= most:
        return list(points)
    step = -(-len(points) // most)
    return [*points[:-1:step], points[-1]]


def _inline(svg: str, label: str, size: tuple[float, float], notes: Mapping[str, str]) -> str:
    """Without what a page repeats for each picture, its colours as variables, its numbers short."""
    body = svg[svg.index("</defs>") + len("</defs>") :]
    body = re.sub(r' id="[\w.]+_\d+"| transform="rotate\(-0 [^"]*"|font[a-z-]*: [^;"]*; |\n\s*', "", body)
    body = re.sub(r'"[^"]*"', lambda m: re.sub(r"(\.\d)\d+", r"\1", m.group()), body)
    body = re.sub("|".join(_VARIABLES), lambda m: f"var(--{_VARIABLES[m.group()]})", body)
    for gid, text in notes.items():
        body = body.replace(f'<g id="{gid}">', f"<g><title>{escape(text)}</title>")
    return f'<svg viewBox="0 0 {size[0]:g} {size[1]:g}" role="img" aria-label="{escape(label)}">{body}'
