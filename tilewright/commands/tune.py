"""``tune MODEL --log FILE --time 60``: tune a model's kernels, with a live view."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx

from tilewright.autotune.measure.measurer import LocalMeasurer
from tilewright.autotune.network.options import TuneOptions
from tilewright.autotune.network.tune_network import tune_model
from tilewright.autotune.search.scheduler import EFFORTS
from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.commands.common import (
    add_build_options,
    add_input_options,
    add_sample_options,
    amount,
    build_keywords,
    fed_sizes,
    natural,
    read_arrays,
)
from tilewright.commands.live import view
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_model, of_tuning
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.errors import InputError
from tilewright.core.extras import optional_package
from tilewright.quantization.calibration.data import read_samples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Interrupt it any time: what was found is in the log. The same command goes on where it stopped."
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument("--log", required=True, metavar="FILE", help="the tuning log, read and appended to")
    parser.add_argument("--time", type=amount, default=60.0, metavar="SECONDS", help="time budget (default: 60)")
    parser.add_argument("--trials", type=natural, metavar="N", help="measure at most so many candidates")
    parser.add_argument(
        "--effort", choices=tuple(EFFORTS), default="normal",
        help="how many candidates of a kernel it takes at most, and how little expected gain ends it (default: normal)",
    )  # fmt: skip
    parser.add_argument(
        "--strategy", choices=tuple(STRATEGIES), default="annealing",
        help="what proposes candidates (default: annealing)",
    )  # fmt: skip
    parser.add_argument(
        "--max-error", type=amount, default=1e-2, metavar="SHARE",
        help="with --precision auto: how far results may be off, as a share of their root mean square; products for "
        "which that has no room stay in float32 (default: 0.01)",
    )  # fmt: skip
    add_sample_options(parser, "with --precision auto: more inputs to compare results on")
    parser.add_argument("--no-check", action="store_true", help="do not time the whole network at the end")
    parser.add_argument(
        "--cluster", metavar="ADDRESS",
        help="measure on the workers of the Dask scheduler there (tilewright worker --join ADDRESS), which should have "
        "this machine's CPU and number of threads",
    )  # fmt: skip
    parser.add_argument("--record-host", action="store_true", help="keep the name of this machine in the log")
    add_json_option(parser)
    add_input_options(parser)
    add_build_options(parser)


def run(args: argparse.Namespace) -> int:
    options = TuneOptions(
        sizes={k: v for k, v in fed_sizes(args.shapes).items() if isinstance(v, int)},
        feed=read_arrays(args.inputs) if args.inputs else None,
        samples=_samples(args) if args.calibration else (),
        max_error=args.max_error,
        time_budget_s=args.time,
        max_trials=args.trials,
        effort=args.effort,
        seed=args.seed,
        strategy=args.strategy,
        check_network=not args.no_check,
        record_host=args.record_host,
        **build_keywords(args),
    )
    shown = None if args.quiet or args.json else view(sys.stdout, args.time)
    if shown is not None:
        options = replace(options, on_trial=(shown.on_trial,), on_progress=shown.on_progress, on_stage=shown.on_stage)
    try:
        with _cluster(args.cluster) as measurer:
            done = tune_model(args.model, args.log, measurer=measurer, options=options)
    except KeyboardInterrupt:
        print(f"interrupted; what was measured is in {args.log}", file=sys.stderr if args.json else sys.stdout)
        return 130
    finally:
        if shown is not None:
            shown.close()
    if args.json:
        print_json("tune", {**of_model(args.model, done.model), "log": args.log, **of_tuning(done)})
    else:
        print(done.summary())
    return 0


@contextmanager
def _cluster(address: str | None) -> Iterator[LocalMeasurer | None]:
    """What measures on the workers of a scheduler. Raises InputError if there is none."""
    if address is None:
        yield None
        return
    distributed = optional_package("distributed", "distributed")
    try:
        client = distributed.Client(address)
    except (OSError, ValueError) as e:
        raise InputError(f"--cluster: expected a Dask scheduler at {address}, found none: {e}") from e
    with client, LocalMeasurer(executor=client.get_executor()) as measurer:
        yield measurer


def _samples(args: argparse.Namespace) -> list[dict[str, np.ndarray]]:
    compile(args.model, stop_after="import", progress=False)  # which tells what is wrong with a file
    return read_samples(onnx.load(args.model, load_external_data=False), args.calibration)
