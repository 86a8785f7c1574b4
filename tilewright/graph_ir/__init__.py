"""The graph IR room: networks as typed values and nodes, and everything that is said or changed at that level.

Takes: a graph with typed inputs and constants. Gives: graphs inferred, verified, rewritten, grouped.
May import: core, machine, reference (constant folding, the interpreter, sizes).
Never: ONNX protos, loops, machine code.
"""
