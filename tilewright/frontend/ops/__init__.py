"""Converters to the newest form of operators whose signature or meaning changed, one file per family.

Takes: a node of the file as a call, and the graph that is being built.
Gives: the nodes that it becomes, in the newest operators' terms.
May import: frontend.build, graph_ir, core.
Never: reads the file itself, infers a shape, computes on a tensor of the size of a weight unless its bytes are packed.
"""
