"""Room ``frontend/ops/transformers``: the fused operators of onnxruntime's transformer and language models.

Takes: a node of ``com.microsoft`` as a call, and the graph that is being built.
Gives: the products, norms, rotations and caches that it was fused from.
May import: frontend.build, frontend.ops, graph_ir, core.
Never: a kernel's choice: what of this is computed together is decided when the graph is fused.
"""
