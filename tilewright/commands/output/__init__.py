"""Room ``commands.output``: what commands print for programs, as JSON.

Takes: results of the other rooms.
Gives: one JSON object a command, with documented keys.
May import: autotune.measure, autotune.network, inspect, runtime.
Never: a number that the text of the command does not have, or in other units than seconds, bytes and counts.
"""
