"""How far a result may be off: the graph is interpreted again with values that are perturbed by their rounding errors.

What floating point makes of a graph depends on the order of sums and on fused roundings, and a later node may amplify
that (a cancellation) or turn it into another answer altogether (a comparison, a rounding, an index). So each sample
multiplies every float by 1 + a few units in the last place, at the outputs of all nodes, and at the inputs of those
that add many of them. The spread of the samples is the tolerance; elements for which samples disagree about more than
their rounding (integers, NaN, infinities) are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import ml_dtypes
import numpy as np
from scipy import ndimage

from tilewright.core import dtypes
from tilewright.core.errors import TilewrightError
from tilewright.graph_ir.interpreter import evaluate_node
from tilewright.graph_ir.ir import Graph, Node
from tilewright.lowering.implementations.split_products import ATTRIBUTE as SPLIT

_FACTOR = 8.0
_OF_TWO_PARTS = 2.0**-16
"""What an operand that is split is off by, at most, with the product that is left out."""
_ACCUMULATING = frozenset(
    """AveragePool BatchNormalization CausalConvWithState Col2Im Conv ConvTranspose CumProd CumSum DFT DeformConv Det
    Einsum Gemm GlobalAveragePool GlobalLpPool GridSample GroupNormalization GRU If InstanceNormalization LRN LSTM
    LayerNormalization LogSoftmax Loop LpNormalization LpPool MatMul MatMulDequantized Mean MeanVarianceNormalization
    MelWeightMatrix Pow
    QLinearConv QLinearMatMul QuantizeLinear DynamicQuantizeLinear RMSNormalization RNN ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceMean ReduceProd ReduceSum ReduceSumSquare Resize RoiAlign STFT Scan ScatterElements ScatterND
    Softmax Sum FusedAttention AffineGrid Sin Cos Tan Mod Range""".split()
)

_STASHING = ("LayerNormalization", "RMSNormalization", "GroupNormalization")


def interpret_perturbed(
    graph: Graph, feed: Mapping[str, object], samples: int, seed: int = 0, huge: bool = False
) -> list[dict[str, object]]:
    """Values of the outputs: exactly as the reference has them, then ``samples`` times perturbed.

    A sample that the reference refuses (an index that a perturbed value made illegal) is left out. ``huge``: one sample
    more, of an arithmetic that overflows sooner: what becomes infinite there may do so in another order of operations.
    """
    exact = _run(graph, feed, None)
    out = [exact]
    rng = np.random.default_rng(seed)
    for k in range(samples + huge):
        try:
            out.append(_run(graph, feed, rng, overflows=k == samples))
        except TilewrightError:
            continue
    return out


def _run(
    graph: Graph, feed: Mapping[str, object], rng: np.random.Generator | None, overflows: bool = False
) -> dict[str, object]:
    scope: dict[str, object] = {n: c.array for n, c in graph.constants.items()}
    scope.update(feed)
    for node in graph.nodes:
        seen: Mapping[str, object] = scope
        if overflows:
            seen = {**scope, **{i: _overflown(scope[i]) for i in node.inputs if i}}
        elif rng is not None and node.op in _ACCUMULATING:
            summed = node.inputs[:1] if node.op == "Resize" else node.inputs  # scales are exact: sizes follow from them
            seen = {**scope, **{i: _perturbed(scope[i], rng) for i in summed if i}}
        if rng is not None and node.attr(SPLIT):
            seen = {**seen, **{i: _perturbed(scope[i], rng, _OF_TWO_PARTS) for i in node.inputs[:2]}}
        if rng is not None and node.op == "DeformConv":
            seen = {**seen, node.inputs[2]: _moved(seen[node.inputs[2]], scope[node.inputs[0]], rng)}
        if rng is not None and node.op == "Resize" and node.inputs[0]:
            seen = {**seen, node.inputs[0]: _perturbed_integers(seen[node.inputs[0]], rng)}
        outputs = evaluate_node(node, seen)
        if node.op == "Resize" and rng is not None:
            outputs = [_as_integers(outputs[0], scope[node.inputs[0]])]
        if rng is not None and (node.op in _TRANSFORMED or _is_placed_in_doubles(node, outputs)):
            outputs = [_blurred(o, rng) for o in outputs]
        if rng is not None and (node.op in _MIXED or _is_chain(node)):
            outputs = [_undecided(o) for o in outputs]
        if rng is not None and node.op == "ConvTranspose":
            outputs = [_where_taps_are_padded(node, outputs[0], rng)]
        if rng is not None and node.op in _INTERPOLATING:
            outputs = [_where_taps_are_open(node, seen, outputs[0], rng)]
        if rng is not None and node.op in _STASHING:
            outputs = [_as_stashed(node, o, rng) for o in outputs]
        if rng is not None and node.op in _ABSOLUTE:
            outputs = [_blurred(o, rng, _ABSOLUTE[node.op]) for o in outputs]
        for name, value in zip(node.outputs, outputs, strict=False):
            if name:
                scope[name] = value if rng is None or _keeps_values(node) else _perturbed(value, rng)
    return {n: scope[n] for n in graph.outputs}


def _as_stashed(node: Node, x: object, rng: np.random.Generator) -> object:
    """With the rounding of the type that a norm computes in, which is float32 also for numbers of float64."""
    if (
        not isinstance(x, np.ndarray)
        or x.dtype != np.float64
        or node.attr("stash_type", dtypes.float32) != dtypes.float32
    ):
        return x
    return _perturbed(x, rng, unit(np.dtype(np.float32)))


def _keeps_values(node: Node) -> bool:
    return node.op in _MOVES


_MOVES = frozenset(
    """Reshape Transpose Squeeze Unsqueeze Flatten Slice Split Gather GatherElements GatherND Identity Expand Tile Shape
    Concat Pad Where Max Min Relu Neg Abs Clip DepthToSpace SpaceToDepth ReverseSequence MaxPool GlobalMaxPool ReduceMax
    ReduceMin TopK Trilu Sign Not And Or Xor Equal Ceil Floor Round""".split()
)


def _perturbed(x: object, rng: np.random.Generator, relative: float | None = None) -> object:
    """``relative``: the error, by default that of the element type."""
    if isinstance(x, list):
        return [_perturbed(v, rng, relative) for v in x]
    if not isinstance(x, np.ndarray) or x.dtype == object:
        return x
    eps = unit(x.dtype) if relative is None else relative
    if eps == 0.0 or x.size == 0:
        return x
    with np.errstate(all="ignore"):
        if x.dtype.kind == "c":
            return (x * (1 + eps * rng.uniform(-1, 1, x.shape))).astype(x.dtype)
        wide = x.astype(np.float64 if x.dtype != np.float64 else np.longdouble)
        return (wide * (1 + eps * rng.uniform(-1, 1, x.shape))).astype(x.dtype)


def _perturbed_integers(x: object, rng: np.random.Generator) -> object:
    """Small integers as perturbed floats: interpolation rounds them, and in float32 a half may go either way."""
    if not isinstance(x, np.ndarray) or x.dtype.kind not in "iu" or x.dtype.itemsize > 2:
        return x
    return _perturbed(x.astype(np.float32), rng)


def _as_integers(x: object, like: object) -> object:
    """Rounded and kept inside the range of the elements of ``like``, if those are integers; where it is not clear to
    which side, an integer at an end of the range: samples disagree about it, so it is not compared."""
    if not isinstance(x, np.ndarray) or not isinstance(like, np.ndarray) or like.dtype.kind not in "iu":
        return x
    info = np.iinfo(like.dtype)
    rounded = np.clip(np.rint(x), info.min, info.max)
    if x.dtype.kind != "f":
        return rounded.astype(like.dtype)
    is_tie = np.abs(np.abs(x - np.rint(x)) - 0.5) < 4 * unit(np.dtype(np.float32)) * np.abs(x).max(initial=1)
    far = np.where(rounded * 2 < info.min + info.max, info.max, info.min)
    return np.where(is_tie, far, rounded).astype(like.dtype)


def _overflown(x: object) -> object:
    """Infinite where it is within a factor of 64 of the largest number."""
    if not isinstance(x, np.ndarray) or unit(x.dtype) == 0.0 or x.dtype.kind == "c":
        return x
    top = x.dtype.type(float(ml_dtypes.finfo(x.dtype).max) / 64)
    return np.where(np.abs(x) > top, np.copysign(x.dtype.type(np.inf), x), x)


_TRANSFORMED = frozenset(("Conv", "DFT", "STFT"))
"""Transforms add and subtract whole tiles or signals: an error of a share of the result's root mean square."""


def _is_placed_in_doubles(node: Node, outputs: Sequence[object]) -> bool:
    """Places between elements are doubles: beside elements of doubles, their rounding counts."""
    return node.op in _INTERPOLATING and isinstance(outputs[0], np.ndarray) and outputs[0].dtype == np.float64


_MIXED = frozenset(("DFT", "STFT", "AffineGrid"))
"""A fast transform and a sum by definition carry what is not finite to different places of the signal. The place in the
middle of a grid is 0 or nearly, and 0 times infinity is NaN."""
_LESS_ONE = """Selu Elu Celu LogSoftmax ReduceLogSumExp ReduceLogSum BlackmanWindow HammingWindow HannWindow""".split()
_ABSOLUTE = {**dict.fromkeys((*_LESS_ONE, "LSTM", "GRU", "RNN", "HardSigmoid"), 0.25), "Gelu": 0.125}
"""exp(x) - 1 near zero, the logarithm of a sum near 1, cosines that cancel, states that are sums of gates up to 1,
a x + b near its zero in one rounding or two: an error of a unit of 1. x / 2 * (1 + tanh(...)): one of 1 times x / 2
while that is not zero, which is for x > -9."""


def _undecided(x: object) -> object:
    """Everywhere something else than it is, if anything is not finite."""
    if not isinstance(x, np.ndarray) or np.isfinite(x).all():
        return x
    return np.where(np.isnan(x), x.dtype.type(0), x.dtype.type(np.nan))


def _is_chain(node: Node) -> bool:
    """True for a product of several matrices, or with sums in one operand alone: the order of its sums is open."""
    if node.op != "Einsum":
        return False
    left, arrow, right = str(node.attr("equation")).partition("->")
    terms = left.split(",")
    alone = any(sum(c in t for t in terms) == 1 for c in left if c.isalpha() and c not in right)
    return len(terms) > 2 or (len(terms) > 1 and bool(arrow) and alone)


def _moved(offsets: object, image: object, rng: np.random.Generator) -> object:
    """Offsets as they are in the sum of a place and an offset, which is rounded as the place is."""
    if not isinstance(offsets, np.ndarray) or not isinstance(image, np.ndarray):
        return offsets
    largest = float(max(image.shape[2:], default=0))
    return (offsets + unit(offsets.dtype) * largest * rng.uniform(-1, 1, offsets.shape)).astype(offsets.dtype)


def _where_taps_are_padded(node: Node, out: object, rng: np.random.Generator) -> object:
    """``out``, with NaN or as it is beside what is not finite: where the kernel is no multiple of the stride, some
    outputs have fewer taps, and the others are weights of zero (docs/decisions/implementations-are-values.md)."""
    strides = node.attr("strides")
    if not isinstance(out, np.ndarray) or not isinstance(strides, tuple) or np.isfinite(out).all():
        return out
    odd = ~np.isfinite(out).all(axis=1, keepdims=True)
    near = ndimage.binary_dilation(odd, np.ones((1, 1, *(2 * int(s) - 1 for s in strides)), bool))  # type: ignore[call-overload]
    return np.where(near, out.dtype.type(rng.choice([np.nan, 0.0])), out)


_INTERPOLATING = frozenset(("Resize", "GridSample", "RoiAlign"))
"""Which neighbours of weight zero are read is open (onnxruntime takes the one to the right of a coordinate that is a
whole number, onnx.reference the one to the left), and zero times infinity is NaN."""


def _where_taps_are_open(node: Node, scope: Mapping[str, object], out: object, rng: np.random.Generator) -> object:
    """``out``, with NaN or 0 where an infinity or a NaN is near."""
    x = scope[node.inputs[0]]
    if not isinstance(x, np.ndarray) or not isinstance(out, np.ndarray) or unit(x.dtype) == 0.0:
        return out
    odd = ~np.isfinite(x)
    if not odd.any():
        return out
    near = ndimage.binary_dilation(odd, np.ones((3,) * x.ndim, bool))
    marked = np.where(near, x.dtype.type(np.nan), x.dtype.type(0))
    (reached,) = evaluate_node(node, {**scope, node.inputs[0]: marked})
    assert isinstance(reached, np.ndarray)
    return np.where(np.isnan(reached), out.dtype.type(rng.choice([np.nan, 0.0])), out)


def _blurred(x: object, rng: np.random.Generator, size: float | None = None) -> object:
    """With an absolute error in proportion to ``size``, or to the root mean square."""
    if not isinstance(x, np.ndarray) or unit(x.dtype) == 0.0:
        return x
    with np.errstate(all="ignore"):
        finite = x[np.isfinite(x)].astype(np.float64)
        if size is None:
            size = float(np.sqrt(np.mean(finite * finite))) if finite.size else 0.0
        return (x + 4 * unit(x.dtype) * size * rng.uniform(-1, 1, x.shape)).astype(x.dtype)


def unit(dtype: np.dtype) -> float:
    """Some units in the last place, relative; 0 for what has no rounding."""
    if dtype.kind == "c":
        return 2e-6
    t = dtypes.from_numpy(dtype)
    if not t.is_float:
        return 0.0
    return _UNITS.get(t.name, 0.0)


_UNITS = {"float64": 2e-15, "float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def allowed(samples: Sequence[Mapping[str, object]], name: str) -> object:
    """Largest deviation that is right for each element of an output: an array, infinite where nothing is compared.

    None where samples differ in shape or structure, so that nothing can be compared.
    """
    exact = samples[0][name]
    if not isinstance(exact, np.ndarray) or exact.dtype == object or exact.dtype.kind in "SUT":
        return 0.0 if all(repr(s[name]) == repr(exact) for s in samples) else None
    others = [s[name] for s in samples[1:]]
    if any(not isinstance(o, np.ndarray) or o.shape != exact.shape for o in others):
        return None
    kind = np.complex128 if exact.dtype.kind == "c" else np.float64
    if exact.dtype.kind in "iub":
        stable = np.ones(exact.shape, bool)
        for o in others:
            stable &= np.asarray(o == exact)
        return np.where(stable, 0.0, np.inf)
    with np.errstate(all="ignore"):
        base = exact.astype(kind)
        spread = np.zeros(exact.shape)
        for o in others:
            wide = np.asarray(o).astype(kind)
            both = np.isfinite(wide) & np.isfinite(base)
            same = (wide == base) | (np.isnan(wide) & np.isnan(base))
            spread = np.maximum(spread, np.where(both, np.abs(wide - base), np.where(same, 0.0, np.inf)))
        own = 2 * unit(exact.dtype) * np.abs(np.where(np.isfinite(base), base, 0.0))
        return _FACTOR * spread + own + _smallest(exact.dtype)


def _smallest(dtype: np.dtype) -> float:
    """Denormals may be flushed nowhere, but products of tiny numbers round at the smallest one."""
    return {"float32": 1e-36, "float16": 1e-6, "bfloat16": 1e-36, "float64": 1e-300}.get(dtype.name, 0.0)


def mismatch(got: object, want: object, tolerance: object, huge: bool = False) -> str:
    """What is wrong with a result, or "". ``huge``: sums and squares overflow, which depends on their order, so that
    what the reference has no number for is not compared."""
    if isinstance(want, list) or isinstance(got, list):
        if not isinstance(want, list) or not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"expected {_named(want)}, got {_named(got)}"
        wrongs = (mismatch(g, w, _own_tolerance(w)) for g, w in zip(got, want, strict=True))
        return next((w for w in wrongs if w), "") if tolerance is not None else ""
    if want is None or got is None:
        return "" if got is want else f"expected {_named(want)}, got {_named(got)}"
    g, w = np.asarray(got), np.asarray(want)
    if w.dtype == object or w.dtype.kind in "SUT":
        same = g.shape == w.shape and g.astype(str).tolist() == w.astype(str).tolist()
        return "" if same or tolerance is None else f"expected {w.tolist()}, got {g.tolist()}"
    if g.dtype != w.dtype:
        return f"expected element type {w.dtype}, got {g.dtype}"
    if tolerance is None:
        return "" if g.ndim == w.ndim else f"expected rank {w.ndim}, got {g.ndim}"
    if g.shape != w.shape:
        return f"expected shape {w.shape}, got {g.shape}"
    if g.size == 0:
        return ""
    if w.dtype.kind in "iub":
        bad = (g != w) & np.isfinite(tolerance)  # type: ignore[operator,arg-type]
    else:
        kind = np.complex128 if w.dtype.kind == "c" else np.float64
        a, b = g.astype(kind), w.astype(kind)
        with np.errstate(all="ignore"):
            same = (a == b) | (~np.isfinite(b) if huge else np.isnan(a) & np.isnan(b))
            bad = ~(same | (np.abs(a - b) <= tolerance) | ~np.isfinite(tolerance))  # type: ignore[operator,arg-type]
    if not bad.any():
        return ""
    at = tuple(int(k) for k in np.argwhere(bad)[0])
    return f"{int(bad.sum())} of {bad.size} differ, first at {at}: expected {w[at]!r}, got {g[at]!r}"


def _own_tolerance(x: object) -> object:
    return allowed([{"": x}], "")


def _named(x: object) -> str:
    if isinstance(x, np.ndarray):
        return f"{x.dtype}{list(x.shape)}"
    return f"a list of {len(x)}" if isinstance(x, (list, tuple)) else type(x).__name__
