"""Rewrite rules as data: a pattern, a guard that can say why not, a build function, an equation and its exactness.

Takes: nothing by itself; :func:`tilewright.graph_ir.rules.driver.rewrite` runs tuples of rules over a graph.
Gives: literal tuples ``RULES``, one file a theme.
May import: core, the rest of graph_ir; machine in composites (what operators cost), reference in moves (which positions
a Slice takes).
Never: edits before its guard has answered, or computes on arrays that it did not make.
"""
