"""Room ``runtime/host_ops``: operators that run in Python, on arrays.

Takes: a host step and its operands.
Gives: its results, of memory of their own.
May import: core (and reference by name, when a step first needs it).
Never: a symbol, an address of a kernel.
"""
