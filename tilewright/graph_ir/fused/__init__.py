"""The fused level of the graph IR: which nodes run as one, on which side, and where what they make lies.

Takes: a graph after its passes, and what the room that lowers it knows (``Backend``). Gives: a graph with groups, whose
values may lie inside others. May import: core, machine (the costs of a CPU), graph_ir.data_dependent_shapes,
graph_ir.inference, graph_ir.ir, graph_ir.kinds, graph_ir.ops, graph_ir.passes.base, graph_ir.rules.base,
graph_ir.symbols. Never: loops, addresses, another result.
"""
