"""Where the elements of packed operands, groups of channels and padded images lie; what all implementations of an
operator share: sizes, indices, reading the operands, finishing the result.

Takes: a node's facts and operands, sizes, strides, pads, the target.
Gives: widths of panels, indices into packed arrays, extents.
May import: lowering.context, lowering.facts, tensor_ir, machine, core.
Never: decides how sums are computed.
"""
