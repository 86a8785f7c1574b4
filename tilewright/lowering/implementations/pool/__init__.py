"""The implementations of pooling over windows and over whole images: Max (with positions), Average and Lp.

Takes: the facts of a node, and its operand as a tensor.
Gives: one file per implementation, each for all three operators; ``results``, what they share.
May import: lowering.implementations.base, lowering (contexts, facts, formulas, geometry, indexing), tensor_ir, core.
Never: chooses one for a node; knows what stands around it.
"""
