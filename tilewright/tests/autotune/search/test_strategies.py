"""Strategies: nothing proposed twice, the same for the same seed, the whole of a small space, better than chance."""

import math

import numpy as np
import pytest

from tilewright.autotune.search.strategies import STRATEGIES
from tilewright.autotune.search.strategies.base import difference, pick_diverse
from tilewright.core.errors import InputError
from tilewright.tests.autotune.search.synthetic import SyntheticSpace, seconds, synthetic_result


def noisy_score(candidates):
    """What a fair model says: log time with an error that depends on the candidate alone."""
    out = [-math.log(seconds(c)) + 0.3 * math.sin(int(c.key[:6], 16)) for c in candidates]
    return np.array(out, np.float64)


def search(name, trials, seed=0, space=None, batch=8, score=noisy_score, **params):
    """The keys proposed, and the best time found."""
    space = SyntheticSpace() if space is None else space
    strategy = STRATEGIES[name](space, score, np.random.default_rng(seed), params)
    asked, best = [space.default().key], math.inf
    strategy.observe([(space.default(), synthetic_result(space.default()))])
    while len(asked) < trials:
        proposed = strategy.propose(min(batch, trials - len(asked)))
        if not proposed:
            break
        asked += [c.key for c in proposed]
        strategy.observe([(c, synthetic_result(c)) for c in proposed])
        best = min([best, *(seconds(c) for c in proposed)])
    return asked, best


@pytest.mark.parametrize("name", STRATEGIES)
def test_nothing_twice_and_the_same_for_the_same_seed(name):
    asked, _ = search(name, 60)
    assert len(asked) == 60
    assert len(set(asked)) == 60
    assert search(name, 60)[0] == asked
    if name != "grid":
        assert search(name, 60, seed=1)[0] != asked


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_small_space_is_exhausted(name):
    space = SyntheticSpace((3, 3, 2))
    legal = {c.key for c in space.enumerate(100)}
    asked, _ = search(name, 200, space=space)
    assert set(asked) == legal
    assert len(asked) == len(legal)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_space_of_one_point_ends_at_once(name):
    asked, _ = search(name, 10, space=SyntheticSpace((1,)))
    assert len(asked) == 1


@pytest.mark.parametrize("name", ["annealing", "annealing-measured", "evolutionary"])
def test_better_than_random(name):
    trials = 72
    chance = np.median([search("random", trials, seed)[1] for seed in range(7)])
    found = np.median([search(name, trials, seed)[1] for seed in range(7)])
    assert found < chance


def test_annealing_needs_half_the_trials_of_random():
    half = np.median([search("annealing", 40, seed)[1] for seed in range(7)])
    chance = np.median([search("random", 80, seed)[1] for seed in range(7)])
    assert half <= chance


def test_annealing_survives_a_useless_model():
    def useless(candidates):
        return np.array([math.sin(int(c.key[:6], 16)) for c in candidates], np.float64)

    trials = 72
    chance = np.median([search("random", trials, seed)[1] for seed in range(5)])
    assert np.median([search("annealing", trials, seed, score=useless)[1] for seed in range(5)]) < 1.5 * chance


def test_annealing_makes_few_candidates_for_a_batch():
    space = SyntheticSpace()
    search("annealing", 64, space=space)
    assert space.made < 8 * 80, "each costs milliseconds of scheduling"


def test_failures_are_no_parents():
    space = SyntheticSpace()
    for name in ("annealing", "annealing-measured", "evolutionary"):
        strategy = STRATEGIES[name](space, noisy_score, np.random.default_rng(0), {})
        wrong = space.at((7, 0, 0, 0, 0))
        strategy.observe([(wrong, synthetic_result(wrong))])
        assert wrong.key not in {c.key for c in strategy.propose(16)}


def test_parameters_are_checked():
    space, rng = SyntheticSpace(), np.random.default_rng(0)
    with pytest.raises(InputError, match=r"strategy annealing: expected parameters among chains, .*, got chain"):
        STRATEGIES["annealing"](space, noisy_score, rng, {"chain": 3})
    with pytest.raises(InputError, match="strategy annealing: expected a cost model, got none"):
        STRATEGIES["annealing"](space, None, rng, {})
    for name in STRATEGIES:
        if name != "annealing":
            assert STRATEGIES[name](space, None, np.random.default_rng(0), {}).propose(4)


def test_picking_prefers_different_candidates_among_equals():
    space = SyntheticSpace(refuse=False)
    found = [space.at((0, 0, 0, 0, v)) for v in range(4)] + [space.at((5, 5, 5, 3, 3))]
    picked = pick_diverse(found, np.zeros(5), 2, 0.5)
    assert picked == [found[0], found[4]]
    assert difference(found[0], found[4]) == 1.0
    assert pick_diverse(found, np.array([0.0, 9.0, 1.0, 2.0, 3.0]), 1, 0.5) == [found[1]]
    assert pick_diverse([], np.zeros(0), 3, 0.5) == []
