"""Room ``autotune/review``: logs looked at as a whole: what is in them, what changed, whether it still holds.

Takes: databases; for the last a measurer.
Gives: lines that a filter takes, differences of two logs with their significance, winners measured again.
May import: autotune.base, autotune.records, autotune.measure, schedule, machine, core.
Never: a line of a log changed; a difference told that chance explains as well.
"""
