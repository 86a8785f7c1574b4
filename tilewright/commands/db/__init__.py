"""Room ``commands/db``: one file for each action of ``db``.

Takes: parsed arguments; tuning logs.
Gives: text on standard output and an exit status; logs, where an action writes one.
May import: everything; it does autotune.base, autotune.exchange, autotune.lookup, autotune.measure, autotune.records,
autotune.review, codegen, commands.common, commands.output, core, lowering.
Never: a measurement or an arithmetic of its own (those are the rooms').
"""
