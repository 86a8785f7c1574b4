"""Facts about functions, as nouns: what a schedule primitive must know before it may change a loop.

Takes:      functions and statements of the tensor IR.
Gives:      scopes, regions, addresses, dependences; answers are yes, no or unknown, and unknown is never yes.
May import: core, tensor_ir.
Never:      changes a statement.
"""
