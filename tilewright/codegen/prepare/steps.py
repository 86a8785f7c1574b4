"""The steps from a scheduled function to one that is ready to be emitted, in order, with the reason for each place."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.codegen.prepare.assign_storage import assign_storage
from tilewright.codegen.prepare.fold_quantized import fold_quantized
from tilewright.codegen.prepare.interleave_stores import interleave_stores
from tilewright.codegen.prepare.join_calls import join_calls
from tilewright.codegen.prepare.limit_unrolling import limit_unrolling
from tilewright.codegen.prepare.order_lanes import order_lanes
from tilewright.codegen.prepare.start_whole_tiles import start_whole_tiles
from tilewright.codegen.prepare.trail_sums import trail_sums
from tilewright.core.config import from_environment
from tilewright.machine.target import Target
from tilewright.tensor_ir.empty_reductions import store_empty_inits
from tilewright.tensor_ir.ir import Func
from tilewright.tensor_ir.verifier import verify

STEPS: Mapping[str, Callable[[Func, Target], Func]] = {
    # first: what it adds is stored, laid out and shared among threads like every other nest
    "store_empty_inits": lambda func, target: store_empty_inits(func),
    # before calls are joined: what a value computes decides that
    "fold_quantized": fold_quantized,
    # before lanes are ordered: a workspace has no copy for each lane
    "assign_storage": assign_storage,
    # it asks for what is on the stack
    "start_whole_tiles": start_whole_tiles,
    "order_lanes": order_lanes,
    # then what is done with the copies of a loop that is written out, if its vectors do go in lanes; a store of
    # neighbours first: it takes the values as they are
    "interleave_stores": interleave_stores,
    "join_calls": join_calls,
    # what it writes out is not joined
    "limit_unrolling": limit_unrolling,
    # last: of the nests that there are in the end
    "trail_sums": trail_sums,
}


def prepare(func: Func, target: Target) -> Func:
    """``func`` after all steps: equivalent, and what :func:`tilewright.codegen.emit.function.emit_kernel` takes.

    Where the environment says so (:mod:`tilewright.core.config`), raises VerifyError if the function breaks an
    invariant of the tensor IR, before or after a step.
    """
    checked = from_environment().verify
    if checked:
        verify(func)
    for step in STEPS.values():
        before, func = func, step(func, target)
        if checked and func is not before:
            verify(func)
    return func
