"""Room ``autotune/exchange``: records in forms that others read and write.

Takes: lines of a log; files of other programs.
Gives: JSON and CSV; lines of a log, and an account of what has no counterpart here.
May import: autotune.records, core.
Never: a time of another compiler's kernel as one of ours.
"""
