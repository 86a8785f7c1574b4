"""``db ACTION``: look into tuning logs, compare them, put them together, make them small."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import ModuleType

from tilewright.commands.db import check, diff, explain, export, import_records, merge, prune, show, top, verify

ACTIONS: Mapping[str, tuple[ModuleType, str]] = {
    "show": (show, "what the log holds, a row per workload and machine"),
    "top": (top, "the best candidates of each workload"),
    "check": (check, "what of the log no build can use any more, and why"),
    "explain": (explain, "what a build of a model would use of the log, and why"),
    "diff": (diff, "which kernels became faster or slower from one log to another"),
    "verify": (verify, "measure the winners again: still valid, still right, still fast?"),
    "merge": (merge, "put logs together"),
    "prune": (prune, "keep the best candidates only"),
    "export": (export, "write a log as JSON or CSV"),
    "import": (import_records, "add what was exported to a log; say what other programs' records are"),
}
"""Action -> its module (``add_arguments``, ``run``) and one line of help."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, text) in ACTIONS.items():
        module.add_arguments(actions.add_parser(name, help=text, description=text))


def run(args: argparse.Namespace) -> int:
    status: int = ACTIONS[args.action][0].run(args)
    return status
