"""Where the elements of packed operands, groups of channels and padded images lie: sizes and indices.

Takes: sizes, strides, pads, the target.
Gives: widths of panels, indices into packed arrays, extents.
May import: lowering.context, tensor_ir, machine, core.
Never: computes a result of a node.
"""
