"""Pieces of pages: well formed, every text escaped, readable on white and on black, the style of one place."""

from __future__ import annotations

import re

import pytest

from tilewright.core.html.code import highlighted, tokens
from tilewright.core.html.pieces import Bar, code, details, facts, fragment, remark, table, title
from tilewright.core.html.style import FRAGMENT, READABLE, fragment_style, page_style
from tilewright.tests.html_checker import checked

EVIL = "<script>alert(1)</script>&\"'"


def test_every_piece_escapes_its_texts() -> None:
    made = fragment(
        title(EVIL, EVIL), remark(EVIL), table((EVIL, f" {EVIL}", "share"), [(EVIL, EVIL, Bar(0.5))]),
        facts({EVIL: EVIL}), code(EVIL), details(EVIL, EVIL, code(EVIL)), EVIL,
    )  # fmt: skip
    text = checked(made)
    assert text.count("alert(1)") == 14
    assert "<script" not in made


def test_a_table_aligns_and_counts_what_it_leaves_out() -> None:
    made = table(("name", " us"), [(f"k{i}", str(i)) for i in range(503)])
    assert made.count("<tr>") == 1 + 500
    assert '<th>name</th><th class="n">us</th>' in made
    assert '<td>k0</td><td class="n">0</td>' in made
    assert checked(made).endswith("and 3 more rows")


@pytest.mark.parametrize(("share", "width"), [(0.0, "0.0"), (0.255, "25.5"), (7.0, "100.0"), (-1.0, "0.0")])
def test_a_bar_is_as_long_as_its_share(share: float, width: str) -> None:
    assert f'style="width:{width}%"' in table(("", "x"), [("a", Bar(share))])
    assert 'class="bar bad"' in table(("", "x"), [("a", Bar(share, bad=True))])


def test_long_code_is_cut() -> None:
    assert checked(code("a\nb\nc\nd\n", most=2)) == "a\nband 2 more lines"
    assert checked(code("a\nb\n", most=2)) == "a\nb"


def test_tokens_are_the_text() -> None:
    text = 'parallel for i in range(8): x[i] = "in" + float32(1.5)  # <local>\n'
    assert "".join(part for part, _ in tokens(text)) == text
    assert [(p, k) for p, k in tokens(text) if k][:4] == [
        ("parallel", "kind"), ("for", "word"), ("in", "word"), ("range", "word"),
    ]  # fmt: skip
    assert '<span class="kind">parallel</span> <span class="word">for</span>' in highlighted(text)
    assert checked(highlighted(text)) == text


def _luminance(colour: str) -> float:
    """Of the WCAG."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", READABLE)
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_are_readable_on_light_and_dark_pages(colour: str, page: str) -> None:
    darker, lighter = sorted((_luminance(colour), _luminance(page)))
    assert (lighter + 0.05) / (darker + 0.05) >= 3.8


def test_a_fragment_leaves_the_page_around_it_as_it_is() -> None:
    selectors = re.findall(r"([^{}]+)\{", fragment_style())
    assert len(selectors) > 15
    assert all(s.strip().startswith(f".{FRAGMENT}") for group in selectors for s in group.split(", "))


def test_both_styles_are_the_same_rules() -> None:
    rules = re.findall(r"\{([^{}]*)\}", page_style())
    assert rules == re.findall(r"\{([^{}]*)\}", fragment_style())[1:]
