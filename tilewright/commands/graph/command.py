"""``graph ACTION``: models as graphs, without compiling them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType

from tilewright.commands.graph import diff, extract, merge, rename, set_shape, stats

ACTIONS: Mapping[str, tuple[ModuleType, str]] = {
    "diff": (diff, "what is different in two models, names and order of nodes aside"),
    "stats": (stats, "what is in a model: operators, parameters, multiply-adds, memory"),
    "extract": (extract, "write the part of a model that computes some values from others"),
    "rename": (rename, "write a model with other names for values, nodes, dimensions"),
    "set-shape": (set_shape, "write a model with other shapes of its inputs: sizes fixed, or free"),
    "merge": (merge, "write one model of two: outputs of the first are inputs of the second"),
}
"""Action -> its module (``add_arguments``, ``run``) and one line of help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, text) in ACTIONS.items():
        module.add_arguments(actions.add_parser(name, help=text, description=text))


def run(args: argparse.Namespace) -> int:
    status: int = ACTIONS[args.action][0].run(args)
    return status
