"""Room ``deploy.source``: plans as C.

Takes: plans, and the symbols of the entry functions of their segments.
Gives: the C file of a model, and the block of its weights.
May import: ``core``, ``machine``, ``runtime.resources``.
Never: decides anything that the plan leaves open: what runs when, and where it lies, is the executor's order.
"""
