"""Definitions of the operators that move elements, or only rename their places, and compute none.

Takes: types of a node's inputs and its attributes.
Gives: definitions by name, with inference rule and traits.
May import: graph_ir.ir, graph_ir.kinds, graph_ir.ops, core.
Never: an operator's arithmetic.
"""
