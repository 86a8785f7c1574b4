"""Native code around the kernels: the entry that calls them in order, checks of indices before them, the thread pool
that they share, and loops that show what an instruction can do.

Takes: what a call plan says.
Gives: objects, found in the cache by their text.
May import: codegen.cache, codegen.detect_cpu, codegen.llvm, codegen.emit.matrix_tiles, tensor_ir, core, machine.
Never: computes a tensor.
"""
