"""Lowering: every operator's meaning as formulas, fused groups as one function each, and the plan that calls them.

Takes: a graph after its passes, and the target.
Gives: for each fused group a tensor IR function in canonical names, with the values and packed constants that its
parameters stand for; the call plan: where every value lies, and which kernels, host and control steps run when.
May import: graph_ir, tensor_ir, machine, core.
Never: decides loop order, tiling or threads (that is schedule's); reads ONNX files; evaluates a node's value.
"""
