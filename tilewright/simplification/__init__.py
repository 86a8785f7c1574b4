"""The simplifier: an ONNX model in, an equal one with fewer nodes out. Read :func:`simplify_model` from top to bottom.

Takes: an ONNX model, and options.
Gives: a model of the same inputs and outputs, checked against the first one on random inputs, and what was done.
May import: compile (runs models where onnxruntime is not installed), inspect (onnxruntime), writer, frontend, graph_ir,
core.
Never: an operator that the model's runtime may not know; a rewrite that makes many nodes of one.
"""
