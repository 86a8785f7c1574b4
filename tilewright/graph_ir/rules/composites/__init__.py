"""Rules that find an operator in more parts than a pattern names: norms over views, cells of recurrent layers,
functions of a byte.

Takes: nothing by itself. Gives: tuples ``RULES``, one file a theme, as the room around it.
May import: machine (what operators cost), core, the rest of graph_ir.
Never: an operator whose parts mean the same for some sizes only.
"""
