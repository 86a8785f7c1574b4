"""Shapes of inputs, and sizes by name: numbers, names, or free."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping

import onnx

from tilewright.core.arith.expr import IntExpr, as_var, const, var
from tilewright.core.errors import InputError
from tilewright.core.limits import require_rank
from tilewright.core.options import shown
from tilewright.core.suggestions import did_you_mean
from tilewright.edit.operations.lookup import node_text, require_value
from tilewright.frontend.dims import identifier, require_size
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.ir import Shape, TensorType, Value
from tilewright.graph_ir.symbols import graph_with, symbols_in_all, type_symbols

Dim = int | str | None


def dims_of(model: OnnxModel) -> dict[str, str]:
    """The dimensions of the inputs: what the file calls each, to its symbol."""
    symbols: dict[str, None] = {}
    for name in model.graph.inputs:
        symbols |= dict.fromkeys(sorted(type_symbols(model.graph.values[name].type)))
    return {model.dims.get(s) or s: s for s in symbols}


def require_dim(model: OnnxModel, name: object, who: str) -> str:
    """The symbol of the dimension that is called ``name``. Raises InputError."""
    known = dims_of(model)
    if isinstance(name, str) and name in (*known, *known.values()):
        return known.get(name, name)
    if isinstance(name, str) and name in symbols_in_all(model.graph):
        raise InputError(f"{who}: expected a dimension of an input, got '{name}', which the graph computes")
    near = did_you_mean(name, known) if isinstance(name, str) else ""
    listed = ", ".join(known) or "there is none"
    raise InputError(f"{who}: expected a dimension of an input ({listed}), got {shown(name)}{near}")


def identifier_for(text: str, taken: Collection[str]) -> str:
    """A symbol for a dimension called ``text``."""
    base = name = identifier(text)
    n = 0
    while name in taken:
        n += 1
        name = f"{base}_{n}"
    return name


def shape_of(model: OnnxModel, owner: str, dims: object, who: str) -> tuple[OnnxModel, Shape]:
    """A shape from numbers, names and None (a size of its own), and the model that knows its names."""
    if isinstance(dims, str | bytes) or not isinstance(dims, Iterable):
        raise InputError(f"{who}: expected a list of sizes and names, got {shown(dims)}")
    texts = dict(model.dims)
    taken = symbols_in_all(model.graph) | texts.keys()
    out: list[IntExpr] = []
    for axis, d in enumerate(tuple(dims)):
        if isinstance(d, IntExpr):
            out.append(d)
        elif d is None or isinstance(d, str):
            symbol = _symbol(d, texts, taken, f"{owner}_d{axis}")
            texts[symbol] = d or ""
            taken.add(symbol)
            out.append(var(symbol))
        else:
            out.append(const(require_size(who, d)))
    require_rank(who, len(out))
    return dataclasses.replace(model, dims=texts), tuple(out)


def _symbol(text: str | None, texts: dict[str, str], taken: Collection[str], anonymous: str) -> str:
    if not text:
        return identifier_for(anonymous, taken)
    known = next((s for s, t in texts.items() if t == text), None)
    if known is not None:
        return known
    return text if text in taken and texts.get(text, text) in ("", text) else identifier_for(text, taken)


def set_shape(model: OnnxModel, name: str, dims: object) -> OnnxModel:
    """Another shape for an input, or for the result of a foreign node. ``dims``: numbers, names and None (a size of its
    own). Raises InputError for other values, whose shapes follow."""
    graph = model.graph
    who = f"set_shape '{name}'"
    require_value(graph, name, "set_shape")
    old = graph.values[name].type
    maker = next((n for n in graph.nodes if name in n.outputs), None)
    if name not in graph.inputs and (maker is None or not maker.domain):
        made = "a constant" if maker is None else f"computed by {node_text(maker)} as {old}"
        raise InputError(f"{who}: expected an input ({', '.join(graph.inputs)}) or the result of a foreign node, "
                         f"got a value that is {made}")  # fmt: skip
    if not isinstance(old, TensorType):
        raise InputError(f"{who}: expected a tensor, got {old}; set_type gives it an element type too")
    model, shape = shape_of(model, name, dims, who)
    if old.shape is not None and len(old.shape) != len(shape) and name in graph.inputs:
        raise InputError(f"{who}: expected {len(old.shape)} sizes, as of {old}, got {len(shape)}")
    return _declare(model, Value(name, TensorType(old.dtype, shape)))


def set_type(model: OnnxModel, value: Value) -> OnnxModel:
    """What a foreign node gives, or an input is."""
    graph = model.graph
    maker = next((n for n in graph.nodes if value.name in n.outputs), None)
    if value.name not in graph.inputs and (maker is None or not maker.domain):
        made = "a constant" if maker is None else f"computed by {node_text(maker)}"
        raise InputError(
            f"set_type '{value.name}': expected an input or the result of a foreign node, got what is {made}"
        )
    return _declare(model, value)


def _declare(model: OnnxModel, value: Value) -> OnnxModel:
    graph = model.graph.replace(values={**model.graph.values, value.name: value})
    return dataclasses.replace(model, graph=graph, shell=_forgotten(model.shell, value.name))


def _forgotten(shell: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """What the file says without its names for sizes of an input or output, which are others now."""
    if not any(v.name == name for v in (*shell.graph.input, *shell.graph.output)):
        return shell
    new = onnx.ModelProto()
    new.CopyFrom(shell)
    for v in (*new.graph.input, *new.graph.output):
        if v.name == name:
            v.ClearField("type")
    return new


def with_dim_texts(shell: onnx.ModelProto, texts: Mapping[str, str]) -> onnx.ModelProto:
    """What the file says, with other names for sizes of inputs and outputs; "" for none."""
    new = onnx.ModelProto()
    new.CopyFrom(shell)
    for v in (*new.graph.input, *new.graph.output):
        for d in v.type.tensor_type.shape.dim:
            if d.dim_param in texts:
                d.dim_param = texts[d.dim_param]
    return new


def set_dim(model: OnnxModel, name: str, size: Dim) -> OnnxModel:
    """A number, or another dimension, for a dimension of the inputs, wherever it occurs."""
    symbol = require_dim(model, name, "set_dim")
    if isinstance(size, str):
        known = dims_of(model)
        other = known.get(size, size if size in known.values() else "")
        if not other:
            raise InputError(f"set_dim '{name}': expected a number or another dimension ({', '.join(known)}), got "
                             f"'{size}'{did_you_mean(size, known)}; rename_dim gives a new name")  # fmt: skip
        new: IntExpr = var(other)
    else:
        new = const(require_size(f"set_dim '{name}'", size))
    dims = {s: t for s, t in model.dims.items() if s != symbol}
    shell = with_dim_texts(model.shell, {model.dims.get(symbol, symbol): text_of(model, new)})
    return dataclasses.replace(model, graph=graph_with(model.graph, {symbol: new}), dims=dims, shell=shell)


def text_of(model: OnnxModel, size: IntExpr) -> str:
    """What the file calls a size; "" if it has no name."""
    symbol = as_var(size)
    return "" if symbol is None else model.dims.get(symbol, symbol)
