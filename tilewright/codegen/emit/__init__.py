"""Functions as LLVM IR text: phases of nests that threads share, loops, addresses, loads and stores.

Takes: a scheduled function and the target.
Gives: the text of its kernel (``function``).
May import: codegen.llvm, codegen.math, runtime.resources, tensor_ir, machine, core.
Never: changes what a schedule says; calls LLVM.
"""
