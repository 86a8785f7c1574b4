"""``report LOG -o report.html``: what a tuning log says, as one page that needs no other file."""

from __future__ import annotations

import argparse
from functools import partial

from tilewright.autotune.measure.peaks import measure_peaks
from tilewright.codegen.detect_cpu import detect_host
from tilewright.core.io.files import require_replaceable, write_file
from tilewright.inspect.report.page import PAGE, report
from tilewright.machine.target import Target
from tilewright.runtime.profile import Peaks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", metavar="LOG", help="a tuning log")
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="default: report.html")
    parser.add_argument("--no-peaks", action="store_true", help="do not measure this machine's peaks for the roofline")


def run(args: argparse.Namespace) -> int:
    require_replaceable(args.output, PAGE)
    here = detect_host()
    page = report(args.log, here, None if args.no_peaks else partial(_peaks, here))
    write_file(args.output, PAGE, page.encode())
    print(f"{args.output}: {len(page) / 1024:.0f} KiB")
    return 0


def _peaks(here: Target, threads: int) -> Peaks:
    return measure_peaks(here.with_threads(threads), threads)
