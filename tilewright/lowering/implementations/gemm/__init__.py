"""The implementations of products of matrices.

Takes: the facts of a node, and its operands as tensors.
Gives: one file per implementation; ``cost``, what they are estimated to take, in one unit.
May import: lowering.implementations.base, lowering (contexts, geometry), graph_ir, machine, tensor_ir, core.
Never: chooses one for a node; knows what stands around it.
"""
