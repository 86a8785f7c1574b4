"""What the fuzzers of model files do to a file: changes of its bytes, and changes of the message in it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Rng = np.random.Generator
Makers = Mapping[str, Callable[[], onnx.ModelProto]]

_HUGE = (2**31, 2**33, 2**40, 2**40 + 1, 2**62, 2**63 - 1, -1, -(2**62), 0)
_SMALL = (-3, -2, -1, 0, 1, 2, 3, 5, 8, 17, 100)
_ODD_FLOATS = (np.nan, np.inf, -np.inf, 1e30, -1e30, 3e38, 1e-40, 0.0, -0.0, -1.0, 1e9, 0.3)
_ODD_NAMES = ("a\nb", "x" * 5000, "", "\0", "\u202e\u2603", '"]', "../up", "%s{0}", "a b")
_OPERATORS = (
    "Conv", "Reshape", "Loop", "If", "Scan", "Constant", "Softmax", "NoSuch", "", "Resize", "Einsum", "SequenceMap",
    "Split", "TopK", "LSTM", "Expand", "Range", "Tile", "Attention", "Pad", "Add", "MatMul", "Concat", "Gather",
    "Slice", "Transpose", "ConstantOfShape", "OneHot", "MaxPool", "ReduceSum", "CumSum", "Sum", "Squeeze", "Unsqueeze",
    "NonZero", "Cast", "Shape",
)  # fmt: skip
EXTERNAL_FILES = (
    "weights.bin", "pipe", "folder", "missing.bin", "w" * 300, "folder/" + "d/" * 3000, "a\nb", "", "/etc/passwd",
)  # fmt: skip
"""Locations of external data; the fuzzer that writes files makes the first three."""


# -- mutations of bytes --------------------------------------------------------------------------------------------
def truncate(data: bytes, rng: Rng) -> bytes:
    return data[: int(rng.integers(0, len(data)))]


def flip_bits(data: bytes, rng: Rng) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        out[int(rng.integers(0, len(out)))] ^= 1 << int(rng.integers(0, 8))
    return bytes(out)


def splice(data: bytes, rng: Rng) -> bytes:
    """Copy a piece of the file somewhere else, over or between what is there."""
    a, b = sorted(int(v) for v in rng.integers(0, len(data), 2))
    at = int(rng.integers(0, len(data)))
    keep = at if rng.random() < 0.5 else min(len(data), at + b - a)
    return data[:at] + data[a : min(b, a + 64)] + data[keep:]


# -- finding things in a message -----------------------------------------------------------------------------------
def _graphs(model: onnx.ModelProto) -> list[onnx.GraphProto]:
    found = [model.graph]
    for g in found:
        found.extend(a.g for n in g.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return found


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [n for g in _graphs(model) for n in g.node] + [n for f in model.functions for n in f.node]


def _attributes(model: onnx.ModelProto) -> list[onnx.AttributeProto]:
    return [a for n in _nodes(model) for a in n.attribute]


def _pick(items: Sequence[Any], rng: Rng) -> Any:
    """One of the items; ValueError, which ends the mutation, if there is none."""
    return items[int(rng.integers(0, len(items)))]


def _filled(model: onnx.ModelProto, kinds: str) -> list[onnx.TensorProto]:
    """Initializers with elements of one of the numpy ``kinds``."""
    return [
        t for g in _graphs(model) for t in g.initializer
        if t.raw_data and t.data_type in _NUMPY and _NUMPY[t.data_type].kind in kinds
    ]  # fmt: skip


_NUMPY = {
    TensorProto.FLOAT: np.dtype(np.float32), TensorProto.INT64: np.dtype(np.int64),
    TensorProto.BOOL: np.dtype(np.bool_), TensorProto.INT32: np.dtype(np.int32),
    TensorProto.UINT8: np.dtype(np.uint8), TensorProto.DOUBLE: np.dtype(np.float64),
}  # fmt: skip


def _set_element(tensor: onnx.TensorProto, value: float, rng: Rng) -> None:
    """One element, or all of them."""
    dtype = _NUMPY[tensor.data_type]
    array = np.frombuffer(tensor.raw_data, dtype).copy()
    with np.errstate(all="ignore"):
        array[int(rng.integers(0, array.size)) if rng.random() < 0.6 else slice(None)] = np.array(value).astype(dtype)
    tensor.raw_data = array.tobytes()


# -- mutations of messages: wiring ---------------------------------------------------------------------------------
def cyclic_edge(model: onnx.ModelProto, rng: Rng) -> None:
    nodes = [n for n in _nodes(model) if n.input]
    target, source = _pick(nodes, rng), _pick(nodes, rng)
    target.input[int(rng.integers(0, len(target.input)))] = source.output[0]


def rewire(model: onnx.ModelProto, rng: Rng) -> None:
    nodes = _nodes(model)
    names = [v for n in nodes for v in (*n.input, *n.output)] + ["", "nowhere"]
    n = _pick(nodes, rng)
    side = n.input if rng.random() < 0.6 else n.output
    side[int(rng.integers(0, len(side)))] = _pick(names, rng)


def change_operator(model: onnx.ModelProto, rng: Rng) -> None:
    _pick(_nodes(model), rng).op_type = _pick(_OPERATORS, rng)


def repeat_or_drop(model: onnx.ModelProto, rng: Rng) -> None:
    g = _pick(_graphs(model), rng)
    parts: list[Any] = [p for p in (g.node, g.input, g.output, g.initializer, model.opset_import, model.functions) if p]
    part = _pick(parts, rng)
    k = int(rng.integers(0, len(part)))
    if rng.random() < 0.5:
        del part[k]
    else:
        part.add().CopyFrom(part[k])


def drop_initializer(model: onnx.ModelProto, rng: Rng) -> None:
    del model.graph.initializer[int(rng.integers(0, len(model.graph.initializer)))]


def initializer_to_input(model: onnx.ModelProto, rng: Rng) -> None:
    """A constant becomes an input: what was known at build time is known at the call only."""
    k = int(rng.integers(0, len(model.graph.initializer)))
    t = model.graph.initializer[k]
    model.graph.input.append(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)))
    del model.graph.initializer[k]


def rename(model: onnx.ModelProto, rng: Rng) -> None:
    """An odd name for a value wherever it is used, for a node, an attribute, a dimension or the graph."""
    name = _pick(_ODD_NAMES, rng)
    match int(rng.integers(0, 5)):
        case 0:
            old = _pick([v for n in _nodes(model) for v in (*n.input, *n.output)], rng)
            for n in _nodes(model):
                n.input[:] = [name if v == old else v for v in n.input]
                n.output[:] = [name if v == old else v for v in n.output]
            for v in (*model.graph.input, *model.graph.output, *model.graph.initializer):
                v.name = name if v.name == old else v.name
        case 1:
            _pick(_nodes(model), rng).name = name
        case 2:
            dims = _pick(model.graph.input, rng).type.tensor_type.shape.dim
            _pick(dims, rng).dim_param = name
        case 3:
            _pick(_attributes(model), rng).name = name
        case _:
            model.graph.name = name


# -- mutations of messages: numbers --------------------------------------------------------------------------------
def huge_dims(model: onnx.ModelProto, rng: Rng) -> None:
    if model.graph.initializer and rng.random() < 0.5:
        t = _pick(model.graph.initializer, rng)
        t.dims[0] = _pick(_HUGE, rng)
    else:
        _pick(_pick(model.graph.input, rng).type.tensor_type.shape.dim, rng).dim_value = _pick(_HUGE, rng)


def change_dims(model: onnx.ModelProto, rng: Rng) -> None:
    """Another size of an input, a symbolic one, or another rank."""
    shape = _pick(model.graph.input, rng).type.tensor_type.shape
    match int(rng.integers(0, 4)):
        case 0:
            _pick(shape.dim, rng).dim_value = _pick(_SMALL, rng)
        case 1:
            _pick(shape.dim, rng).dim_param = _pick(("n", "m", "batch", "x y"), rng)
        case 2:
            for _ in range(_pick((1, 2, 62, 70), rng)):
                shape.dim.add().dim_value = 1
        case _:
            del shape.dim[int(rng.integers(0, len(shape.dim)))]


def many_axes(model: onnx.ModelProto, rng: Rng) -> None:
    """A constant of a rank that numpy does not have, or nearly."""
    t = _pick(model.graph.initializer, rng)
    t.dims[:] = [1] * _pick((60, 65, 500), rng) + list(t.dims)


def huge_constant(model: onnx.ModelProto, rng: Rng) -> None:
    """Absurd numbers where shapes are computed from."""
    _set_element(_pick(_filled(model, "i"), rng), _pick(_HUGE, rng), rng)


def small_constant(model: onnx.ModelProto, rng: Rng) -> None:
    """Another plausible number where shapes, axes and indices are."""
    _set_element(_pick(_filled(model, "iub"), rng), _pick(_SMALL, rng), rng)


def odd_float(model: onnx.ModelProto, rng: Rng) -> None:
    """NaN, infinities, and numbers that overflow or underflow in a constant or an attribute."""
    value = _pick(_ODD_FLOATS, rng)
    floats = [a for a in _attributes(model) if a.type in (onnx.AttributeProto.FLOAT, onnx.AttributeProto.FLOATS)]
    if floats and rng.random() < 0.5:
        a = _pick(floats, rng)
        a.f = value
        a.floats[:] = [value if rng.random() < 0.6 else f for f in a.floats]
    else:
        _set_element(_pick(_filled(model, "f"), rng), value, rng)


def change_attribute(model: onnx.ModelProto, rng: Rng) -> None:
    a = _pick(_attributes(model), rng)
    match int(rng.integers(0, 6)):
        case 0:
            a.type = int(rng.integers(0, 15))
        case 1:
            a.name = _pick(("axis", "pads", "to", "nothing", ""), rng)
        case 2:
            a.i = _pick(_HUGE, rng)
        case 3:
            a.i = _pick(_SMALL, rng)
        case 4:
            words = [a for a in _attributes(model) if a.type == onnx.AttributeProto.STRING]
            _pick(words, rng).s = _pick((b"nearest", b"SAME_UPPER", b"none", b"", b"\xff", b"x" * 10**5, b"a\nb"), rng)
        case _:
            a.ints[int(rng.integers(0, len(a.ints)))] = _pick(_HUGE if rng.random() < 0.5 else _SMALL, rng)


def add_attribute(model: onnx.ModelProto, rng: Rng) -> None:
    """An attribute that operators of this family have."""
    name, value = _pick((
        ("axis", -1), ("keepdims", 0), ("ceil_mode", 1), ("auto_pad", "SAME_LOWER"), ("pads", [3, 3, 3, 3]),
        ("group", 3), ("dilations", [2**31, 1]), ("strides", [2**40, 1]), ("kernel_shape", [2**31, 1]),
        ("epsilon", float("nan")), ("mode", "nearest"), ("output_shape", [2**20, 2**20]),
        ("blocksize", 2**31), ("allowzero", 1), ("to", 1),
    ), rng)  # fmt: skip
    n = _pick(_nodes(model), rng)
    kept = [a for a in n.attribute if a.name != name]
    del n.attribute[:]
    n.attribute.extend([*kept, helper.make_attribute(name, value)])


def swap_type(model: onnx.ModelProto, rng: Rng) -> None:
    code = int(rng.integers(0, 30))
    if model.graph.initializer and rng.random() < 0.5:
        _pick(model.graph.initializer, rng).data_type = code
    else:
        _pick(model.graph.input, rng).type.tensor_type.elem_type = code


def cut_payload(model: onnx.ModelProto, rng: Rng) -> None:
    t = _pick([t for t in model.graph.initializer if t.raw_data], rng)
    t.raw_data = t.raw_data[: int(rng.integers(0, len(t.raw_data)))]


def change_version(model: onnx.ModelProto, rng: Rng) -> None:
    if rng.random() < 0.2:
        model.ir_version = _pick((0, 1, 3, 99, 2**40), rng)
    else:
        _pick(model.opset_import, rng).version = int(rng.integers(-1, 40))


# -- mutations of messages: size and depth -------------------------------------------------------------------------
def many_operands(model: onnx.ModelProto, rng: Rng) -> None:
    """The inputs, or outputs, of a node many times over."""
    n = _pick(_nodes(model), rng)
    times = _pick((3, 40, 700), rng)
    if rng.random() < 0.7:
        n.input.extend(list(n.input) * times)
    else:
        n.output.extend(f"{o}_{k}" for o in list(n.output) for k in range(times))


def doubling_functions(model: onnx.ModelProto, rng: Rng) -> None:
    """Functions that each call the one below twice, in the place of a node."""
    levels = _pick((2, 5, 25, 40), rng)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("double", 1)]
    for k in range(levels):
        op, domain = ("Neg", "") if k == 0 else (f"f{k - 1}", "double")
        twice = [helper.make_node(op, ["a"], ["b"], domain=domain), helper.make_node(op, ["b"], ["c"], domain=domain)]
        model.functions.append(helper.make_function("double", f"f{k}", ["a"], ["c"], twice, opsets))
    model.opset_import.append(helper.make_opsetid("double", 1))
    n = _pick([n for n in model.graph.node if n.input], rng)
    n.op_type, n.domain = f"f{levels - 1}", "double"
    del n.attribute[:], n.input[1:], n.output[1:]


def nested_branches(model: onnx.ModelProto, rng: Rng) -> None:
    """Subgraphs in subgraphs, in the place of a node."""
    n = _pick([n for n in model.graph.node if n.input], rng)
    inner = helper.make_node("Neg", [n.input[0]], ["deep"])
    for _ in range(_pick((1, 4, 20, 30), rng)):
        plain = helper.make_node("Identity", [n.input[0]], ["deep"])
        branches = {
            key: helper.make_graph([body], "g", [], [helper.make_tensor_value_info("deep", TensorProto.FLOAT, None)])
            for key, body in (("then_branch", inner), ("else_branch", plain))
        }
        inner = helper.make_node("If", ["is_deep"], ["deep"], **branches)
    inner.output[0] = n.output[0]
    n.CopyFrom(inner)
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "is_deep"))


def external_data(model: onnx.ModelProto, rng: Rng) -> None:
    """A constant in another file, or other numbers of one that is."""
    t = _pick(model.graph.initializer, rng)
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    entries = {"location": "weights.bin", **{e.key: e.value for e in t.external_data}}
    match int(rng.integers(0, 3)):
        case 0:
            entries["location"] = _pick(EXTERNAL_FILES, rng)
        case 1:
            entries[_pick(("offset", "length"), rng)] = str(_pick(_HUGE, rng))
        case _:
            entries["offset"] = str(_pick((0, 1, 3, 64, 1000), rng))
    del t.external_data[:]
    for key, value in entries.items():
        t.external_data.add(key=key, value=value)


BYTES: tuple[Callable[[bytes, Rng], bytes], ...] = (truncate, flip_bits, flip_bits, flip_bits, flip_bits, splice)
MESSAGES: tuple[Callable[[onnx.ModelProto, Rng], None], ...] = (
    cyclic_edge, rewire, change_operator, repeat_or_drop, drop_initializer, initializer_to_input, rename, huge_dims,
    change_dims, change_dims, many_axes, huge_constant, small_constant, small_constant, odd_float, odd_float,
    change_attribute, change_attribute, add_attribute, swap_type, cut_payload, change_version, many_operands,
    doubling_functions, nested_branches, external_data,
)  # fmt: skip


def mutated(makers: Makers, seed: int, case: int) -> tuple[str, bytes]:
    """Case number ``case`` of a seed: what was done to which model, and the file."""
    rng = np.random.default_rng((seed, case))
    name = sorted(makers)[int(rng.integers(0, len(makers)))]
    model = makers[name]()
    steps = [name]
    if rng.random() < 0.3:
        change = BYTES[int(rng.integers(0, len(BYTES)))]
        return f"{name} {change.__name__}", change(model.SerializeToString(), rng)
    for _ in range(int(rng.choice((1, 2, 3), p=(0.6, 0.3, 0.1)))):
        mutate = MESSAGES[int(rng.integers(0, len(MESSAGES)))]
        steps.append(mutate.__name__)
        with contextlib.suppress(ValueError, IndexError):  # nothing of that kind is left, or protobuf refuses the value
            mutate(model, rng)
    return " ".join(steps), model.SerializeToString()
