"""Lowering: every operator's meaning as formulas, and fused groups as one function each.

Takes: a graph, one fused group of its nodes, and the target.
Gives: a tensor IR function in canonical names, with the graph values and packed constants its parameters stand for.
May import: graph_ir, tensor_ir, core.
Never: decides loop order, tiling or threads (that is schedule's); reads ONNX files; evaluates a node's value.
"""
