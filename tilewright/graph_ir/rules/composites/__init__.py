"""Rules that find an operator in its parts where those reach over views of tensors: norms of channels and of groups.

Takes: nothing by itself. Gives: literal tuples ``RULES``, one file a theme, as the room around it.
May import: core, the rest of graph_ir.
Never: an operator whose parts mean the same for some sizes only.
"""
