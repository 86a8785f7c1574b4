"""A model in a static library, in a program that gives it all its memory: no run takes any from the system."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.tests.api.models import convolution, perceptron
from tilewright.tests.deploy.exported import needs_compiler

pytestmark = needs_compiler

PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

static int forbidden;
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t m);
void *__wrap_malloc(size_t n) { return forbidden ? abort(), NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t m) { return forbidden ? abort(), NULL : __real_calloc(n, m); }

_Alignas(64) static unsigned char arena[NET_ARENA_BYTES];
static float x[NET_INPUT_0_BYTES / 4], y[NET_OUTPUT_0_BYTES / 4];

int main(void) {
  tw_model *model;
  tw_session *session;
  int64_t in_shape[NET_INPUT_0_NDIM] = {1, 3, 32, 32}, out_shape[NET_OUTPUT_0_NDIM] = {1, 24};
  for (int i = 0; i < 3 * 32 * 32; i++) x[i] = (float)(i % 17) / 17;
  tw_tensor in = {x, {1, 0}, NET_INPUT_0_NDIM, {2, 32, 1}, in_shape, NULL, 0};
  tw_tensor out = {y, {1, 0}, NET_OUTPUT_0_NDIM, {2, 32, 1}, out_shape, NULL, 0};
  if (tw_model_load(NULL, &model) || tw_session_create(model, NULL, &session)) return puts(tw_error()), 1;
  if (tw_model_arena_bytes(model) != NET_ARENA_BYTES) return puts("another arena"), 1;
  if (tw_session_use_arena(session, arena, sizeof arena)) return puts(tw_error()), 1;
  forbidden = 1;
  for (int i = 0; i < 3; i++)
    if (tw_session_run(session, &in, NET_INPUT_COUNT, &out, NET_OUTPUT_COUNT)) return puts(tw_error()), 1;
  forbidden = 0;
  if (tw_session_bytes(session) != 0) return puts("memory of its own"), 1;
  tw_session_free(session);
  tw_model_free(model);
  fwrite(y, 1, sizeof y, stdout);
  return 0;
}
"""


def test_all_memory_is_the_callers(tmp_path: Path) -> None:
    model = tilewright.compile(convolution(), threads=2, progress=False)
    paths = model.export(tmp_path / "net.a")
    assert [p.name for p in paths] == ["net.a", "net.h"]
    (tmp_path / "main.c").write_text(PROGRAM)
    wrapped = ["-Wl,--wrap=malloc", "-Wl,--wrap=calloc"]
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", f"-I{tilewright.get_include()}", "main.c", "net.a"]
    subprocess.run([*command, *wrapped, "-pthread", "-lm", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, check=False)
    assert done.returncode == 0, done.stdout
    x = (np.arange(3 * 32 * 32, dtype=np.float32) % 17 / np.float32(17)).reshape(1, 3, 32, 32)
    assert done.stdout == model.run({"x": x})["y"].tobytes()


def test_sizes_that_vary(tmp_path: Path) -> None:
    tilewright.compile(perceptron(), progress=False).export(tmp_path / "net.a")
    text = (tmp_path / "net.h").read_text()
    assert "#define NET_ARENA_BYTES 0\n" in text
    assert '#define NET_INPUT_0_NAME "x"\n' in text
    assert "NET_INPUT_0_BYTES" not in text


def test_other_headers_stay(tmp_path: Path) -> None:
    (tmp_path / "net.h").write_text("mine")
    with pytest.raises(tilewright.InputError, match="another kind of file"):
        tilewright.compile(perceptron(), progress=False).export(tmp_path / "net.a")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.h"]
