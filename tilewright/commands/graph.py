"""``graph diff|stats``: look at models as graphs, without compiling them.

Exit status of ``diff``, as of diff(1): 0 no difference, 1 some, 2 a file that cannot be read.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

from tilewright.edit.diff import diff_graphs
from tilewright.edit.stats import graph_stats
from tilewright.frontend import from_onnx


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (add, _, text) in ACTIONS.items():
        add(actions.add_parser(name, help=text, description=text))


def run(args: argparse.Namespace) -> int:
    _, action, _ = ACTIONS[args.action]
    return action(args)


# -- diff ----------------------------------------------------------------------------------------------------------
def _diff_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", help="an .onnx file")
    parser.add_argument("new", help="an .onnx file")
    parser.add_argument("--names", action="store_true", help="names count too: list those that differ")
    _json_argument(parser)


def _diff(args: argparse.Namespace) -> int:
    found = diff_graphs(from_onnx(args.old), from_onnx(args.new))
    print(json.dumps(found.to_json(), indent=2) if args.json else found.text(args.names))
    return 1 if found or (args.names and found.all_renamed) else 0


# -- stats ---------------------------------------------------------------------------------------------------------
def _stats_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", help="an .onnx file")
    _json_argument(parser)


def _stats(args: argparse.Namespace) -> int:
    found = graph_stats(from_onnx(args.model))
    print(json.dumps(found.to_json(), indent=2) if args.json else found)
    return 0


def _json_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON")


ACTIONS: Mapping[
    str, tuple[Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], int], str]
] = {
    "diff": (_diff_arguments, _diff, "what is different in two models, names and order of nodes aside"),
    "stats": (_stats_arguments, _stats, "what is in a model: operators, parameters, multiply-adds, memory"),
}  # fmt: skip
"""Action -> its arguments, what it does (gives the exit status), and a line of help."""
