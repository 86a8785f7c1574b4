"""``db ACTION``: look into tuning logs, compare them, put them together, make them small."""

from __future__ import annotations

import argparse

from tilewright.commands.common import Actions, add_actions, run_action
from tilewright.commands.db import check, diff, explain, export, import_records, merge, prune, show, top, verify

ACTIONS: Actions = {
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def run(args: argparse.Namespace) -> int:
    return run_action(args, ACTIONS)
