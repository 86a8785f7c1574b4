"""Rules for operators that move or repeat elements and compute nothing.

Takes: nothing by itself. Gives: literal tuples ``RULES``, one file a theme, as the room around it.
May import: core, reference (which positions a Slice takes), the rest of graph_ir.
Never: an equation that holds for some sizes only, unless the graph's assumptions refuse the others.
"""
