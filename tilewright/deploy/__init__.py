"""Room ``deploy``: compiled models as files that run without Python.

Takes: plans, object code, weights.
Gives: shared libraries with a C interface (``native/tilewright.h``), and what they say of themselves.
May import: ``core``, ``machine``, ``codegen``, ``kernels``, ``runtime``.
Never: another schedule, kernel or plan than the compiled model has: results are the same bit for bit.
"""
