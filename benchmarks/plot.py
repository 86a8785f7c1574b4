#!/usr/bin/env python3
"""The table of networks.py as a picture: how fast networks run beside ONNX Runtime and OpenVINO.

    python benchmarks/networks.py --models DIR --openvino fp32 --threads 2 --json speed.json
    python benchmarks/plot.py speed.json -o docs/speed.svg

A row a network, by its gain: a point is the other's median time over ours (right of 1 we are faster), a line its range
from the tenth to the ninetieth percentile of both sides' runs. The picture is an SVG without scripts or fonts of its
own, in light colours or dark ones, as the reader prefers; nothing but the standard library draws it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from tilewright.core.io.files import begins_with, write_file

PICTURE = begins_with("a picture of this script", b'<svg xmlns="http://www.w3.org/2000/svg" class="speed"')
RIVALS = {"ort": "ONNX Runtime", "ov": "OpenVINO"}
"""Prefix of a row's columns -> who it is."""

ROW, TOP, LEFT, PLOT, RIGHT = 20, 64, 190, 430, 90
TICKS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)

STYLE = """\
  .speed { font: 12px system-ui, sans-serif; --text: #1f2328; --faint: #d0d7de; --ort: #0969da; --ov: #bc4c00; }
  @media (prefers-color-scheme: dark) {
    .speed { --text: #d1d7e0; --faint: #3d444d; --ort: #539bf5; --ov: #e0823d; }
  }
  text { fill: var(--text); }
  .title { font-size: 14px; font-weight: 600; }
  .grid { stroke: var(--faint); }
  .one { stroke: var(--text); }
  .ort { stroke: var(--ort); fill: var(--ort); }
  .ov { stroke: var(--ov); fill: var(--ov); }
  .range { stroke-width: 2; opacity: 0.45; }
"""


@dataclass(frozen=True, slots=True)
class Gain:
    """The other's time over ours: of the medians, and the least and the most that the percentiles allow."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Network:
    """A row of the picture: a name, and the gain over each rival that ran it."""

    name: str
    gains: Mapping[str, Gain]


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("rows", help="what networks.py --json wrote")
    p.add_argument("-o", "--output", default="docs/speed.svg")
    p.add_argument("--threads", type=int, help="of the rows to show (default: the most that there are)")
    args = p.parse_args()
    text = drawn(json.loads(Path(args.rows).read_text(encoding="utf-8")), args.threads)
    write_file(args.output, PICTURE, text.encode())
    print(args.output)
    return 0


def drawn(table: Mapping[str, Any], threads: int | None = None) -> str:
    """The picture of a table of networks.py, as SVG. Raises ValueError where no row has been timed."""
    timed = [r for r in table["rows"] if "speed" in r]
    if not timed:
        raise ValueError("rows: expected some that were timed, got none")
    shown = threads or max(r["threads"] for r in timed)
    networks = sorted((network_of(r) for r in timed if r["threads"] == shown), key=lambda n: -n.gains["ort"].median)
    if not networks:
        raise ValueError(f"threads: expected one of {sorted({r['threads'] for r in timed})}, got {shown}")
    scale = Scale.of(networks)
    height = TOP + ROW * (len(networks) + 1) + 24
    width = LEFT + PLOT + RIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="speed" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(_title(table, shown, networks))}">',
        f"<style>\n{STYLE}</style>",
        f'<text class="title" x="8" y="20">{escape(_title(table, shown, networks))}</text>',
        *_legend(networks, table.get("openvino") or ""),
        *_grid(scale, len(networks)),
    ]
    for n, network in enumerate(networks):
        lines += _row(network, TOP + ROW * (n + 1), scale)
    return "\n".join([*lines, "</svg>"]) + "\n"


def network_of(row: Mapping[str, Any]) -> Network:
    """The gains of a row of the table."""
    ours = {k: row[f"ours_{k}"] for k in ("ms", "p10", "p90")}
    return Network(row["name"], {
        who: Gain(row[f"{who}_ms"] / ours["ms"], row[f"{who}_p10"] / ours["p90"], row[f"{who}_p90"] / ours["p10"])
        for who in RIVALS if f"{who}_ms" in row
    })  # fmt: skip


def mean_gain(networks: Sequence[Network], who: str) -> tuple[float, int]:
    """The geometric mean of the gains over a rival, and of how many networks."""
    gains = [n.gains[who].median for n in networks if who in n.gains]
    return statistics.geometric_mean(gains) if gains else 1.0, len(gains)


@dataclass(frozen=True, slots=True)
class Scale:
    """Gains to places, by their logarithms."""

    low: float
    high: float

    @staticmethod
    def of(networks: Sequence[Network]) -> Scale:
        """One that has room for all ranges and for 1."""
        gains = [g for n in networks for g in n.gains.values()]
        return Scale(min(0.75, *(g.low for g in gains)) / 1.05, max(2.0, *(g.high for g in gains)) * 1.05)

    def at(self, gain: float) -> float:
        """The place of a gain from the left."""
        return LEFT + PLOT * math.log(gain / self.low) / math.log(self.high / self.low)


def _title(table: Mapping[str, Any], threads: int, networks: Sequence[Network]) -> str:
    how = (
        table["machine"]["cpu"],
        f"{threads} thread{'s' * (threads > 1)}",
        table.get("precision", "fp32"),
        "tuned" if table.get("tuned") else "untuned",
    )
    return f"Time of others over ours: {len(networks)} network{'s' * (len(networks) > 1)}, {', '.join(how)}"


def _legend(networks: Sequence[Network], openvino: str) -> Iterator[str]:
    """``openvino``: the precision in which it ran."""
    x = 8.0
    for who, name in RIVALS.items():
        mean, count = mean_gain(networks, who)
        if count:
            precision = f", {openvino}" if who == "ov" and openvino else ""
            text = f"{name}{precision}: {mean:.2f} (geometric mean of {count})"
            yield f'<circle class="{who}" cx="{x + 5:.0f}" cy="36" r="4"/>'
            yield f'<text x="{x + 15:.0f}" y="40">{text}</text>'
            x += 40 + 6.4 * len(text)


def _grid(scale: Scale, rows: int) -> Iterator[str]:
    bottom = TOP + ROW * (rows + 0.5)
    for tick in TICKS:
        if scale.low <= tick <= scale.high:
            x, kind = scale.at(tick), "one" if tick == 1.0 else "grid"
            yield f'<line class="{kind}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom:.1f}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 16:.1f}" text-anchor="middle">{tick:g}</text>'


def _row(network: Network, y: float, scale: Scale) -> Iterator[str]:
    yield f'<text x="{LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{escape(network.name)}</text>'
    for who, gain in network.gains.items():
        yield (f'<line class="{who} range" x1="{scale.at(gain.low):.1f}" y1="{y:.1f}" '
               f'x2="{scale.at(gain.high):.1f}" y2="{y:.1f}"/>')  # fmt: skip
        yield f'<circle class="{who}" cx="{scale.at(gain.median):.1f}" cy="{y:.1f}" r="4"/>'
    values = ", ".join(f"{g.median:.2f}" for g in network.gains.values())
    yield f'<text x="{LEFT + PLOT + 10}" y="{y + 4:.1f}">{values}</text>'


if __name__ == "__main__":
    sys.exit(main())
