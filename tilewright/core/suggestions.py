"""``did you mean``: the known name nearest to one that is not known."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean 'skylake'?`` for the end of a message, or nothing where no known name is near."""
    names = sorted(known)
    near = [n for n in names if n.lower() == name.lower()] or [n for n in names if name and n.startswith(name)]
    if not near:
        import difflib  # for a message alone

        near = difflib.get_close_matches(name, names, 3)
    if not near:
        return ""
    return f"; did you mean {' or '.join(map(repr, near[:3]))}?"
