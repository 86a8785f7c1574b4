"""``worker --join ADDRESS``: measure candidates on this machine for a tuning elsewhere, as a worker of a Dask cluster.

``tune --cluster ADDRESS`` sends them. The worker runs one batch at a time, in processes of its own that can be killed;
if it dies itself, its guard starts another one. It ends when it is interrupted, or when the scheduler is gone.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from tilewright.codegen.detect_cpu import detect_host
from tilewright.commands.common import amount
from tilewright.core.errors import InputError
from tilewright.core.extras import optional_package


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "The scheduler is Dask's: dask scheduler --host 0.0.0.0 --port 8786."
    parser.add_argument("--join", required=True, metavar="ADDRESS", help="of the scheduler, like 10.0.0.5:8786")
    parser.add_argument("--name", help="of this worker, for the scheduler (default: its address)")
    parser.add_argument(
        "--wait", type=amount, default=30.0, metavar="SECONDS", help="for the scheduler to answer (default: 30)"
    )


def run(args: argparse.Namespace) -> int:
    distributed = optional_package("distributed", "distributed")
    here = detect_host()
    print(f"{here.cpu}, {here.threads} threads: joining {args.join}", flush=True)
    asyncio.run(_serve(distributed, args.join, args.name, args.wait))
    return 0


async def _serve(distributed: Any, address: str, name: str | None, seconds: float) -> None:
    """A worker until it is told to end. Raises InputError if nobody answers at ``address``."""
    try:
        async with distributed.rpc(address, timeout=seconds) as scheduler:
            await asyncio.wait_for(scheduler.identity(), seconds)
    except (OSError, ValueError, TimeoutError) as e:
        raise InputError(f"worker: expected a Dask scheduler at {address}, found none: {e or type(e).__name__}") from e
    guard = distributed.Nanny(
        address, nthreads=1, name=name, memory_limit=0, silence_logs=40, death_timeout=seconds, dashboard=False
    )  # fmt: skip
    async with guard:
        await guard.finished()
