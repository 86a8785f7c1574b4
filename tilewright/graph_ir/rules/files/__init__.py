"""Rules for graphs that become files: fewer nodes in the terms of ONNX, where kernels would rather have them apart.

Takes: matches. Gives: rules, which ``FILE_PASSES`` of the pipeline run; no build does.
May import: core, and of graph_ir the parts below passes.
Never: an operator that ONNX does not have.
"""
