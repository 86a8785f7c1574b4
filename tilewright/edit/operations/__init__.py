"""What can be done to a graph, a function each: from a model as its file has it to another one.

Takes: an OnnxModel, and what is to be done to it, by names.
Gives: another OnnxModel; types are inferred when all is done (``settle``).
May import: frontend (what files and the standard say), writer, graph_ir, core.
Never: a change of what was given; a name that the user did not ask for where the old one would do.
"""
