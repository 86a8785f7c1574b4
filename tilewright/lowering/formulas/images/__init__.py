"""Formulas of operators on images: resampling, sampled convolutions, detection.

Takes: a node's operands as tensors.
Gives: one tensor for each output.
May import: lowering.context, lowering.formulas, lowering.geometry, lowering.indexing, tensor_ir, core.
Never: knows what stands around a node.
"""
