"""Integer expressions: sizes, extents and indices as polynomials over symbols, in canonical form.

Takes: integers, names of variables, text.
Gives: expressions (``expr``), their text read back (``parse``), proofs over ranges (``bounds``).
May import: core.errors, core.memo.
Never: an array, a file, or what a size is a size of.
"""
