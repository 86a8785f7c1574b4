"""Mutated model files: the importer must accept them or raise one of the package's errors, quickly.

``python -m tilewright.tests.frontend.fuzz_models --count 20000 --seed 1`` runs longer than the test suite does; a
failure prints the case number, with which ``--only`` repeats it. ``tilewright.tests.api.fuzz_files`` goes on from here.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from collections import Counter
from collections.abc import Sequence

from tilewright.core.errors import TilewrightError, UnsupportedError, VerifyError
from tilewright.frontend import from_onnx
from tilewright.frontend.importer import BROKEN_ASSUMPTION
from tilewright.tests.frontend.models import MODELS
from tilewright.tests.frontend.mutations import mutated

MAX_SECONDS = 5.0


def check(seed: int, case: int) -> str:
    """Import one case: "ok" or the error's type. Any other exception goes through.

    Slowness, a message of several lines and an error that only the safety net caught are AssertionErrors.
    """
    what, data = mutated(MODELS, seed, case)
    start = time.process_time()
    try:
        from_onnx(data)
        outcome = "ok"
    except TilewrightError as e:
        outcome = type(e).__name__
        lines = str(e).splitlines()
        if isinstance(e, VerifyError) or str(e).startswith(BROKEN_ASSUMPTION):
            raise AssertionError(f"case {case} ({what}): {e}") from e
        if len(lines) != 1 and not isinstance(e, UnsupportedError):
            raise AssertionError(f"case {case} ({what}): expected one line, got {lines}") from e
    seconds = time.process_time() - start
    if seconds > MAX_SECONDS:
        raise AssertionError(f"case {case} ({what}): took {seconds:.1f} s")
    return outcome


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this case alone")
    args = parser.parse_args(argv)
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    tally: Counter[str] = Counter()
    for case in range(args.count) if args.only is None else (args.only,):
        try:
            tally[check(args.seed, case)] += 1
        except BaseException:
            print(f"failed: --seed {args.seed} --only {case} ({mutated(MODELS, args.seed, case)[0]})", file=sys.stderr)
            raise
    print(", ".join(f"{v} {k}" for k, v in sorted(tally.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
