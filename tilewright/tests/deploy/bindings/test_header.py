"""``tilewright.h``, and what opens libraries, are C99 and C++17 without a warning; a tensor is as DLPack has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.tests.deploy.bindings.languages import BINDINGS, INCLUDE, WARNINGS, c_compiler, cpp_compiler, done

pytestmark = pytest.mark.skipif(not BINDINGS.is_dir(), reason="needs the source tree")

DLPACK = """
#include <stddef.h>
typedef char is_dlpack[offsetof(tw_tensor, device) == 8 && offsetof(tw_tensor, ndim) == 16 &&
                       offsetof(tw_tensor, dtype) == 20 && offsetof(tw_tensor, shape) == 24 &&
                       offsetof(tw_tensor, strides) == 32 && offsetof(tw_tensor, byte_offset) == 40 &&
                       sizeof(tw_tensor) == 48 ? 1 : -1];
int main(void) { return sizeof(is_dlpack) == 1 ? 0 : 1; }
"""


@pytest.mark.parametrize(("standard", "suffix"), [("c99", "c"), ("c11", "c"), ("c++17", "cpp"), ("c++20", "cpp")])
@pytest.mark.parametrize("name", ["tilewright.h", "tilewright_dl.h"])
def test_no_warnings(name: str, standard: str, suffix: str, tmp_path: Path) -> None:
    tool = c_compiler() if suffix == "c" else cpp_compiler()
    if not tool:
        pytest.skip(f"needs a compiler for {standard}")
    (tmp_path / f"page.{suffix}").write_text(f'#include "{name}"\n{DLPACK}')
    done([*tool, f"-std={standard}", *WARNINGS, INCLUDE, f"page.{suffix}", "-ldl", "-o", "page"], tmp_path)
    done([tmp_path / "page"], tmp_path)
