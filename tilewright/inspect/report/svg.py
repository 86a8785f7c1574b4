"""Small charts as SVG text: axes with round ticks, steps, lines, dots. Colours are classes of the page's style."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 10.0, 8.0, 34.0
_MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class Axis:
    """``low`` to ``high``; ``log``: by powers. ``unit`` and ``scale``: what ticks are written in."""

    label: str
    low: float
    high: float
    log: bool = False
    scale: float = 1.0

    def share(self, value: float) -> float:
        """Where a value is, 0 to 1; values outside are at the border."""
        if self.log:
            low, high = math.log(self.low), math.log(self.high)
            at = (math.log(max(value, self.low)) - low) / ((high - low) or 1.0)
        else:
            at = (value - self.low) / ((self.high - self.low) or 1.0)
        return min(max(at, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """A few round values between the ends."""
        low, high = self.low * self.scale, self.high * self.scale
        found = _log_ticks(low, high) if self.log else _linear_ticks(low, high)
        return [t / self.scale for t in found]

    def text(self, value: float) -> str:
        """How a tick is written."""
        return tick_text(value * self.scale)


@dataclass(frozen=True, slots=True)
class Frame:
    """A drawing area with its axes; methods give marks, :meth:`svg` the picture."""

    x: Axis
    y: Axis
    width: float = 360.0
    height: float = 210.0

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Coordinates of a point."""
        w, h = self.width - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return _LEFT + w * self.x.share(x), _TOP + h * (1.0 - self.y.share(y))

    def line(self, points: Iterable[tuple[float, float]], style: str) -> str:
        """Points joined by straight lines."""
        places = [self.place(*p) for p in thin(list(points))]
        return f'<polyline class="{style}" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}"/>'

    def steps(self, points: Sequence[tuple[float, float]], style: str) -> str:
        """A value that holds until the next one."""
        out: list[str] = []
        for i, p in enumerate(points):
            x, y = self.place(*p)
            out.append(f"M{x:.1f} {y:.1f}" if i == 0 else f"H{x:.1f}V{y:.1f}")
        return f'<path class="{style}" d="{"".join(out)}"/>'

    def dots(self, points: Sequence[tuple[float, float]], style: str, radius: float = 1.6) -> str:
        """A sample of the points, as one path of small squares."""
        places = (self.place(*p) for p in thin(points))
        side = 2 * radius
        drawn = (f"M{x - radius:.1f} {y - radius:.1f}h{side:g}v{side:g}h-{side:g}z" for x, y in places)
        return f'<path class="{style}" d="{"".join(drawn)}"/>'

    def dot(self, x: float, y: float, radius: float, style: str, title: str = "") -> str:
        """One disc, with a text that shows when pointed at."""
        at_x, at_y = self.place(x, y)
        told = f"<title>{escape(title)}</title>" if title else ""
        return f'<circle class="{style}" cx="{at_x:.1f}" cy="{at_y:.1f}" r="{radius:.1f}">{told}</circle>'

    def text(self, x: float, y: float, text: str, style: str = "note", anchor: str = "start", lift: float = 4.0) -> str:
        """A note at a point."""
        at_x, at_y = self.place(x, y)
        start = f'<text class="{style}" x="{at_x:.1f}" y="{at_y - lift:.1f}" text-anchor="{anchor}">'
        return f"{start}{escape(text)}</text>"

    def svg(self, marks: Iterable[str], label: str) -> str:
        """The picture. ``label``: what it shows, for those who cannot see it."""
        left, right = _LEFT, self.width - _RIGHT
        bottom = self.height - _BOTTOM
        parts = [f'<svg viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(label)}">']
        for t in self.y.ticks():
            _, y = self.place(self.x.low, t)
            parts.append(f'<line class="grid" x1="{left:g}" x2="{right:g}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{left - 5:g}" y="{y + 3.5:.1f}" text-anchor="end">{self.y.text(t)}</text>')
        for t in self.x.ticks():
            x, _ = self.place(t, self.y.low)
            parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom:g}" y2="{bottom + 3:g}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 14:g}" text-anchor="middle">{self.x.text(t)}</text>')
        parts.append(f'<line class="axis" x1="{left:g}" x2="{right:g}" y1="{bottom:g}" y2="{bottom:g}"/>')
        parts += marks
        foot = f'class="label" y="{self.height - 5:g}"'
        parts.append(f'<text {foot} x="{right:g}" text-anchor="end">{escape(self.x.label)}</text>')
        parts.append(f'<text {foot} x="2">{escape(self.y.label)}</text>')
        return "".join([*parts, "</svg>"])


def thin(points: Sequence[tuple[float, float]], most: int = _MOST_POINTS) -> list[tuple[float, float]]:
    """At most about ``most`` of the points, evenly, the last one included."""
    if len(points) <= most:
        return list(points)
    step = -(-len(points) // most)
    return [*points[:-1:step], points[-1]]


def tick_text(value: float) -> str:
    """``0.5``, ``20``, ``1.5k``, ``2M``."""
    for size, suffix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / min(size, 1e3) if suffix == 'k' else value / size:.3g}{suffix}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _linear_ticks(low: float, high: float, count: int = 5) -> list[float]:
    span = high - low
    if span <= 0:
        return [low]
    rough = span / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    decades = math.log10(high / low)
    steps = (1.0,) if decades > 4 else (1.0, 2.0, 5.0) if decades > 0.7 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0)
    out = [
        m * 10.0**e
        for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for m in steps
        if low * 0.999 <= m * 10.0**e <= high * 1.001
    ]
    return out if len(out) > 1 else [low, high]
