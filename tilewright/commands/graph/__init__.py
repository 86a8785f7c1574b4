"""The actions of ``tilewright graph``: a module each, with ``add_arguments`` and ``run``, in the table of ``command``.

Takes: arguments of one action. Gives: text or files, and the exit status.
May import: everything; graphs are read, changed and written by edit, frontend and writer.
Never: what works on a graph itself, which is in the room ``edit``.
"""
