"""Room ``commands``: one file for each command of the command line.

Takes: parsed arguments.
Gives: text on standard output and an exit status.
May import: everything; nothing but ``cli`` loads it.
Never: arithmetic, a rewrite or a measurement of its own (those are the rooms').
"""
