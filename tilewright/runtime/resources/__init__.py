"""Room ``runtime/resources``: memory, threads and counters, as far as this process may have them.

Takes: limits of the operating system; sizes and lifetimes of values.
Gives: aligned arrays, an arena, thread pools and how many threads they have, hardware counters.
May import: machine, core.
Never: a plan, a model.
"""
