"""Where the C of artifacts is: the interface (``tilewright.h``), and the runtime behind it."""

from __future__ import annotations

import os
from pathlib import Path


def get_include() -> str:
    """The directory with ``tilewright.h`` and the other headers of exported models, for a C compiler's ``-I``.

    >>> import os
    >>> sorted(os.listdir(tilewright.get_include()))[-2:]
    ['tilewright.h', 'tilewright_dl.h']
    """
    return os.fspath(Path(__file__).parent / "native")
