"""Rewrite rules as data: a pattern, a guard that can say why not, a build function, an equation and its exactness.

Takes: nothing by itself; :func:`tilewright.graph_ir.rules.driver.rewrite` runs tuples of rules over a graph.
Gives: literal tuples ``RULES``, one file a theme.
May import: core, reference (in moves: which positions a Slice takes), the rest of graph_ir.
Never: edits before its guard has answered, or computes on arrays that it did not make.
"""
