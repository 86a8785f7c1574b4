"""How the difference of two graphs is found: which nodes are the same ones, then what is different about them.

Takes: two graphs. Gives: pairs of nodes that stand for each other, and changes as data.
May import: graph_ir, core.
Never: a difference that only the names of nodes and values, or the order of nodes, make.
"""
