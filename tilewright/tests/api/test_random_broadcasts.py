"""Random graphs of operands that broadcast, at sizes that differ from call to call, against the interpreter."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

import tilewright
from tilewright.core.errors import InputError, ModelError
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.api.random_broadcasts import random_graph


@pytest.mark.parametrize(("level", "broadcasting", "threads"), [("all", "lazy", 2), ("none", "only", 1)])
@pytest.mark.parametrize("seed", range(12))
def test_seed(seed: int, level: str, broadcasting: Literal["lazy", "only"], threads: int) -> None:
    graph = random_graph(seed)
    proto = graph.model()
    try:
        imported = tilewright.compile(proto, stop_after="import")
    except ModelError:  # sizes that never fit
        return
    model = tilewright.compile(proto, opt_level=level, broadcasting=broadcasting, threads=threads)
    for feed in graph.feeds(7):
        try:
            want = interpret(imported, feed)
        except ModelError:
            with pytest.raises(InputError, match="expected dimensions that agree"):
                model.run(feed)
            continue
        for name, got in model.run(feed).items():
            np.testing.assert_allclose(got, np.asarray(want[name]), 2e-4, 2e-4)
