"""Normalizations of channels and of groups of channels, as exporters write them: by means over all axes behind the
channels, or as an InstanceNormalization of a view in which each group is one channel.

A mean over the last axes may be the norm of a row as well (``rules/norms.py``). What reads it tells: parameters that
have a number for each channel, or the Reshape of a group back to its channels.
"""

from __future__ import annotations

import numpy as np

from tilewright.core import dtypes
from tilewright.graph_ir.ir import Attribute, Node
from tilewright.graph_ir.passes.base import Exactness
from tilewright.graph_ir.rules.base import NOT_HERE, C, Match, P, Rule, tensor_shape
from tilewright.graph_ir.rules.norms import NORMALIZED, first_axis

_NORMS = ("InstanceNormalization", "GroupNormalization")


def _is_of_channels(m: Match) -> str | None:
    """Guard: the means run over all axes behind the channels, and what is around the norm does not take it for one of
    rows."""
    shape = m.shape("x")
    if shape is None or len(shape) < 3 or first_axis(m) != 2 or not _reads_as_channels(m):
        return NOT_HERE
    if m.dtype("x") == dtypes.float64:
        return "onnxruntime has no InstanceNormalization of float64"
    return None if shape[1].value() is not None else f"the number of channels, {shape[1]}, is not a number"


def _reads_as_channels(m: Match) -> bool:
    """True if readers have parameters for channels, or, for three axes or more behind the batch, none for rows.

    Three dims are a batch of sequences more often than of channels: then a norm of rows is not found where it could
    be one.
    """
    shape, readers = m.shape("x") or (), m.editor.users(m.output)
    if readers and all(n.op == "Reshape" for n in readers) and _is_of_grouped_channels(m):
        return True
    parameters = [p for n in readers if (p := _parameter(m, n)) is not None]
    if len(shape) > 3:
        return not any(_has_extent_behind_channels(p, len(shape)) for p in parameters)
    return shape[-1].value() is None or any(_is_by_channel(p, len(shape)) for p in parameters)


def _is_of_grouped_channels(m: Match) -> bool:
    """True if ``x`` is a view that has groups of channels in the place of the channels."""
    view = m.editor.producer(m["x"])
    if view is None or view.op != "Reshape":
        return False
    shape, whole = m.shape("x") or (), tensor_shape(m.editor.value(view.inputs[0])) or ()
    if len(whole) < 2 or whole[0] != shape[0]:
        return False
    channels, groups = whole[1].value(), shape[1].value()
    return bool(channels and groups and channels % groups == 0)


def _parameter(m: Match, reader: Node) -> tuple[int, ...] | None:
    """The shape of the constant that a Mul or Add combines the norm with."""
    if reader.op not in ("Mul", "Add"):
        return None
    constants = [c for i in reader.inputs if (c := m.editor.constant(i)) is not None]
    return constants[0].shape if constants else None


def _aligned(shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return (1,) * (rank - len(shape)) + shape


def _has_extent_behind_channels(parameter: tuple[int, ...], rank: int) -> bool:
    return any(d != 1 for d in _aligned(parameter, rank)[2:])


def _is_by_channel(parameter: tuple[int, ...], rank: int) -> bool:
    """True for a parameter that differs between channels, and along no other axis."""
    return [k for k, d in enumerate(_aligned(parameter, rank)) if d != 1] == [1]


def _instance_norm(m: Match) -> str:
    channels = (m.shape("x") or ())[1].const
    ones, zeros = m.const(np.ones(channels), like="x"), m.const(np.zeros(channels), like="x")
    return m.op("InstanceNormalization", m["x"], ones, zeros, epsilon=float(m.array("eps").reshape(-1)[0]))


def _groups(m: Match) -> tuple[int, int] | str:
    """The numbers of channels and of groups of a view that has groups of whole channels in the place of the channels,
    sample by sample. A reason, or NOT_HERE, if it is another one."""
    x, parts = m.shape("x"), tensor_shape(m.editor.value(m.node("parts").outputs[0]))
    if x is None or parts is None or len(x) < 2 or m.out_shape is None or m.node("norm").attr("data_layout"):
        return NOT_HERE
    if m.out_shape != x:
        return "the norm is not seen as its input again"
    if parts[0] != x[0]:
        return f"the view has a batch of {parts[0]}, not {x[0]}"
    channels, groups = x[1].value(), parts[1].value()
    if channels is None or groups is None:
        return f"{x[1]} channels in {parts[1]} groups are not numbers"
    return (channels, groups) if groups and channels % groups == 0 else f"{channels} channels in {groups} groups"


def _is_each_channel(m: Match) -> bool:
    """True if the guard of the view may go ahead, and each channel is a group."""
    found = _groups(m)
    return not isinstance(found, str) and found[0] == found[1] and len(m.shape("x") or ()) > 2


def _of_groups(m: Match) -> str | None:
    found = _groups(m)
    if isinstance(found, str):
        return found
    return NOT_HERE if _is_each_channel(m) else None


def _group_norm(m: Match) -> str:
    x, groups = m.shape("x") or (), m.constant("s").size
    scale, bias = (m.const(np.repeat(m.array(key), x[1].const // groups), like=key) for key in ("s", "b"))
    attrs: dict[str, Attribute] = {k: v for k, v in m.node("norm").attrs if k == "epsilon"}
    return m.op("GroupNormalization", m["x"], scale, bias, num_groups=groups, **attrs)


def _by_channel(m: Match) -> str | None:
    """Guard: ``c`` has a number for each channel, or one for all."""
    x = m.shape("x")
    if x is None or m.out_shape != x or m.node("norm").attr("data_layout"):
        return NOT_HERE
    c = m.constant("c").shape
    if m.constant("c").size != 1 and not _is_by_channel(c, len(x)):
        return NOT_HERE
    return None


def _with_scale(m: Match) -> str:
    return _rebuilt(m, *(m.const(m.array(key) * m.array("c").reshape(-1), like="s") for key in ("s", "b")))


def _with_bias(m: Match) -> str:
    return _rebuilt(m, m["s"], m.const(m.array("b") + m.array("c").reshape(-1), like="s"))


def _rebuilt(m: Match, scale: str, bias: str) -> str:
    return m.op(m.node("norm").op, m["x"], scale, bias, **dict(m.node("norm").attrs))


_PARTS = P("Reshape", "x", rest=True, at="parts")
_OF_VIEW = P("Reshape", P("InstanceNormalization", _PARTS, C("s"), C("b"), at="norm"), rest=True)
_AFFINE = P(_NORMS, "x", C("s"), C("b"), at="norm")

RULES: tuple[Rule, ...] = (
    Rule(
        "instance_norm",
        "(x - mean(x)) / sqrt(var + eps) --> InstanceNormalization(x, ones, zeros), means over all axes behind the"
        " channels, where it is read by channel",
        NORMALIZED,
        _instance_norm,
        _is_of_channels,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "group_norm",
        "Reshape(InstanceNormalization(Reshape(x, [n, groups, -1]), s, b), shape of x) --> GroupNormalization(x, s, b),"
        " s and b repeated for the channels of a group",
        _OF_VIEW,
        _group_norm,
        _of_groups,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "instance_norm_of_view",
        "Reshape(InstanceNormalization(Reshape(x), s, b), shape of x) --> InstanceNormalization(x, s, b), a view of"
        " the axes behind the channels",
        _OF_VIEW,
        lambda m: m.op("InstanceNormalization", m["x"], m["s"], m["b"], **dict(m.node("norm").attrs)),
        lambda m: None if _is_each_channel(m) else NOT_HERE,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "channel_norm_scale",
        "Mul(InstanceNormalization(x, s, b), c) --> InstanceNormalization(x, s*c, b*c), c by channel, and"
        " GroupNormalization",
        P("Mul", _AFFINE, C("c")),
        _with_scale,
        _by_channel,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
    Rule(
        "channel_norm_bias",
        "Add(InstanceNormalization(x, s, b), c) --> InstanceNormalization(x, s, b+c), c by channel, and"
        " GroupNormalization",
        P("Add", _AFFINE, C("c")),
        _with_bias,
        _by_channel,
        Exactness.REASSOCIATING,
        exclusive=True,
    ),
)
