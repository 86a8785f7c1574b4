"""Commands that make a model file of another one.

Takes: parsed arguments. Gives: a file, an account of it, and the exit status.
May import: commands.common, quantization, simplification, writer, core.
Never: what changes a model, which is in the rooms ``quantization`` and ``simplification``.
"""
