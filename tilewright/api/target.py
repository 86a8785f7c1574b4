"""``tilewright.Target``: a CPU by its description, as LLVM names it."""

from __future__ import annotations

from typing import Any

from tilewright.codegen.detect_cpu import parse_target
from tilewright.machine import target


class _Described(type):
    """A target of any making is one."""

    def __instancecheck__(cls, given: object) -> bool:
        return isinstance(given, target.Target)


class Target(target.Target, metaclass=_Described):
    """``Target("llvm -mcpu=znver4 -num-threads=4")``, or ``Target()`` for this machine; where an option takes a target,
    the text alone does as well. With keywords, ``Target(triple=..., cpu=..., ...)``, a machine of these facts.

    Raises TargetError for a description that says something unknown.

    >>> import tilewright
    >>> target = tilewright.Target("llvm -mcpu=x86-64-v3 -num-threads=4")
    >>> target.vector_bits, target.threads
    (256, 4)
    """

    def __new__(cls, description: str | target.Target | None = None, **facts: Any) -> target.Target:  # type: ignore[misc]
        return target.Target(**facts) if facts else parse_target(description)
