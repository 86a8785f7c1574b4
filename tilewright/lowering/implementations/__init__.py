"""The ways to compute a node of an operator that has several: one file each, one table (:mod:`.table`).

Takes: the facts of a node (attributes, types, constants) and the target; to lower one, its operands as tensors.
Gives: for each implementation why it does not apply, its estimated time and error, and the formulas of the node.
May import: lowering (contexts, formulas, geometry, packing), graph_ir, tensor_ir, machine, core.
Never: chooses (lowering.choose_implementation does); knows what stands around the node.
"""
