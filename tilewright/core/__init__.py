"""Room ``core``: the small leaf that every other room stands on.

Takes: nothing from other rooms but the sizes of cache lines and pages (machine).
Gives: element types, integer expressions with their bounds, errors, the call plan, configuration, files that are
written whole.
May import: machine, the standard library, numpy, ml_dtypes.
Never: an IR, LLVM, ONNX, a clock or a random number.
"""
