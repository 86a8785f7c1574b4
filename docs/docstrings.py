"""Docstrings as Markdown: the roles and literals of reStructuredText in backquotes, examples and listings in fences."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any


def described(thing: Any) -> str:
    """The docstring of a function, class or property as Markdown; empty if it has none."""
    return markdown(inspect.getdoc(thing) or "")


def call_text(name: str, function: Callable[..., Any], skip: int = 0) -> str:
    """``split(loop: str, factors: Sequence[int | None]) -> tuple[str, ...]``, without its first ``skip`` parameters."""
    signature = inspect.signature(function)
    words, kinds = list[str](), [p.kind for p in signature.parameters.values()]
    for p in list(signature.parameters.values())[skip:]:
        if p.kind is p.KEYWORD_ONLY and p.VAR_POSITIONAL not in kinds and "*" not in words:
            words.append("*")
        words.append(_parameter(p))
    gives = _annotation(signature.return_annotation)
    return f"{name}({', '.join(words)})" + (f" -> {gives}" if gives not in ("", "None") else "")


def _parameter(p: inspect.Parameter) -> str:
    star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
    kind = _annotation(p.annotation)
    text = f"{star}{p.name}" + (f": {kind}" if kind and kind != "Any" else "")
    if p.default is p.empty:
        return text
    return f"{text} = {value_text(p.default)}" if kind else f"{text}={value_text(p.default)}"


def value_text(value: object) -> str:
    """A default as a reader would write it: of a function its name."""
    return str(value.__name__) if inspect.isfunction(value) else repr(value)


def _annotation(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def first_sentence(text: str) -> str:
    """Its first sentence, on one line, with a full stop."""
    flat = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", flat)[0].rstrip(".") + "."


def fields_in(text: str, names: Collection[str]) -> tuple[str, dict[str, str]]:
    """A docstring without what it says of fields, and that, by field: `` ``name``: meaning`` up to the next of them or
    to the end of the paragraph."""
    rest, meanings = list[str](), dict[str, str]()
    start = re.compile(
        r"(?:``(?:" + "|".join(map(re.escape, names)) + r")(?:\([^`]*\))?``(?: \([^)]*\))?(?:,\s| and )?)+:\s"
    )
    for paragraph in text.split("\n\n"):
        found = [] if paragraph.lstrip().startswith((">>>", "    ")) else list(start.finditer(paragraph))
        ends = [*(m.start() for m in found), len(paragraph)][1:]
        for m, end in zip(found, ends, strict=True):
            meaning = " ".join(paragraph[m.end() : end].split()).rstrip(" ;.,")
            meanings |= dict.fromkeys(re.findall(r"``(\w+)", m[0]), inline(meaning))
        before = paragraph[: found[0].start()] if found else paragraph
        rest += [before.rstrip()] if before.strip() else []
    return "\n\n".join(rest), meanings


def inline(text: str) -> str:
    """Roles as the names that they refer to, literals in single backquotes."""
    text = re.sub(r":\w+:`~?([^`]+)`", lambda m: f"`{m[1].removeprefix('.')}`", text)
    return re.sub(r"``([^`]+)``", r"`\1`", text)


def markdown(text: str) -> str:
    """A whole docstring."""
    return "\n\n".join(_part(p) for p in _joined(text.split("\n\n")))


def _joined(paragraphs: list[str]) -> Iterator[str]:
    """Paragraphs, an example with its blank lines as one."""
    for is_example, group in _grouped(paragraphs):
        yield from ["\n\n".join(group)] if is_example else group


def _grouped(paragraphs: list[str]) -> list[tuple[bool, list[str]]]:
    out: list[tuple[bool, list[str]]] = []
    for p in paragraphs:
        is_example = p.lstrip().startswith(">>>")
        if out and out[-1][0] and is_example:
            out[-1][1].append(p)
        else:
            out.append((is_example, [p]))
    return out


def _part(paragraph: str) -> str:
    lines = inspect.cleandoc(paragraph).splitlines()
    if paragraph.lstrip().startswith(">>>"):
        shown = [re.sub(r"\s*# doctest:.*", "", x) for x in lines]
        return "\n".join(("```pycon", *shown, "```"))
    if paragraph.startswith("    "):
        return "\n".join(("```text", *lines, "```"))
    return inline("\n".join(lines).removesuffix("::") + (":" if lines and lines[-1].endswith("::") else ""))
