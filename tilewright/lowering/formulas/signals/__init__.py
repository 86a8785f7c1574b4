"""Formulas of signal processing: Fourier transforms and window functions.

Takes: a node's operands as tensors.
Gives: one tensor for each output.
May import: lowering.context, lowering.formulas, lowering.indexing, tensor_ir, core.
Never: knows what stands around a node.
"""
