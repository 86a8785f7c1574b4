"""Functions as LLVM IR text: phases of nests that threads share, loops, addresses, loads and stores.

Takes: a function that codegen.prepare made ready, and the target.
Gives: the text of its kernel (``function``).
May import: codegen.llvm, codegen.math, codegen.prepare, runtime.resources, tensor_ir, machine, core.
Never: decides anything about speed that the function does not say; calls LLVM.
"""
