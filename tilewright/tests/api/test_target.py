"""``tilewright.Target`` by description: the same value as options make of the text."""

from __future__ import annotations

import pickle
from dataclasses import asdict, replace

import pytest

import tilewright
from tilewright.codegen.detect_cpu import detect_host, parse_target
from tilewright.core.errors import TargetError
from tilewright.machine import target
from tilewright.tests.api.models import perceptron

TEXT = "llvm -mcpu=x86-64-v3 -num-threads=3"


def test_a_description_is_what_options_take() -> None:
    made = tilewright.Target(TEXT)
    assert made == parse_target(TEXT)
    assert type(made) is target.Target
    assert isinstance(made, tilewright.Target)
    assert isinstance(detect_host(), tilewright.Target)
    assert not isinstance(TEXT, tilewright.Target)
    assert tilewright.Target() == detect_host()
    assert tilewright.Target(made) is made
    assert (made.threads, made.cpu) == (3, "x86-64-v3")
    assert pickle.loads(pickle.dumps(made)) == made
    assert replace(made, threads=1).threads == 1


def test_the_facts_of_a_machine() -> None:
    made = tilewright.Target(TEXT)
    facts = {k: v for k, v in asdict(made).items() if k != "own_costs"}
    assert tilewright.Target(**facts) == made


def test_text_and_target_are_the_same_to_a_build() -> None:
    by_text, by_value = (
        tilewright.compile(perceptron(), target=t, stop_after="codegen", progress=False)
        for t in (TEXT, tilewright.Target(TEXT))
    )
    assert {n: k.trace for n, k in by_text.items()} == {n: k.trace for n, k in by_value.items()}


@pytest.mark.parametrize(
    ("text", "words"),
    [("cuda", "expected 'llvm' first, got 'cuda'"), ("llvm -mcpu=nonsense", "nonsense"), (3, "expected text like")],
)
def test_what_describes_no_cpu_is_refused(text: object, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        tilewright.Target(text)  # type: ignore[arg-type]
