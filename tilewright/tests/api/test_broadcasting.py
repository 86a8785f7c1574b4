"""Dims of unknown relation that broadcast: every pattern at every choice of sizes, against the interpreter."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.api.broadcast_patterns import PATTERNS, feed_for


@pytest.mark.parametrize(
    ("threads", "level", "broadcasting"), [(2, "all", "lazy"), (1, "none", "only"), (1, "extended", "only")]
)
@pytest.mark.parametrize("name", PATTERNS)
def test_pattern(name: str, threads: int, level: str, broadcasting: Literal["lazy", "only"]) -> None:
    pattern = PATTERNS[name]
    proto = pattern.model()
    imported = tilewright.compile(proto, stop_after="import")
    model = tilewright.compile(proto, threads=threads, opt_level=level, broadcasting=broadcasting)
    rng = np.random.default_rng(0)
    served = 0
    for sizes in pattern.choices():
        feed = feed_for(proto, sizes, rng)
        try:
            want = interpret(imported, feed) if pattern.valid(sizes) else None
        except ModelError:
            want = None
        if want is None:
            with pytest.raises(InputError, match="expected dimensions that agree"):
                model.run(feed)
            continue
        served += 1
        for output, got in model.run(feed).items():
            expected = np.asarray(want[output])
            assert got.shape == expected.shape, (sizes, output)
            if expected.dtype.kind == "f":
                np.testing.assert_allclose(got, expected, pattern.tolerance, pattern.tolerance, err_msg=str(sizes))
            else:
                np.testing.assert_array_equal(got, expected, err_msg=str(sizes))
    assert served >= 2
