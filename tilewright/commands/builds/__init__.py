"""Room ``commands.builds``: commands that build a model and say what came of it.

Takes: parsed arguments.
Gives: text or JSON on standard output, an artifact, and an exit status.
May import: commands, deploy, runtime, core.
Never: a run of the model, but where shares are to be measured.
"""
