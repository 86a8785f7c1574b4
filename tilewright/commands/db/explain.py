"""``db explain LOG MODEL``: what a build of a model would use of the log, and why."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from typing import Any

from tilewright.autotune.base.workload import Workload
from tilewright.autotune.lookup.implementations import find_tunable
from tilewright.autotune.lookup.workloads import networks_of, workloads_of
from tilewright.autotune.records.database import Database, open_database
from tilewright.autotune.records.record import Record
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.commands.common import add_build_options, add_shape_options, compile_with
from tilewright.commands.db.options import add_log, answer
from tilewright.commands.output.json_output import add_json_option
from tilewright.lowering.plan import fuse_and_lower


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("model", help="an .onnx file")
    add_json_option(parser)
    add_shape_options(parser)
    add_build_options(parser)


def run(args: argparse.Namespace) -> int:
    args.records = args.log
    database, disabled = open_database(args.log), args.disable_pass
    model = compile_with(args)
    graph = compile_with(args, stop_after="passes")
    target = with_threads(parse_target(args.target), args.threads)
    lowered = fuse_and_lower(graph, target, disabled, pack=False, out_of_range=args.out_of_range)
    own = workloads_of(lowered)
    others = [w for o in find_tunable(graph, lowered, target, disabled, known=own) for w in o.workloads.values()]
    left = _left_over(database, [*own.values(), *others], networks_of(lowered, own))
    coverage = model.coverage()
    answer(args, {"kernels": coverage.to_dicts(), **left}, f"{coverage}\n\n{_sentence(left)}")
    return 0


def _left_over(database: Database, workloads: Iterable[Workload], networks: Collection[str]) -> dict[str, Any]:
    """What of a log is not about a network."""
    known = frozenset[str]().union(*(w.hashes() for w in workloads))
    lines = list(database.lines())
    records = [x for x in lines if isinstance(x, Record)]
    foreign = [r.workload.hash for r in records if r.workload.hash not in known]
    judged = [x for x in lines if not isinstance(x, Record)]
    return {
        "measurements": len(records),
        "foreign_measurements": len(foreign),
        "foreign_workloads": len(set(foreign)),
        "judged": len(judged),
        "judged_elsewhere": sum(x.network not in networks for x in judged),
    }


def _sentence(x: dict[str, Any]) -> str:
    return (
        f"{x['foreign_measurements']} of {x['measurements']} measurements are of {x['foreign_workloads']} computations "
        f"that this network does not have; {x['judged_elsewhere']} of {x['judged']} verdicts and choices are on other "
        "networks"
    )
