"""Facts about functions, as nouns: what a schedule primitive must know before it may change a loop.

Takes:      functions and statements of the tensor IR.
Gives:      scopes, addresses, sweeps, dependences; what is not proved counts as a dependence, or as not covered.
May import: core, machine, tensor_ir.
Never:      changes a statement.
"""
