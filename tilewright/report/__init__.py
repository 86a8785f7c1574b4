"""Room ``report``: a tuning log as one page of HTML.

Takes: the path of a tuning log, and measured peaks if there are any.
Gives: the text of a page that needs no other file.
May import: autotune, schedule, lowering, tensor_ir, runtime, machine, core.
Never: a measurement or a compilation; a name from a log without escaping it.
"""
