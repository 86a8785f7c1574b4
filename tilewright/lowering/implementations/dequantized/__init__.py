"""The implementations of products with a weight of few bits, ``MatMulDequantized``.

Takes: the facts of a node, and its operands as tensors.
Gives: one file per implementation; ``weight_only`` also has what they are estimated to take for some rows or many.
May import: lowering.implementations.base, lowering.implementations.gemm, lowering (contexts, facts, geometry),
machine, tensor_ir, core.
Never: chooses one for a node; knows what stands around it.
"""
