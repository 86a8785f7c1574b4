"""``graph ACTION``: models as graphs, without compiling them."""

from __future__ import annotations

import argparse

from tilewright.commands.common import Actions, add_actions, run_action
from tilewright.commands.graph import diff, extract, merge, rename, set_shape, stats

ACTIONS: Actions = {
    "diff": (diff, "what is different in two models, names and order of nodes aside"),
    "stats": (stats, "what is in a model: operators, parameters, multiply-adds, memory"),
    "extract": (extract, "write the part of a model that computes some values from others"),
    "rename": (rename, "write a model with other names for values, nodes, dimensions"),
    "set-shape": (set_shape, "write a model with other shapes of its inputs: sizes fixed, or free"),
    "merge": (merge, "write one model of two: outputs of the first are inputs of the second"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    return run_action(args, ACTIONS)
