"""The actions of ``tilewright graph``: a module each, with ``add_arguments`` and ``run``, in the table of ``command``.

Takes: arguments of one action. Gives: text or files, and the exit status.
May import: commands.common, edit, frontend, writer (which files are models), core.
Never: what works on a graph itself, which is in the room ``edit``.
"""
