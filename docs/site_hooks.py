"""What mkdocs is told beside mkdocs.yml: the README is the first page; what lies outside of docs is named, not linked.

The pages are written for a reader of the repository. There a link may go to a source file; the site has none.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def on_files(files: Any, config: Any) -> Any:
    """The README becomes ``index.md``."""
    from mkdocs.structure.files import File

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=for_site(text, "")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """A page as the site has it."""
    return markdown if page.file.src_uri == "index.md" else for_site(markdown, f"docs/{page.file.src_uri}")


def for_site(text: str, page: str) -> str:
    """A page with its links as the site has them. ``page``: its path in the repository, empty for the README."""
    out, at = [], 0
    for fence in FENCE.finditer(text):
        out += [_links(text[at : fence.start()], page), fence.group()]
        at = fence.end()
    return "".join([*out, _links(text[at:], page)])


def _links(text: str, page: str) -> str:
    here = posixpath.dirname(page)

    def rewritten(found: re.Match[str]) -> str:
        image, words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, _, anchor = target.partition("#")
        place = posixpath.normpath(posixpath.join(here, path))
        if place == "README.md":
            return f"[{words}]({posixpath.relpath('docs/index.md', here)}{'#' * bool(anchor)}{anchor})"
        inside = place.startswith("docs/") and "." in posixpath.basename(place)  # a file
        if not inside:
            return words if words.strip("`") == place else f"{words} (`{place}`)"
        if here:
            return found[0]
        return f"{image}[{words}]({target.removeprefix('docs/')})"

    return LINK.sub(rewritten, text)
