"""Rules for sums over labels of products: an Einsum as the operators that it is.

Takes: nothing by itself. Gives: literal tuples ``RULES``, one file a theme, as the room around it.
May import: core, the rest of graph_ir.
Never: makes two labels of one axis equal, or takes sizes to be equal that may differ.
"""
