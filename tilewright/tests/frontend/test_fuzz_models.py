"""A few hundred mutated model files; the module ``fuzz_models`` runs as many as one likes."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.core.errors import ModelError
from tilewright.frontend import from_onnx
from tilewright.tests.frontend.fuzz_models import check
from tilewright.tests.frontend.models import MODELS
from tilewright.tests.frontend.mutations import mutated


@pytest.mark.parametrize("block", range(8))
def test_mutated_models_are_accepted_or_refused(block: int) -> None:
    outcomes = {check(0, case) for case in range(100 * block, 100 * block + 100)}
    assert "ModelError" in outcomes


def test_a_case_is_the_same_every_time() -> None:
    assert mutated(MODELS, 3, 17) == mutated(MODELS, 3, 17)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_cut_anywhere_gives_one_line(name: str) -> None:
    data = MODELS[name]().SerializeToString()
    for at in np.linspace(0, len(data) - 1, 120, dtype=int):
        with pytest.raises(ModelError) as e:
            from_onnx(data[:at])
        assert "\n" not in str(e.value)
