"""Scalar operations as inline LLVM IR, on scalars and on vectors alike: arithmetic, conversions, functions like exp.

Takes: operands in registers and their element types.
Gives: the instructions that compute an operation of the tensor IR (``scalar_operations``).
May import: codegen.llvm, machine, core.
Never: touches memory; knows a loop.
"""
