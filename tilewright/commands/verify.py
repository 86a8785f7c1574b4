"""``verify MODEL``: every layer against the interpreter and onnxruntime.

Passes give new names to values that they change, so deep inside an optimized network only ``lowered`` knows a value.
With ``--opt-level none`` every value keeps its name and is compared with all three references.
"""

from __future__ import annotations

import argparse
import logging

from tilewright.codegen.cache import ObjectCache
from tilewright.codegen.detect_cpu import parse_target, with_threads
from tilewright.commands.common import (
    add_input_options,
    add_model_options,
    amount,
    compile_with,
    feed_for_graph,
    records_of,
)
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_verification
from tilewright.core.console import table
from tilewright.core.errors import BroadcastError
from tilewright.inspect.ort import is_installed
from tilewright.inspect.verify import REFERENCES, Layer, Verification, verify_layers
from tilewright.options import Broadcasting

LOGGER = logging.getLogger("tilewright")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "With --opt-level none every value keeps its name, so that all of them meet every reference."
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--tolerance", type=amount, default=1e-4, help="in units of a value's standard deviation")
    parser.add_argument(
        "--against", action="append", choices=REFERENCES, metavar="|".join(REFERENCES), help="default: all of them"
    )
    parser.add_argument("--all", action="store_true", help="show every layer, not only the worst and the bad ones")
    add_json_option(parser)
    add_input_options(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    target = with_threads(parse_target(args.target), args.threads)
    references = tuple(args.against or REFERENCES)
    if "onnxruntime" in references and not is_installed():
        references = tuple(r for r in references if r != "onnxruntime")
        LOGGER.warning("onnxruntime is not installed: the interpreter alone decides")
    cache = None if args.no_cache else ObjectCache.open()
    records = records_of(args)

    def verify(broadcasting: Broadcasting | None = None) -> Verification:
        if args.require_tuned is not None:
            compile_with(args, stop_after="schedule", broadcasting=broadcasting)
        imported = compile_with(args, stop_after="import", broadcasting=broadcasting)
        lowered = compile_with(args, stop_after="lower", broadcasting=broadcasting)
        feed = feed_for_graph(args, imported)
        return verify_layers(args.model, imported, lowered, target, feed, references, args.tolerance, cache, records)

    try:
        found = verify()
    except BroadcastError:
        if args.broadcasting == "refuse":
            raise
        LOGGER.warning("sizes broadcast: verifying the version of the model for that")
        found = verify("only")
    if args.json:
        head = {"model": args.model, "threads": target.threads}
        print_json("verify", {**head, **of_verification(found, references)})
    else:
        print(report(found, references, args.all))
    return 0 if found.first_bad is None else 1


def report(found: Verification, references: tuple[str, ...], everything: bool = False) -> str:
    """The table and the verdict."""
    bad = [x for x in found.layers if not x.worst <= found.tolerance]
    shown = list(found.layers)
    if not everything:
        ranked = sorted(shown, key=lambda x: -x.worst)[:8]
        chosen = {x.value for x in (*ranked, *bad[:8])}
        shown = [x for x in shown if x.value in chosen]
    head = ("value", "made by", "type", *(f" {r}" for r in references), "")
    rows = [_row(x, references, found.tolerance) for x in shown]
    compared = ", ".join(f"{r} {sum(r in x.errors for x in found.layers)}" for r in references)
    lines = [table(head, rows), "", f"{len(found.layers)} values compared ({compared}); tolerance {found.tolerance:g}"]
    lines += found.notes
    worst = found.worst
    if worst is not None:
        lines.append(f"worst error {worst.worst:.1e} at {worst.value}")
    first = found.first_bad
    if first is None:
        lines.append("all layers agree")
    else:
        lines += [f"{len(bad)} bad layers; the first is {first.value} ({first.made_by})", f"suspect: {found.suspect}"]
    return "\n".join(lines)


def _row(x: Layer, references: tuple[str, ...], tolerance: float) -> tuple[str, ...]:
    errors = (f"{x.errors[r]:.1e}" if r in x.errors else "-" for r in references)
    made_by = x.made_by if len(x.made_by) <= 40 else f"{x.made_by[:37]}..."
    return (x.value[-40:], made_by, x.type, *errors, "" if x.worst <= tolerance else "BAD")
