"""What operators with one way to compute them mean, as stages of formulas; one file per family.

Takes: a node's operands as tensors, its attributes and types (``lowering.context``).
Gives: one tensor for each output; ``LOWER`` of each family, which ``lowering.table`` merges.
May import: lowering.context, lowering.facts, lowering.geometry, lowering.indexing, graph_ir, tensor_ir, machine, core.
Never: knows what stands around a node; decides the order of loops.
"""
