"""Whether HTML is well formed and needs nothing from elsewhere, and its text."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta"}
SELF_CLOSED = {"path", "use", "g"}


class Checker(HTMLParser):
    """Tags are closed in order, and nothing is fetched or run."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.ids: set[str] = set()
        self.links: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object")
        self.look_at(attrs)
        if tag not in VOID:
            self.open.append(tag)

    def look_at(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            assert not name.startswith("on")
            assert name != "src"
            if name in ("href", "xlink:href"):
                assert (value or "").startswith("#")
                self.links.add((value or "")[1:])
            if name == "id":
                self.ids.add(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SELF_CLOSED
        self.look_at(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def checked(page: str) -> str:
    """The text of a well-formed page."""
    c = Checker()
    c.feed(page)
    assert c.open == []
    assert c.links <= c.ids
    for needle in ("http://", "https://", "url(", "@import"):
        assert needle not in page.replace("https://no-color.org", "")
    return "".join(c.text)
