"""Room ``runtime``: a compiled model and everything that happens when it runs.

Takes: a call plan, machine code addresses, the user's arrays.
Gives: results, profiles, error messages about inputs.
May import: machine, core (and reference by name, when a host step first needs it).
Never: an IR room, LLVM, ONNX files.
"""
