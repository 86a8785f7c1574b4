"""LLVM behind a narrow door: IR is written as text, compiled to objects, and loaded.

Takes: instructions, IR text, names of CPUs.
Gives: the text of a module (``builder``), objects and addresses (``jit``), what LLVM knows of a CPU (``names``).
May import: codegen.cache, core, machine.
Never: knows the tensor IR.
"""
