"""The last rewrites of a scheduled function: after them it says all that its machine code depends on.

Takes: a scheduled function and the target.
Gives: an equivalent function, ready to be emitted (``steps``), and the phases in which its nests run (``phases``).
May import: tensor_ir, machine, core.
Never: writes LLVM IR; decides what a step, printed and verified, does not say.
"""
