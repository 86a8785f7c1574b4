"""Register tiles and matrix tiles for reductions, and the blocks of tiles around them, as in Goto's and BLIS's matrix
products.

Takes: a reduction, the block that finishes it, and the target.
Gives: the nest around and in a register tile (``register_tiles`` draws it), by decisions that a tuner may change.
May import: schedule.compact_buffer, schedule.primitives.sampling, schedule.rules, schedule.schedule, tensor_ir,
machine, core.
Never: names an operator or a model.
"""
