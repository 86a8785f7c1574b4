"""Random graphs that were changed in a known way, renamed and put in another order: the change is all that is found."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.edit.diff import diff_graphs
from tilewright.edit.differences.changes import ConstantChange
from tilewright.graph_ir.verifier import verify_graph
from tilewright.tests.edit.disguises import disguised
from tilewright.tests.edit.random_graphs import MUTATIONS, random_graph


@pytest.mark.parametrize("seed", range(12))
def test_names_and_order_make_no_difference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    same, names = disguised(graph, rng)
    verify_graph(same)
    assert [n.op for n in same.nodes] != [n.op for n in graph.nodes]
    found = diff_graphs(graph, same)
    assert not found, found
    assert found.matched == len(graph.nodes)
    renamed = {r.old: r.new for r in found.all_renamed if r.kind != "dimension"}
    assert renamed.pop("random") == "disguised"
    assert renamed == names


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", MUTATIONS)
def test_one_change_is_found(kind: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    mutation = MUTATIONS[kind](graph, rng)
    changed, names = disguised(mutation.graph, rng)
    found = diff_graphs(graph, changed)
    assert found.count == 1, found
    (only,) = getattr(found, mutation.group)
    name = only.name if isinstance(only, ConstantChange) else only.node.name
    assert name == names.get(mutation.name, mutation.name)
    assert mutation.words in str(only)


@pytest.mark.parametrize("seed", range(12))
def test_changes_in_several_places_are_found_one_by_one(seed: int) -> None:
    """One more or less where graphs have several shortest differences: a node is removed beside another of its kind."""
    rng = np.random.default_rng(seed)
    graph = changed = random_graph(rng, 80)
    for kind in rng.choice(list(MUTATIONS), 4, replace=False):
        changed = MUTATIONS[str(kind)](changed, rng).graph
    found = diff_graphs(graph, disguised(changed, rng)[0])
    assert 3 <= found.count <= 5, found
