"""What work costs on a CPU, as estimates take it: one value that every decision about speed reads.

The numbers that decisions read are the same for every CPU so far: they were chosen by measurements on a few, and a
build for one CPU must not change because another was measured. So a CPU that differs gets its own numbers in
:mod:`tilewright.machine.cpus`, with the measurements that say so. What measuring finds on this machine
(:func:`tilewright.autotune.measure.peaks.measure_costs`) is for people to see, by ``tilewright doctor``; a build takes
it if its target says so: ``replace(target, own_costs=measure_costs(target).costs(target.costs))``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Core:
    """What the manual says of one core. People read it beside what is measured; no decision does.

    ``fma_latency``: cycles until the result of a multiply-add is there.
    ``fma_ports``: multiply-adds of whole vectors that begin in a cycle.
    ``load_bytes``: bytes that come from the first-level cache in a cycle; ``loads``: loads that begin in one, at most.
    ``store_bytes``: bytes that go there.
    ``width``: instructions that enter the core in a cycle, a load and the arithmetic that uses it as one.
    """

    fma_latency: int
    fma_ports: int
    load_bytes: int
    store_bytes: int
    loads: int
    width: int

    def product_cycles(self, whole: bool) -> float:
        """Cycles until another multiply-add can begin after one of a ``whole`` vector, or of a part of it: CPUs that
        split whole vectors have two ports for halves."""
        return 1 / self.fma_ports if whole else min(1 / self.fma_ports, 0.5)


@dataclass(frozen=True, slots=True)
class Cycles:
    """The roofline by which the tuner's features rank candidates, in cycles of one core.

    ``operation``, ``division``, ``cast``: of a vector instruction in the arithmetic units (sums, products, comparisons,
    integers; quotients and roots; conversions). ``transcendental``: for each operation of such a function. ``load``,
    ``store``, ``spill``: of a vector. ``masked``: by what factor masks make these longer. ``latency``: of a step of a
    chain of accumulations. ``loop``: of a step of a loop. ``l2_bytes``, ``l3_bytes``, ``memory_bytes``: what these
    deliver to one core in a cycle. ``parallel``: opening a parallel region and meeting at its end. ``cached``: share of
    a cache in which data stays. ``unhidden_core``: share of the shorter of arithmetic and loads that the longer does
    not hide; ``unhidden_memory``: the same of all but the longest of core, caches and memory.
    """

    operation: float = 0.5
    division: float = 5.0
    cast: float = 1.0
    transcendental: float = 1.0
    load: float = 0.5
    store: float = 1.0
    spill: float = 2.0
    masked: float = 1.5
    latency: float = 4.0
    loop: float = 1.5
    l2_bytes: float = 32.0
    l3_bytes: float = 12.0
    memory_bytes: float = 5.0
    parallel: float = 6000.0
    cached: float = 0.75
    unhidden_core: float = 0.2
    unhidden_memory: float = 0.3


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs on one core.

    Registers, in vectors. ``accumulators``: results of a register tile that keep the multiply-adds from waiting for
    each other (latency times ports). ``side_by_side``: vectors of a block without reuse that are computed together.
    ``joined_calls``: vectors for which a long function is computed at once; more do not fit in 16 registers, with fewer
    the core waits.

    Times. ``multiply_add_rate``, ``operation_rate``: scalar operations in a nanosecond, in register tiles and
    elsewhere; orders of magnitude, good enough to tell small kernels from large. ``step_cycles``: least cycles of a
    step of a register tile, ``panel_read_cycles``: what reading the panel anew adds to them for each tile, and
    ``transformed_read_cycles`` where many small products have a panel each. ``lane_sum``: adding up the lanes of a
    vector, in multiply-adds of vectors.

    Memory. ``memory_rate``: bytes in a nanosecond of a kernel's operands, wherever they lie; ``stream_rate``: the same
    of weights that stay in the last-level cache from step to step of a recurrence. ``operations_per_byte``: arithmetic
    that takes about as long as moving a byte. ``kept_bytes``: size of a result from which on it has left the caches
    when the next kernel reads it. ``rows_in_flight``: rows of memory that are read together. ``run_bytes``: the
    shortest run worth reading in order. ``fetch_operations``: scalar operations per element that take longer than
    memory needs to bring the next row.

    Other ways to compute a node. ``weight_load``: a weight that comes from memory, in multiply-adds.
    ``transformed_element``: both of Winograd's transforms of an element of a patch and channel, in multiply-adds (half
    of it where the stride is two: about half of the elements are only copied). ``quartered_element``: making and
    reading Strassen's sums, for an element of a row of operand and result, in multiply-adds. ``transforms``: the nests
    around transformed products, in multiply-adds. ``packed_weight``: scaling and packing an element of a weight when
    the model runs, in elements of the input. ``byte_products``: exact products of bytes, in multiply-adds of float32,
    by the instructions that the target has (:func:`tilewright.machine.vectors.share_of_products`), ``byte_words``: of
    four bytes in a lane each (:func:`tilewright.machine.vectors.share_of_bytes`). ``look_up``: an
    element from a table of 256 bytes, in operations on float32 (:func:`tilewright.machine.vectors.look_up_operations`);
    ``expensive_element``: a function with a division, an exponential or the like, in the same. ``tile_pair``,
    ``tile_byte``: a product of bfloat16 or of bytes in matrix tiles, ``tile_word``: putting a word of an operand there,
    ``tile_sum``: taking a sum from there, all in multiply-adds of float32; ``tile_chains``: products in tiles that run
    while one waits for another; ``tile_far``: how much longer products take whose blocks the first-level cache does not
    hold; ``tile_start``: waking the unit that multiplies tiles, which rests between kernels; ``tile_rows``: from
    how many on a block, empty as it is, takes less than row by row in vectors, ``pair_rows``, ``byte_rows``: the same
    where rows of an open number wait for a weight from memory, of bfloat16 or of bytes; ``split_word``,
    ``split_ragged_word`` where words are not whole, ``split_sum`` and ``split_rows``, which is of an open number: the
    same of operands in two parts. ``softmax_element``,
    ``softmax_in_tiles``: a weight of an attention, and one whose products are made in tiles, ``tile_operand``: an
    element of what these read, in multiply-adds. ``unpacked_rows``: most rows of a product for which packing the other
    operand when the model runs does not pay.

    Threads, in nanoseconds of work on one thread. ``parallel_ns``: from which on threads pay; ``never_parallel_ns``:
    below which they never do; ``always_parallel_ns``: above which they always do, so that there is nothing to try.
    ``parallel_checks``: indices from which on threads share their check, about 20,000 ns.
    """

    core: Core | None = None
    cycles: Cycles = Cycles()

    accumulators: int = 8
    side_by_side: int = 4
    joined_calls: int = 4

    multiply_add_rate: float = 80.0
    operation_rate: float = 8.0
    step_cycles: int = 4
    panel_read_cycles: float = 0.3
    transformed_read_cycles: float = 0.5
    lane_sum: int = 12

    memory_rate: float = 12.0
    stream_rate: float = 50.0
    operations_per_byte: float = 8.0
    kept_bytes: int = 2 << 20
    rows_in_flight: int = 8
    run_bytes: int = 256
    fetch_operations: int = 8

    weight_load: int = 12
    transformed_element: int = 12
    quartered_element: int = 50
    transforms: int = 2_500_000
    packed_weight: int = 16
    byte_products: float = 0.3
    byte_words: float = 0.3
    look_up: float = 50.0
    expensive_element: float = 16.0
    tile_pair: float = 1 / 12
    tile_byte: float = 1 / 24
    tile_word: float = 3.0
    tile_sum: float = 2.0
    split_word: float = 16.0
    split_ragged_word: float = 110.0
    split_sum: float = 19.0
    split_rows: int = 8
    tile_chains: float = 3.25
    tile_far: float = 1.5
    tile_start: float = 1.5e5
    tile_rows: int = 4
    pair_rows: int = 6
    byte_rows: int = 13
    softmax_element: float = 80.0
    softmax_in_tiles: float = 105.0
    tile_operand: float = 16.0
    unpacked_rows: int = 3

    parallel_ns: int = 8_000
    never_parallel_ns: int = 2_000
    always_parallel_ns: int = 200_000
    parallel_checks: int = 1 << 16


GENERIC = Costs()
"""Those of a CPU that no table names, and of graphs that are rewritten before anybody says for which CPU."""
