"""Random edits on random graphs; ``python -m tilewright.tests.edit.random_edits`` runs more of them."""

from __future__ import annotations

import pytest

from tilewright.tests.edit.random_edits import CHANGING, KEEPING, check_seed


@pytest.mark.parametrize("seed", range(12))
def test_edits_hold(seed: int) -> None:
    assert check_seed(seed)


def test_the_seeds_have_every_kind_of_edit() -> None:
    done = {kind for seed in range(12, 24) for kind in check_seed(seed, edits=12, count=12)}
    assert done == {*KEEPING, *CHANGING}
