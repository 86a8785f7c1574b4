"""Room ``runtime``: a compiled model and everything that happens when it runs.

Takes: a call plan, machine code addresses, the user's arrays.
Gives: results, profiles, error messages about inputs.
May import: core, reference (host steps only, loaded when first needed).
Never: an IR room, LLVM, ONNX files.
"""
