"""Definitions of the operators that networks are made of: convolutions, products, pooling, norms, recurrences, images.

Takes: types of a node's inputs and its attributes.
Gives: definitions by name, with inference rule and traits.
May import: graph_ir.ir, graph_ir.kinds, graph_ir.ops, reference, core.
Never: an operator's arithmetic.
"""
