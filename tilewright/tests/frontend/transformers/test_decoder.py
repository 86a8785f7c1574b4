"""A small language model, a prompt and then token by token, as ONNX Runtime GenAI calls it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
from tilewright.core.plan import HostStep
from tilewright.inspect.ort import open_session
from tilewright.tests.frontend.transformers.decoders import Decoder, decoder_model, past_names, present_name

PROMPT = np.array([[5, 9, 200, 3, 7]])
STEPS = 4


@pytest.mark.parametrize("rows", [None, 24])
@pytest.mark.parametrize("bits", [4, 32])
def test_tokens(bits: int, rows: int | None) -> None:
    """One model of all lengths, and one for a single row, which take turns on the same caches: like onnxruntime, and
    like the whole text in one call."""
    d = Decoder(2, 64, 4, 2, 96, 300, bits, 16, rows, 64)
    proto = decoder_model(d)
    any_length = tilewright.compile(proto)
    one_row = tilewright.compile(proto, input_shapes={"batch_size": 1, "sequence_length": 1})
    for model in (any_length, one_row):
        assert not [s for s in model.plan.steps if isinstance(s, HostStep)]
    session = open_session(proto, 1)
    caches, ids, text, seen = d.empty_caches(), PROMPT, PROMPT, 0
    theirs = caches
    for k in range(STEPS):
        results = (one_row if k % 2 else any_length).run(d.step(ids, seen, caches))
        whole = any_length.run(d.step(text, 0, d.empty_caches()))
        last = results["logits"][:, -1]
        np.testing.assert_allclose(last, whole["logits"][:, -1], 1e-4, 1e-4)
        assert results["present.0.key"].shape[2] == (rows or text.shape[1])
        if session is not None:
            names = [o.name for o in session.get_outputs()]
            wanted = dict(zip(names, session.run(None, d.step(ids, seen, theirs)), strict=True))
            np.testing.assert_allclose(results["logits"], wanted["logits"], 1e-4, 1e-4)
            theirs = d.next_caches(wanted)
        caches, seen = d.next_caches(results), text.shape[1]
        ids = last.argmax(-1)[:, None]
        text = np.concatenate([text, ids], 1)


@pytest.mark.parametrize("rows", [None, 24])
def test_caches_in_place(rows: int | None) -> None:
    """One model for prompt and rows; caches of a fixed length may be those of a model that does not say so."""
    d = Decoder(2, 64, 4, 2, 96, 300, 32, 16, rows, 64)
    model = tilewright.compile(decoder_model(d))
    assert model.in_place == {present_name(n): n for n in past_names(2)}
    fixed = Decoder(2, 64, 4, 2, 96, 300, 32, 16, 24, 64).empty_caches()
    caches, out = {n: c.copy() for n, c in fixed.items()}, {present_name(n): c for n, c in fixed.items()}
    ids, seen = PROMPT, 0
    for _ in range(STEPS):
        wanted = model.run(d.step(ids, seen, caches))
        got = model.run(d.step(ids, seen, fixed), out=out)
        for name, array in wanted.items():
            assert name == "logits" or got[name] is out[name]
            np.testing.assert_array_equal(got[name], array)
        caches, seen = d.next_caches(wanted), seen + ids.shape[1]
        ids = wanted["logits"][:, -1].argmax(-1)[:, None]


def test_what_layers_ask_for_alike_is_computed_once() -> None:
    """Positions and rows of the tables of angles, also where sizes are symbolic."""
    counts = []
    for layers in (2, 3):
        proto = decoder_model(Decoder(layers, 64, 4, 2, 96, 300, 4, 16, None, 64))
        counts.append(len(tilewright.compile(proto).plan.steps))
    assert counts[1] - counts[0] <= 18
