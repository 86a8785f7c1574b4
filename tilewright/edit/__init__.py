"""The edit room: graphs as people work on them who edit model files.

Takes: a model as a path, a message or a graph of the graph IR; edits by names.
Gives: ``load_graph``, whose edits make frozen models of frozen models; the difference of two graphs, what is in one.
May import: writer, frontend, graph_ir, core.
Never: loops, machine code; a change of a graph that was given.
"""
