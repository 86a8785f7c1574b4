"""What the operating system lets a process use of the CPU only when it asks.

On Linux the registers of matrix tiles (AMX) are such: their 8 KiB make a thread's state too large for what programs
set aside for signals (Linux, Documentation/arch/x86/xstate.rst). The permission holds for all threads of the process
and for processes that it forks.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys

_ARCH_PRCTL = 158
_GET_PERMISSIONS, _REQUEST_PERMISSION = 0x1022, 0x1023
_TILE_DATA = 18
"""The number of the registers' part of the state."""


@functools.cache
def why_no_matrix_tiles() -> str:
    """Why this process may not use matrix tiles; empty if it may. Asks for the permission, once."""
    if not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return f"{platform.system()} on {platform.machine()} has no permission for them, as Linux on x86_64 has"
    try:
        call = ctypes.CDLL(None, use_errno=True).syscall
    except (OSError, AttributeError) as e:
        return f"no system calls from Python: {e}"
    call.restype = ctypes.c_long
    if call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_REQUEST_PERMISSION), ctypes.c_long(_TILE_DATA)):
        return f"the system refuses them (arch_prctl ARCH_REQ_XCOMP_PERM: {os.strerror(ctypes.get_errno())})"
    granted = ctypes.c_uint64()
    if call(ctypes.c_long(_ARCH_PRCTL), ctypes.c_long(_GET_PERMISSIONS), ctypes.byref(granted)):
        return f"the system does not tell of them (arch_prctl ARCH_GET_XCOMP_PERM: {os.strerror(ctypes.get_errno())})"
    return "" if granted.value >> _TILE_DATA & 1 else "the system has not granted them"
