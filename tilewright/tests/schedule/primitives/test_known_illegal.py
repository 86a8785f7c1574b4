"""Traces that would change what a function computes: every one is refused, for the reason that it is wrong.

A case is a function, a trace of which the last step is illegal, and what the refusal says. The comment above it says
what would go wrong.
"""

from __future__ import annotations

import re

import pytest

from tilewright.core.arith.expr import var
from tilewright.core.errors import ScheduleError
from tilewright.schedule.trace import Trace
from tilewright.tensor_ir.ir import Func
from tilewright.tests.schedule import fuzz_nests as nests
from tilewright.tests.schedule import helper
from tilewright.tests.schedule.kernels import stepped
from tilewright.tests.schedule.primitives.illegal_functions import (
    CONTRACTED,
    COUNTED,
    DOUBLED,
    GUARDED,
    HORNER,
    INPUT_CHANGES,
    LATER_WRITE,
    ONE_CELL,
    PARTLY,
    PRODUCT,
    ROWS,
    SCALED,
    SCAN,
    SHARED_TILE,
    SHIFTED,
    TRIANGLE,
    WINDOWED,
    N,
    store,
)

CASES: dict[str, tuple[Func, str, str]] = {
    # -- reorder
    # T[i*4 + j] of T[i*4 + j + 3]: (i, j) reads what (i + 1, j - 1) overwrites, which would then run first
    "reorder a carried dependence": (
        store("i*4 + j", "T[i*4 + j + 3]", "i < 4", "j < 4"), 'reorder(("j", "i"))', "would reverse a dependence",
    ),
    # every (i, j) writes the same two elements: another one would be the last
    "reorder writes that meet in i % 2": (
        store("i % 2", "A[i*4 + j]", "i < 4", "j < 4"), 'reorder(("j", "i"))', "would reverse a dependence",
    ),
    # i + j is the same element for (0, 1) and (1, 0), which are written in the other order
    "reorder writes that meet on a diagonal": (
        store("i + j", "A[i*4 + j]", "i < 4", "j < 4"), 'reorder(("j", "i"))', "would reverse a dependence",
    ),
    # i//2 drops a digit of i: pairs of rows are one
    "reorder writes that meet in i // 2": (
        store("i//2*4 + j", "add(T[i//2*4 + j], T[j])", "i < 4", "j < 4"), 'reorder(("j", "i"))',
        "would reverse a dependence",
    ),
    # with a symbolic row length of 4 the rows overlap when n is greater
    "reorder rows of unknown length": (
        store("i*4 + j", "T[i*4 + j + 4]", "i < 4", "j < min(n, 12)", dims="n: dim, "), 'reorder(("j", "i"))',
        "would reverse a dependence",
    ),
    # the steps of a scan are reversed between tiles
    "reorder the tiles of a scan": (
        SCAN, 'split("S_t", factors=(2, 4))\nreorder(("S_t_1", "S_t_0"))', "would reverse a dependence",
    ),
    # B = A - B is not associative: the sign of each term depends on its place
    "reorder the steps of an alternating sum": (
        HORNER, 'split("k", factors=(2, 2))\nreorder(("k_1", "k_0"))', "would reverse a dependence",
    ),
    # i + 1 iterations of j would become those of the last i
    "reorder a triangle": (
        TRIANGLE, 'reorder(("k", "j"))', "k would move out of j, which its extent j \\+ 1 uses",
    ),
    # what stands beside the inner loop would run in each of its iterations
    "reorder loops that are not perfectly nested": (
        PRODUCT, 'compute_at("C", loop="E_i")\nreorder(("E_j", "E_i"))', "E_j is not all of the body of E_i",
    ),
    # -- parallel
    # threads add to one element: updates are lost
    "parallel over a reduction": (COUNTED, 'reorder(("k", "i"))\nparallel("k")', "reduce axis r of block B runs with"),
    # an iteration reads what its neighbour writes
    "parallel over a carried loop": (
        store("i + 1", "T[i]", "i < 8"), 'parallel("i")', "the loop carries a dependence: .* through T",
    ),
    # reads against the direction of the loop race as well
    "parallel over an anti-dependence": (store("i", "T[i + 1]", "i < 8"), 'parallel("i")', "carries a dependence"),
    # i and 7 - i meet across the middle
    "parallel over a reversal in place": (store("i", "T[7 - i]", "i < 8"), 'parallel("i")', "carries a dependence"),
    # two iterations store one element
    "parallel over aliasing stores": (store("i//2", "A[i]", "i < 8"), 'parallel("i")', "carries a dependence"),
    # a scan's steps need those before them
    "parallel over an ordered axis": (
        helper.prefix_sum(1, 8), 'fuse(("S_i", "S_t"))\nparallel("S_i_S_t_f")', "ordered axis|carries a dependence",
    ),
    # a fused loop runs over steps of one element, whatever else it runs over
    "parallel over a fused reduction": (
        helper.matmul(2, 3, 5), 'fuse(("C_j", "k"))\nreorder(("C_j_k_f", "C_i"))\nparallel("C_j_k_f")',
        "carries a dependence",
    ),
    # the start of the region of P is no place of O: steps of one element would run on several threads
    "parallel over a fused reduction that holds a stage": (
        nests.depthwise(var("m"), 7),
        'reorder(("O_i", "k", "O_c"))\nfuse(("O_i", "k", "O_c"))\ncompute_at("P", loop="O_i_k_O_c_f")\n'
        'parallel("O_i_k_O_c_f")',
        "the loop carries a dependence: O depends on O",
    ),
    # a thread pool inside each iteration is not what a kernel has
    "parallel inside a loop": (
        PRODUCT, 'parallel("C_j")', "expected a loop at the root or in a step of a recurrence, got one inside C_i",
    ),
    # threads meet in each step, and a local buffer around the steps is one thread's
    "a local copy around the threads of a step": (
        stepped(5, 8), 'parallel("next_i1")\ncache_read("Rh", buffer="R", scope="local")',
        "loop next_i1 inside is parallel",
    ),
    # what is one unit for the schedule runs on one thread
    "blockize around the threads of a step": (
        stepped(5, 8), 'parallel("next_i1")\nblockize("step")', "loop next_i1 inside is parallel",
    ),
    # every thread has its own stack
    "parallel below a local buffer": (
        PRODUCT, 'set_scope("C", scope="local")\nparallel("E_i")', "local buffer C, private to one thread",
    ),
    # -- vectorize
    # lanes read before their neighbours have stored
    "vectorize a carried loop": (store("i + 1", "T[i]", "i < 8"), 'vectorize("i")', "carries a dependence"),
    # a distance of 4 lies inside 8 lanes
    "vectorize across a short distance": (store("i + 4", "T[i]", "i < 8"), 'vectorize("i")', "carries a dependence"),
    # lanes of one sum
    "vectorize a reduction": (COUNTED, 'vectorize("k")', "reduce axis r of block B runs with this loop"),
    # lanes of a scan
    "vectorize a scan": (SCAN, 'vectorize("S_t")', "ordered axis S_t_ of block S runs with this loop"),
    # lanes would have different trip counts
    "vectorize around a triangle": (
        TRIANGLE, 'vectorize("j")', "the extent j \\+ 1 of loop k inside uses the variable",
    ),
    # registers have a fixed number of lanes
    "vectorize a symbolic extent": (ROWS, 'vectorize("B_i")', "expected an extent with a constant upper bound, got n"),
    # one buffer for all lanes
    "vectorize around an allocation": (ONE_CELL, 'vectorize("i")', "buffer t is allocated inside"),
    # -- split, fuse, unroll, peel
    # nothing divides by zero
    "split by zero": (ROWS, 'split("B_i", factors=(None, 0))', "factor must be >= 1, got 0"),
    # iterations run backwards or not at all
    "split by a negative factor": (ROWS, 'split("B_i", factors=(None, -4))', "factor must be >= 1, got -4"),
    # the fifth iteration is lost
    "split that covers too little": (ROWS, 'split("B_j", factors=(2, 2))', "do not cover the extent 5"),
    # n may be more than 64
    "split a symbolic extent without None": (ROWS, 'split("B_i", factors=(8, 8))', "do not cover the extent n"),
    # the trip count of one is not known before the other runs
    "fuse dependent loops": (TRIANGLE, 'fuse(("j", "k"))', "the extent of k uses j"),
    # what stands beside the inner loop would be repeated
    "fuse around a sequence": (
        PRODUCT, 'compute_at("C", loop="E_i")\nfuse(("E_i", "E_j"))', "E_j is not all of the body of E_i",
    ),
    # the wrong way round is a transposition
    "fuse in the wrong order": (PRODUCT, 'fuse(("C_j", "C_i"))', "C_i is not all of the body of C_j"),
    # with n = 0 there is no step at which the initial value could be stored
    "fuse a reduction that may be empty": (
        helper.matmul(3, 4, N), 'fuse(("C_j", "k"))', "reduction C may be empty, and C_j is not one of its steps",
    ),
    # there is no end to what would be written out
    "unroll a symbolic extent": (ROWS, 'unroll("B_i")', "expected an extent with a constant upper bound, got n"),
    # no iteration is known to be full
    "peel without a full iteration": (ROWS, 'split("B_j", factors=(None, 8))\npeel("B_j_0")', "inner extent|full"),
    # -- buffers
    # threads would each have a copy that nobody filled
    "set_scope of a buffer that threads share": (
        SHARED_TILE, 'set_scope("T", scope="local")', "would be private to one thread, but j below it is parallel",
    ),
    # a stack frame has a fixed size
    "set_scope of a symbolic size to local": (ROWS, 'set_scope("M", scope="local")', "constant shape for local scope"),
    # iterations on several threads would share it
    "set_scope of an inner buffer to global": (
        ONE_CELL, 'set_scope("t", scope="global")', "expected the allocation at the root",
    ),
    # the copy is taken before U has written
    "cache_read over a later write": (
        LATER_WRITE, 'cache_read("C", buffer="T", scope="global")', "U writes T in the block's nest or after it",
    ),
    # the copy would read elements that have no value
    "cache_read of a buffer with holes": (
        PARTLY, 'cache_read("B", buffer="T", scope="global")', "T is not proved to be written whole",
    ),
    # and so would a copy of padding
    "cache_read of padding": (
        WINDOWED, 'transform_layout("T", index_map="i -> i // 3, i % 3")\ncache_read("B", buffer="T", scope="local")',
        "T is not proved to be written whole",
    ),
    # the copy would be private to the thread that made it
    "cache_read to local from a parallel loop": (
        SHARED_TILE, 'cache_read("B", buffer="T", scope="local")', "the block is inside parallel loop j",
    ),
    # U's part of T would be lost
    "cache_write with two writers": (DOUBLED, 'cache_write("T", scope="global")', "U writes it too"),
    # the next step reads what the copy has not stored yet
    "cache_write of a scan": (SCAN, 'cache_write("S", scope="global")', "is ordered, it writes elements again later"),
    # elements that the guard leaves out would be overwritten with nothing
    "cache_write under a guard": (GUARDED, 'cache_write("T", scope="global")', "the block stands under a guard"),
    # -- layouts
    # the caller's array keeps its layout
    "transform_layout of a parameter": (
        WINDOWED, 'transform_layout("A", index_map="i -> i // 2, i % 2")', "A is a parameter of f",
    ),
    "transform_layout of an output": (WINDOWED, 'transform_layout("B", index_map="i -> 7 - i")', "B is a parameter"),
    # elements 0 and 4 would share a place
    "transform_layout by a remainder": (
        WINDOWED, 'transform_layout("T", index_map="i -> i % 4")', "not proved to stay apart",
    ),
    "transform_layout by a quotient": (
        WINDOWED, 'transform_layout("T", index_map="i -> i // 2")', "not proved to stay apart",
    ),
    # 0 and 2 have the same quotient by 4 and the same remainder by 2
    "transform_layout by digits of two bases": (
        WINDOWED, 'transform_layout("T", index_map="i -> i // 4, i % 2")', "not proved to stay apart",
    ),
    # (0, 1) and (1, 0) share a place
    "transform_layout onto a diagonal": (
        PRODUCT, 'transform_layout("C", index_map="i, j -> i + j")', "not proved to stay apart",
    ),
    # rows of 8 at a distance of 7 overlap
    "transform_layout with rows that overlap": (
        PRODUCT, 'transform_layout("C", index_map="i, j -> i*7 + j")', "not proved to stay apart",
    ),
    # a row of n elements at a distance of 8 overlaps the next when n is greater
    "transform_layout with rows of unknown length": (
        helper.matmul_relu(4, N, 4), 'transform_layout("C", index_map="i, j -> i*8 + j")', "not proved to stay apart",
    ),
    # element 0 would stand in front of the buffer
    "transform_layout below the start": (
        WINDOWED, 'transform_layout("T", index_map="i -> i - 1")', "index i - 1 is not proved .* at least 0",
    ),
    # there is no such place for i = 0
    "transform_layout by division by zero": (
        WINDOWED, 'transform_layout("T", index_map="i -> i // 0, i")', "expected a map such as",
    ),
    # nor for n = 0
    "transform_layout by division by a dim": (
        helper.matmul_relu(4, N, 4), 'transform_layout("C", index_map="i, j -> i, j // n, j % n")',
        "expected positive constants as divisors",
    ),
    # the caller's array has no gaps
    "storage_align of a parameter": (PRODUCT, 'storage_align("D", axis=0, factor=8)', "D is a parameter"),
    # neighbours in the last dimension are neighbours in memory
    "storage_align of the last axis": (PRODUCT, 'storage_align("C", axis=-1, factor=8)', "with a dimension inside"),
    # every multiple of 4 plus 1 is odd, every row of two has an even length
    "storage_align to what no stride is": (
        nests.transposes(4, 2), 'storage_align("T", axis=0, factor=4, offset=1)', "no multiple of 2 is a multiple of 4",
    ),
    "storage_align by no factor": (PRODUCT, 'storage_align("C", axis=0, factor=0)', "expected factor >= 1"),
    # -- pad_einsum
    # 0 + 1 is not neutral: every padded step would count
    "pad_einsum of non-products": (SHIFTED, 'pad_einsum("B", padding=(4,))', "expected a sum of products of loads"),
    # x + k is no axis: padding k would read the neighbours' elements
    "pad_einsum of a convolution": (
        nests.depthwise(4, 5), 'pad_einsum("O", padding=(4, 4, 4))', "expected indices that are axes",
    ),
    # an elementwise stage has no accumulator
    "pad_einsum of no contraction": (PRODUCT, 'pad_einsum("E", padding=(4, 4))', "expected a reduction"),
    # 0 * inf is nan, and S is there in the padded steps too
    "pad_einsum with a factor that does not run along": (
        SCALED, 'pad_einsum("B", padding=(3,))', "S does not run along padded reduce axis r",
    ),
    # the outer loop's steps would be padded once for each of the inner one's
    "pad_einsum of a split reduction": (
        CONTRACTED, 'split("k", factors=(None, 2))\npad_einsum("C", padding=(1, 1, 2))',
        "expected one loop for each axis",
    ),
    # A - B in every step, padded ones too
    "pad_einsum of an alternating sum": (HORNER, 'pad_einsum("B", padding=(1, 4))', "expected a reduction"),
    # it is not known what a step with 2 in place of nothing would be
    "pad_einsum with another initial value": (COUNTED, 'pad_einsum("B", padding=(1, 8))', "neutral initial value"),
    "pad_einsum by zero": (CONTRACTED, 'pad_einsum("C", padding=(4, 0, 4))', "expected a factor >= 1 for each"),
    # -- moving stages
    # V, behind the loop, would find the last row only
    "compute_at with a reader outside": (
        nests.chain(4, 4), 'compute_at("T", loop="U_i")', "V reads T outside loop U_i",
    ),
    # U's changes would be lost, or made again in each iteration
    "compute_at with several writers": (LATER_WRITE, 'compute_at("T", loop="j")', "U writes it too"),
    # the readers have run already
    "compute_at before the block": (PRODUCT, 'compute_at("E", loop="C_i")', "after the block, it comes before"),
    # only part of the sum is there
    "compute_at of a triangular reduction": (TRIANGLE, 'compute_at("U", loop="h")', "T writes it too|not rectangular"),
    # S is another one by then
    "compute_at past a write of its input": (
        INPUT_CHANGES, 'compute_at("T", loop="j")', "U writes S, which the block reads, after it",
    ),
    # a guard decides which elements there are
    "compute_at out of a guard": (GUARDED, 'compute_at("T", loop="j")', "the block stands under a guard"),
    # a part of a scan needs the part before
    "compute_at of a scan": (
        nests.stencil(4, 4), 'compute_at("S", loop="B_i")', "is ordered, a part of it cannot be computed alone",
    ),
    # lanes hold no loops
    "compute_at in lanes": (
        PRODUCT, 'vectorize("E_j")\ncompute_at("C", loop="E_j")', "loop E_j is vectorized, lanes cannot hold a nest",
    ),
    # what the parameter holds is the caller's, all of it
    "compute_at of an output": (LATER_WRITE, 'compute_at("C", loop="k")', "C is a parameter"),
    # B would be made of a sum of which the rest follows
    "reverse_compute_at of a partial result": (
        PRODUCT, 'reorder(("k", "C_i", "C_j"))\nreverse_compute_at("E", loop="C_i")',
        "reduction loop k of C is not inside loop|is not proved to write",
    ),
    "reverse_compute_at inside a reduction": (
        PRODUCT, 'reverse_compute_at("E", loop="k")', "reduction loop k of C is not inside loop",
    ),
    # B[0] needs T[7], which comes last
    "reverse_compute_at of a window": (WINDOWED, 'reverse_compute_at("B", loop="i")', "at one place"),
    # B after U reads what T alone has not finished
    "reverse_compute_at with two writers": (DOUBLED, 'reverse_compute_at("B", loop="j")', "no other writer"),
    # the maximum of a part is not that of the row
    "reverse_compute_at of a row": (
        helper.row_max(4, 5), 'reorder(("r", "M_i"))\nreverse_compute_at("B", loop="r")', "reduction loop r of M",
    ),
    # U's result would be lost
    "compute_inline with several writers": (DOUBLED, 'compute_inline("T")', "U writes it too"),
    # readers would see a step of the sum, not the sum
    "compute_inline of a reduction": (PRODUCT, 'compute_inline("C")', "expected spatial axes only, got the reduce"),
    # S is another one by then
    "compute_inline past a write of its input": (INPUT_CHANGES, 'compute_inline("T")', "U writes S, which the block"),
    # the guard is not in the value
    "compute_inline out of a guard": (GUARDED, 'compute_inline("T")', "the block stands under a guard"),
    # B would apply its function to each step
    "reverse_compute_inline into a reduction": (
        PRODUCT, 'reverse_compute_inline("E")', "expected spatial axes only in C, got the reduce axis",
    ),
    # T[7 - y] is not there when T[y] is made
    "reverse_compute_inline of a window": (WINDOWED, 'reverse_compute_inline("B")', "at one place, got 2"),
    # half of B would be made of elements that T does not have
    "reverse_compute_inline of some elements": (
        PARTLY, 'reverse_compute_inline("B")', "expected store indices of T that are its axes",
    ),
    # -- reductions
    # what was added before is overwritten in each iteration of k_0
    "decompose inside the reduction": (
        COUNTED, 'split("k", factors=(2, 2))\ndecompose_reduction("B", loop="k_1")',
        "reduction loop k_0 is outside loop k_1",
    ),
    # the tail of a reduction starts in the middle: its initial value is never stored
    "decompose the tail of a reduction": (
        helper.row_max(6, 7), 'split("r", factors=(None, 3))\npeel("r_0")\ndecompose_reduction("M_t", loop="r_0_t")',
        "does not start at 0",
    ),
    # and the sum of its partial results would replace that of the main part
    "rfactor the tail of a reduction": (
        helper.row_max(6, 7), 'split("r", factors=(None, 3))\npeel("r_0")\nrfactor("r_1_t")', "does not start at 0",
    ),
    # there is nothing to store before
    "decompose without an initial value": (TRIANGLE, 'decompose_reduction("U", loop="k")', "with an initial value"),
    # the partial results of an alternating sum do not combine
    "rfactor of a combination that is not associative": (
        HORNER, 'split("k", factors=(2, 2))\nrfactor("k_0")', "reduction with an initial value|associative",
    ),
    # 2 would be counted once for each partial result
    "rfactor with an initial value that counts": (COUNTED, 'rfactor("k")', "expected the identity of add"),
    # the lanes of a parallel loop are no dimension of one thread's buffer
    "rfactor of a spatial loop": (CONTRACTED, 'rfactor("C_i")', "expected a loop that runs over reduce axes only"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_is_refused(name: str) -> None:
    func, trace, message = CASES[name]
    parsed = Trace.from_text(trace)
    ready = Trace(parsed.steps[:-1]).apply(func)
    helper.check_round_trip(ready)
    with pytest.raises(ScheduleError, match=message) as refused:
        parsed.steps[-1].apply(ready)
    assert re.match(rf"{parsed.steps[-1].name}\(", str(refused.value))


def test_there_are_enough() -> None:
    assert len(CASES) >= 80
