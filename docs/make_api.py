#!/usr/bin/env python3
"""Writes docs/reference/api.md: every public name, from the docstrings.

python docs/make_api.py            write the page
python docs/make_api.py --check    exit status 1 if the page is out of date

Public is what ``__all__`` of ``tilewright`` and ``tilewright.rules`` lists. Below that stand the names of other modules
that the pages of the manual import: they are for extending the compiler, and may change with it.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

from docstrings import call_text, described, fields_in, first_sentence, markdown, value_text
from generated import DOCS, GeneratedPage, note

import tilewright
import tilewright.rules
from tilewright.api.session_options import EFFECTS

SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Compile and run": (
        "compile", "CompileOptions", "CompiledModel", "Target",
    ),
    "Tune": ("tune", "TuneOptions", "JSONDatabase", "MemoryDatabase", "UnionDatabase"),
    "Models without Python": ("load", "export_package", "export_loader", "get_include"),
    "Edit graphs": ("load_graph", "new_graph", "merge_graphs", "ModelGraph", "from_ir", "to_ir"),
    "Make other models": ("simplify", "SimplifyOptions", "quantize", "QuantizeOptions"),
    "Write kernels": ("Schedule", "Replay", "ablate", "Trace", "ScheduleRule", "Implementation", "Operator"),
    "ONNX Runtime's names": (
        "InferenceSession", "SessionOptions", "RunOptions", "GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder",
        "OrtValue", "OrtDevice", "IOBinding", "NodeArg", "ModelMetadata", "get_available_providers",
        "get_all_providers", "get_device", "get_version_string", "set_default_logger_severity",
        "set_default_logger_verbosity", "disable_telemetry_events", "enable_telemetry_events",
    ),
    "Errors": (
        "TilewrightError", "ModelError", "UnsupportedError", "InputError", "ResourceError", "TargetError",
        "ScheduleError", "RuleError", "MeasurementError", "CoverageError", "MismatchError",
    ),
}  # fmt: skip
"""Heading -> names of ``tilewright``, in the order of the page."""

MADE_BY: Mapping[str, str] = {
    "CompiledModel": "[`compile`](#compile)",
    "ModelGraph": "[`load_graph`](#load_graph), [`new_graph`](#new_graph) and [`merge_graphs`](#merge_graphs)",
    "NodeArg": "`InferenceSession.get_inputs` and `get_outputs`",
    "ModelMetadata": "`InferenceSession.get_modelmeta`",
    "IOBinding": "`InferenceSession.io_binding`",
    "OrtValue": "its static methods",
    "Match": "the compiler, for the guards and builders of rules",
}
"""Classes that users do not construct, and who does."""

SHOWN: Mapping[str, tuple[str, ...]] = {
    "Target": ("enabled", "costs", "lanes", "with_threads", "key", "legality_key"),
    "CompileOptions": (),
    "TuneOptions": (),
    "SimplifyOptions": (),
    "QuantizeOptions": (),
    "SessionOptions": (
        "add_free_dimension_override_by_name", "add_free_dimension_override_by_denotation", "add_session_config_entry",
        "get_session_config_entry", "register_custom_ops_library",
    ),
}  # fmt: skip
"""Of some classes, the members on the page; the others serve the compiler."""

HOMES: Mapping[str, str] = {"tilewright.rules": "tilewright.graph_ir.rules.base"}
"""Where the constants and aliases of a public module are defined."""

HEAD = f"""\
# Python interface

{note(__file__)}

`import tilewright` costs a few milliseconds; a name loads its part of the package when it is first used. All of it is
typed. Arrays are numpy's. Examples run as tests, behind `import numpy as np` and `import tilewright`, in a directory
with `model.onnx`, whose input `x` is `float32[batch, 32]` and whose output `y` is `float32[batch, 10]`.
"""


def render() -> str:
    """The page."""
    lines = [HEAD]
    for title, names in SECTIONS.items():
        links = ", ".join(f"[`{n}`](#{n.lower()})" for n in names)
        lines += [f"## {title}", "", links, ""]
        for name in names:
            lines += _entry(name, getattr(tilewright, name))
    lines += ["## tilewright.rules", "", described(tilewright.rules), ""]
    for name in tilewright.rules.__all__:
        lines += _entry(name, getattr(tilewright.rules, name))
    lines += [
        "## For extending the compiler", "",
        "Names of other modules that the manual imports, and where.", "",
        "| name | | pages |", "|---|---|---|",
    ]  # fmt: skip
    for (module, name), pages in sorted(imported().items()):
        where = ", ".join(f"[{Path(p).stem}](../{p})" for p in pages)
        lines.append(f"| `{module}.{name}` | {line(module, name)} | {where} |")
    return "\n".join(lines) + "\n"


def fields_of(thing: type) -> tuple[str, dict[str, str]]:
    """The docstring of a class without what it says of its fields, and that, by field: its own and what the bases say.
    A field that nothing is said of has an empty text."""
    if not dataclasses.is_dataclass(thing):
        return inspect.getdoc(thing) or "", {}
    names = [f.name for f in dataclasses.fields(thing) if f.name[0] != "_" and f.init]
    meanings = dict.fromkeys(names, "")
    if thing is tilewright.SessionOptions:
        meanings |= EFFECTS
    for base in reversed(thing.__mro__[1:]):
        if dataclasses.is_dataclass(base):
            meanings |= fields_in(inspect.getdoc(base) or "", names)[1]
    text, own = fields_in(inspect.getdoc(thing) or "", names)
    return text, {n: t for n, t in (meanings | own).items() if n in names}


def public() -> dict[str, Any]:
    """Every public thing, by its dotted name."""
    modules: tuple[ModuleType, ...] = (tilewright, tilewright.rules)
    return {f"{m.__name__}.{n}": getattr(m, n) for m in modules for n in m.__all__ if n != "__version__"}


def members(thing: type) -> dict[str, Any]:
    """The public methods and properties of a class, its own and inherited ones of this package."""
    out: dict[str, Any] = {}
    for base in reversed(thing.__mro__):
        if not base.__module__.startswith("tilewright"):
            continue
        out |= {n: v for n, v in vars(base).items() if not n.startswith("_") and _function(v) is not None}
    return out


@cache
def imported() -> dict[tuple[str, str], list[str]]:
    """(module, name) of what the Python blocks of the manual import from below ``tilewright``, and the pages."""
    out: dict[tuple[str, str], list[str]] = {}
    for page in sorted(DOCS.glob("*.md")):
        code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S))
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tilewright."):
                for alias in node.names:
                    pages = out.setdefault((node.module or "", alias.name), [])
                    if page.name not in pages:
                        pages.append(page.name)
    return {k: v for k, v in out.items() if k[0] != "tilewright.rules"}


def line(module: str, name: str) -> str:
    """What a name is, in a sentence: of a constant, what the module says below it."""
    thing = getattr(import_module(module), name)
    if isinstance(thing, ModuleType) or inspect.isclass(thing) or inspect.isfunction(thing):
        return first_sentence(described(thing)).replace("|", "\\|")
    return first_sentence(said_below(module, name)).replace("|", "\\|")


def said_below(module: str, name: str) -> str:
    """The text that stands below an assignment; the first sentence of the module's if there is none."""
    owner = import_module(module)
    body = ast.parse(inspect.getsource(owner)).body
    for node, behind in pairwise(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            text = behind.value if isinstance(behind, ast.Expr) else None
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                return inspect.cleandoc(text.value)
    return inspect.getdoc(owner) or ""


def _entry(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}"
    yield ""
    if inspect.isclass(thing):
        yield from _class(name, thing)
    elif inspect.isfunction(thing):
        yield from ("```text", call_text(name, thing), "```", "", described(thing), "")
    else:
        yield from (said_below(HOMES["tilewright.rules"], name), "")


def _class(name: str, thing: type) -> Iterator[str]:
    bases = [b.__name__ for b in thing.__bases__ if b.__module__.startswith("tilewright") and b.__name__ != name]
    if issubclass(thing, Exception):
        yield from (f"An error, a kind of `{thing.__bases__[0].__name__}`.", "", described(thing), "")
        return
    if "__init__" in vars(thing) and not dataclasses.is_dataclass(thing) and name not in MADE_BY:
        yield from ("```text", call_text(name, thing.__init__, skip=1), "```", "")
    text, meanings = fields_of(thing)
    prose, start, example = text.partition(">>>")
    yield from (markdown(prose.strip()), "")
    if name in MADE_BY:
        yield from (f"Made by {MADE_BY[name]}.", "")
    if meanings:
        yield from ("| field | type | default | meaning |", "|---|---|---|---|")
        for f in dataclasses.fields(thing):
            if f.name in meanings:
                yield f"| `{f.name}` | `{_cell(str(f.type))}` | {_default(f)} | {_cell(meanings[f.name])} |"
        yield ""
    if example:
        yield from (markdown(start + example), "")
    if bases and bases[0] in tilewright.__all__:
        yield from (f"Also what [`{bases[0]}`](#{bases[0].lower()}) has.", "")
    for member, value in members(thing).items():
        if name in SHOWN and member not in SHOWN[name]:
            continue
        function = _function(value)
        is_property = isinstance(value, property)
        skip = 0 if isinstance(value, staticmethod) else 1
        shown = member if is_property else call_text(member, function, skip)
        text = described(function)
        yield from (f"**`{shown}`**", "", text, "")


def _function(value: Any) -> Any:
    """The function of a method or property, None for what is neither."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, classmethod | staticmethod):
        return value.__func__
    return value if inspect.isfunction(value) else None


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f"`{_cell(value_text(field.default))}`"
    return "made anew" if field.default_factory is not dataclasses.MISSING else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


PAGE = GeneratedPage(__file__, "reference/api.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
