"""Room ``deploy.files``: what artifacts look like as files, and how damage to them is found.

Takes: bytes of code, manifests and weights.
Gives: packages and seals; whole ones again, or an error in a sentence.
May import: ``core``, ``machine``.
Never: needs more than numpy: who runs artifacts has nothing else.
"""
