"""The implementations of sums over labels.

Takes: the facts of a node, and its operands as tensors.
Gives: ``labels``, what the equation says of a node; one file per implementation.
May import: lowering.implementations.base, lowering.implementations.gemm, lowering (contexts, facts,
formulas, geometry), graph_ir, tensor_ir, core.
Never: chooses one for a node; knows what stands around it.
"""
