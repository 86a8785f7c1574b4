"""Sizes of symbolic dimensions to try a model with.

A model rarely says which sizes it takes: images may have to be multiples of 32, a mask as long as past and present
together. What inference found out of the latter (a graph's assumptions) is solved; the rest is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from tilewright.core.arith.expr import IntExpr, as_var
from tilewright.core.assumptions import Ones
from tilewright.core.errors import InputError
from tilewright.core.suggestions import did_you_mean
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Graph
from tilewright.graph_ir.symbols import type_sizes
from tilewright.simplification.options import Sizes

Env: TypeAlias = "dict[str, int]"

_TRIED = ((2, 7, 2), (1, 16, 8), (3, 64, 32), (1, 224, 32), (1, 1, 0), (2, 512, 64))
"""Sizes that are tried: of dimensions that are first everywhere; of the first of the others, and how much larger each
next one is, so that two that are mixed up do not go unnoticed."""
_WANTED = 2


def input_symbols(graph: Graph) -> tuple[str, ...]:
    """Symbols in the types of the inputs, in their order."""
    found = (s for i in graph.inputs for d in type_sizes(graph.values[i].type) for s in sorted(d.free_vars()))
    return tuple(dict.fromkeys(found))


def given_sizes(model: OnnxModel, sizes: Sizes) -> Env:
    """Sizes by symbol from sizes by dimension, as the file or we call it, and shapes by input. Raises InputError."""
    graph = model.graph
    symbols = input_symbols(graph)
    by_name = {**{text: s for s, text in model.dims.items() if text and s in symbols}, **{s: s for s in symbols}}
    env: Env = {}
    for name, given in sizes.items():
        if isinstance(given, int):
            if name not in by_name:
                known = ", ".join(by_name) or "none"
                raise InputError(f"check_sizes: no dimension {name!r}; there are {known}{did_you_mean(name, by_name)}")
            _bind(env, by_name[name], given, f"dimension {name!r}")
            continue
        if name not in graph.inputs:
            known = ", ".join(graph.inputs)
            raise InputError(f"check_sizes: no input {name!r}; there are {known}{did_you_mean(name, graph.inputs)}")
        shape = type_sizes(graph.values[name].type)
        if len(shape) != len(given):
            raise InputError(f"check_sizes: input {name!r} has {len(shape)} dimensions, got {list(given)}")
        for d, n in zip(shape, given, strict=True):
            if (symbol := as_var(d)) is not None:
                _bind(env, symbol, int(n), f"input {name!r}")
            elif d.value() != n:
                raise InputError(f"check_sizes: input {name!r}: expected {d}, got {n}")
    if missing := [s for s in symbols if s not in env]:
        raise InputError(f"check_sizes: expected a size for {', '.join(missing)}; give {missing[0]}=4")
    return env


def _bind(env: Env, symbol: str, size: int, who: str) -> None:
    if env.setdefault(symbol, size) != size:
        raise InputError(f"check_sizes: {who}: {symbol} is {env[symbol]} already, got {size}")


def likely_sizes(graph: Graph) -> Iterator[Env]:
    """Bindings that the model may take, none twice; the empty one where no size is open. After those of the table, each
    of three sizes or more is tried as the sum of the others, as that of a mask for past and present."""
    symbols = input_symbols(graph)
    known = _solved(graph, symbols)
    free = [s for s in symbols if s not in known]
    others = [s for s in free if not _is_leading(graph, s)]
    seen: set[tuple[int, ...]] = set()
    tried = [(row, "") for row in (_TRIED if symbols else _TRIED[:1])]
    tried += [(row, s) for s in others for row in _TRIED[:_WANTED]] if len(others) > _WANTED else []
    for (leading, first, step), whole in tried:
        env = {s: first + step * others.index(s) if s in others else leading for s in free}
        if whole:
            env[whole] = sum(n for s, n in env.items() if s in others and s != whole)
        sizes = {s: known[s].substitute(env).value() if s in known else env[s] for s in symbols}
        found = {s: n for s, n in sizes.items() if n is not None and n >= 0}
        if len(found) == len(symbols) and tuple(found.values()) not in seen:
            seen.add(tuple(found.values()))
            yield found


def _solved(graph: Graph, symbols: Sequence[str]) -> Mapping[str, IntExpr]:
    """Symbols that the graph's assumptions tell from the others."""
    known: dict[str, IntExpr] = {}
    for a in graph.assumptions:
        if a.ones is Ones.APART or not a.symbols() <= set(symbols):
            continue
        left, right = a.left.substitute(known), a.right.substitute(known)
        for one, other in ((left, right), (right, left)):
            symbol = as_var(one)
            if symbol is not None and symbol not in other.free_vars():
                known = {s: e.substitute({symbol: other}) for s, e in known.items()} | {symbol: other}
                break
    return known


def _is_leading(graph: Graph, symbol: str) -> bool:
    """True for a size that is the first of each input that has it, and not the only one of all of them: a batch."""
    places = [
        (k, len(sizes))
        for i in graph.inputs
        if (sizes := type_sizes(graph.values[i].type))
        for k, d in enumerate(sizes)
        if symbol in d.free_vars()
    ]
    return all(k == 0 for k, _ in places) and any(n > 1 for _, n in places)
