"""What generated code calls of the system: a clock, semaphores, and to give a processor away.

On 64-bit Linux these are functions of the C library. Elsewhere they are others, or have other arguments: there the code
calls functions of the same form with ``tw_`` before their names, which artifacts bring along
(``deploy/native/system.c``).
"""

from __future__ import annotations

import re

from tilewright.machine.target import Target

_FUNCTIONS = re.compile(r"@(clock_gettime|sem_init|sem_post|sem_wait|sched_yield)\b")


def with_system(text: str, target: Target) -> str:
    """The text of a module for the system of ``target``."""
    if "linux" in target.triple and target.pointer_bytes == 8:
        return text
    return _FUNCTIONS.sub(r"@tw_\1", text)
