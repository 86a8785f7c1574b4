"""Graph to graph passes, one a file; :mod:`tilewright.graph_ir.pipeline` lists them in order and says why.

Takes: a verified :class:`~tilewright.graph_ir.ir.Graph` with inferred types.
Gives: an equivalent graph (to the pass's exactness class) and a log of what fired and what was refused.
May import: core, machine, reference (constant folding only), the rest of graph_ir.
Never: writes to a constant's array, changes the names, order or types of a graph's inputs and outputs (share_symbols,
which callers ask for by name, gives equal sizes one symbol).
"""
