"""``tilewright completion``: the command line as a tree of words, and a file for each shell that writes it as a script.

Takes: the parsers of all commands. Gives: a script on standard output, and the exit status.
May import: cli.
Never: a command's name or option of its own: what the parsers do not have is not completed.
"""
