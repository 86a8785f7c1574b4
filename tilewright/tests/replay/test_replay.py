"""The text of every function, default trace and kernel is what it was. A commit that changes one says so, and why."""

from __future__ import annotations

import pytest

from tilewright.tests.replay.outputs import NETWORKS, TARGETS, UPDATE, hashes, read_expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_are_as_before(name: str, target: str) -> None:
    expected, got = read_expected()[f"{name}/{target}"], hashes(name, target)
    changed = [part for part in expected if expected[part] != got[part]]
    assert not changed, (
        f"{name} for {target}: other {', '.join(changed)} than before. If that is meant, run {UPDATE} and say why in "
        f"the commit; {UPDATE} --texts FOLDER writes the texts, for a comparison with those of the version before"
    )


def test_every_network_and_target_is_recorded() -> None:
    assert set(read_expected()) == {f"{name}/{target}" for name in NETWORKS for target in TARGETS}
