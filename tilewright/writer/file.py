"""A graph as an ONNX file, weights written one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx

from tilewright.core.errors import InputError
from tilewright.core.io.files import begins_with, ends_with, replacing, require_replaceable
from tilewright.frontend.keep import OnnxModel
from tilewright.frontend.model_file.wire import encode_varint
from tilewright.graph_ir.ir import Constant, Graph
from tilewright.writer.model import MARK, MARK_KEY, write
from tilewright.writer.tensors import raw_bytes, raw_size, tensor_header, tensor_message

MOST_IN_ONE_FILE = (2 << 30) - (1 << 20)
"""Bytes of a message that every reader takes."""
SMALL = 1024
"""Bytes up to which a tensor stays in the message beside external data."""
_ALIGNED = 4096

_HEAD = b"tensors of an ONNX model, written by tilewright\n"
"""How a file of external data begins; the first tensor stands behind it, at a page."""

_MARK = onnx.ModelProto(metadata_props=[onnx.StringStringEntryProto(key=MARK_KEY, value=MARK)]).SerializeToString()
"""Metadata at the end of a model that we write; a message that follows another one is part of it."""

ONNX_FILE = ends_with("a model that tilewright wrote", _MARK)
DATA_FILE = begins_with("a file of tensors that tilewright wrote", _HEAD)


def save_onnx(
    model: OnnxModel | Graph, path: str | Path, opset: int | None = None, external_data: bool | None = None,
    value_infos: bool = True, as_functions: bool = False,
) -> None:  # fmt: skip
    """Write a graph as an ONNX file.

    ``opset``, ``value_infos``, ``as_functions``: see :func:`to_onnx`. ``external_data``: weights in a file beside it,
    ``PATH.data``; None: only where the model is larger than the 2 GB that a message may have. Weights are read and
    written one after the other. Raises what :func:`to_onnx` raises; InputError for a model too large for one file if
    that was asked for, and where something else than a model that was written here is at ``path``.
    """
    place = Path(path)
    held: dict[str, Constant] = {}

    def header(constant: Constant, name: str) -> onnx.TensorProto:
        if raw_size(constant) <= SMALL:
            return tensor_message(constant, name)
        held[name] = constant
        return tensor_header(constant, name)

    message = write(model, opset, value_infos, header, as_functions)
    size = message.ByteSize() + sum(raw_size(c) + 16 for c in held.values())
    if external_data is None:
        external_data = size > MOST_IN_ONE_FILE
    if external_data:
        _write_beside(message, place, held)
    elif size > MOST_IN_ONE_FILE:
        raise InputError(f"{path}: {size} bytes are more than one ONNX file can have; expected external_data=True")
    else:
        _write_inside(message, place, held)


def _write_beside(message: onnx.ModelProto, place: Path, held: dict[str, Constant]) -> None:
    data = place.with_name(place.name + ".data")
    require_replaceable(place, ONNX_FILE)
    with replacing(data, DATA_FILE) as f:
        at = f.write(_HEAD)
        for t in _initializers(message.graph):
            if (c := held.get(t.name)) is None:
                continue
            at += f.write(b"\0" * (-at % _ALIGNED))
            length = f.write(raw_bytes(c))
            t.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", data.name), ("offset", at), ("length", length)):
                t.external_data.add(key=key, value=str(value))
            at += length
    with replacing(place, ONNX_FILE) as f:
        f.write(message.SerializeToString(deterministic=True))
        f.write(_MARK)


def _initializers(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The constants of a graph and its subgraphs."""
    yield from graph.initializer
    for n in graph.node:
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from _initializers(a.g)


def _write_inside(message: onnx.ModelProto, place: Path, held: dict[str, Constant]) -> None:
    """The message with the elements of ``held``, which are in memory one after the other."""
    own = {t.name for t in message.graph.initializer}
    for t in _initializers(message.graph):
        if t.name in held and t.name not in own:
            t.raw_data = bytes(raw_bytes(held[t.name]))
    tensors = [(t.SerializeToString(), held.get(t.name)) for t in message.graph.initializer]
    message.graph.ClearField("initializer")
    graph = message.graph.SerializeToString(deterministic=True)
    message.ClearField("graph")
    sizes = [len(head) + (0 if c is None else len(_raw_field(c)) + raw_size(c)) for head, c in tensors]
    total = len(graph) + sum(len(_field(5, n)) + n for n in sizes)
    with replacing(place, ONNX_FILE) as f:
        f.write(message.SerializeToString(deterministic=True))
        f.write(_field(7, total))
        f.write(graph)
        for (head, c), n in zip(tensors, sizes, strict=True):
            f.write(_field(5, n))
            f.write(head)
            if c is not None:
                f.write(_raw_field(c))
                f.write(raw_bytes(c))
        f.write(_MARK)


def _raw_field(c: Constant) -> bytes:
    return _field(9, raw_size(c))


def _field(number: int, length: int) -> bytes:
    """The beginning of a field of ``length`` bytes."""
    return encode_varint(number << 3 | 2) + encode_varint(length)
