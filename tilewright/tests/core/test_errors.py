"""Messages of errors are one line of a readable length, whatever they quote."""

from __future__ import annotations

import pytest

from tilewright.core.errors import ModelError, one_line


@pytest.mark.parametrize("text", ["d/" * 3000, "\n" * 1999, "\u202e" * 5000, "a\0" * 1000])
def test_a_message_is_one_line_of_at_most_2000_characters(text: str) -> None:
    message = str(ModelError(f"initializer 'w': external data {text} cannot be resolved: File name too long"))
    assert message.isprintable()
    assert len(message) <= 2000
    assert message.startswith("initializer 'w': external data ")
    assert message.endswith(": File name too long")


def test_what_is_short_and_prints_stays() -> None:
    assert one_line("x" * 2000) == "x" * 2000
