"""The edit room: graphs as people work on them who edit model files.

Takes: graphs of the graph IR, as a model file has them.
Gives: the difference of two graphs, and what is in one.
May import: graph_ir, core.
Never: loops, machine code; a change of a graph that was given.
"""
