"""The header of a model that is linked into a program: what a C compiler can know of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.core.io.files import MARK, begins_with
from tilewright.deploy.source.c_text import quoted
from tilewright.runtime.signature import TensorSpec

_BEGIN = f"/* {MARK} */\n"
HEADER = begins_with("a header that tilewright wrote", _BEGIN.encode())


def model_header(name: str, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], arena_bytes: int) -> str:
    """C for the static library ``name``: bytes of the arena (0 where sizes depend on the inputs), how many inputs and
    outputs there are, and of each its name, rank, and bytes where its sizes are fixed."""
    prefix = re.sub(r"\W", "_", name).upper()
    lines = [f"#define {prefix}_ARENA_BYTES {arena_bytes}"]
    for what, specs in (("INPUT", inputs), ("OUTPUT", outputs)):
        lines.append(f"#define {prefix}_{what}_COUNT {len(specs)}")
        for k, s in enumerate(specs):
            lines.append(f"#define {prefix}_{what}_{k}_NAME {quoted(s.name)}")
            if s.shape is None:
                continue
            lines.append(f"#define {prefix}_{what}_{k}_NDIM {len(s.shape)}")
            size = s.dtype.itemsize
            for d in s.shape:
                size *= d if isinstance(d, int) else 0
            if all(isinstance(d, int) for d in s.shape):
                lines.append(f"#define {prefix}_{what}_{k}_BYTES {size}")
    guard = f"{prefix}_MODEL_H"
    return "\n".join([
        f"{_BEGIN}#ifndef {guard}", f"#define {guard}", "", '#include "tilewright.h"', "", *lines, "", "#endif", "",
    ])  # fmt: skip
