"""Models whose operators run on the host, as text, and what they are fed.

Where the rank of an operand is unknown (it is reshaped to a shape of unknown length), every operator runs on the host.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import ml_dtypes
import numpy as np

from tilewright.tests.api.standard import Feed

TYPES: dict[str, type] = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64, "uint8": np.uint8,
    "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
}  # fmt: skip
FLOATS = ("float", "double", "float16", "bfloat16")


NUMBERS = {"float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
           "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16}  # fmt: skip
"""Of ONNX."""


def i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def elements(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    """Small numbers with ties; floats have both zeros, infinities and NaN among them."""
    dtype = np.dtype(TYPES[kind])
    if kind == "bool":
        return rng.random(count) < 0.5
    if kind in FLOATS:
        choice = np.array([0.0, -0.0, 1.5, -2.25, 3.0, 0.1, -0.1, np.inf, -np.inf, np.nan, 7, 1e4])
        return rng.choice(choice, count).astype(dtype)
    low = -6 if dtype.kind == "i" else 0
    return rng.integers(low, 9, count).astype(dtype)


SHAPES = ((2, 3, 4), (4, 6), (24,), (1, 1, 24, 1), (3, 0, 2), (0,), (1,), ())
"""Of ``t``, whose rank is not known."""
LISTS = {"a": (i64(0), i64(-1), i64(1, 0), i64(), i64(5), i64(0, 0), i64(-3, 2))}
"""Axes."""
OF_ANY_RANK: dict[str, tuple[str, Sequence[Feed]]] = {
    "Transpose": ("y = Transpose(t)", ()),
    "Transpose by an order": ("y = Transpose<perm = [2, 0, 1]>(t)", ()),
    "Shape": ("y = Shape(t)", ()),
    "Shape, part": ("y = Shape<start = -2, end = 9>(t)", ()),
    "Size": ("y = Size(t)", ()),
    "Flatten": ("y = Flatten<axis = -1>(t)", ()),
    "Identity": ("y = Identity(t)", ()),
    "Concat": ("y = Concat<axis = -2>(t, t, t)", ()),
    "Unsqueeze": ("y = Unsqueeze(t, a)", [{"a": a} for a in LISTS["a"]]),
    "Squeeze": ("y = Squeeze(t, a)", [{"a": a} for a in LISTS["a"]]),
    "Squeeze all": ("y = Squeeze(t)", ()),
    "Expand": ("y = Expand(t, a)", [{"a": a} for a in (i64(2, 3, 4), i64(2, 1, 1, 1), i64(), i64(0), i64(-1), i64(7))]),
    "Tile": ("y = Tile(t, a)", [{"a": a} for a in (i64(2), i64(1, 3), i64(2, 1, 2), i64(0, 2), i64(), i64(-1))]),
    "Pad": ("y = Pad(t, a)", [{"a": a} for a in (i64(1, 2), i64(1, -1, 0, 2), i64(0, 0, -1, 2, 0, 1), i64(-9, 0))]),
    "NonZero": ("y = NonZero(t)", ()),
    "Compress": ("y = Compress<axis = -1>(t, c)", [{"c": np.array(c, bool)} for c in ([1, 0, 1], [0] * 9, [])]),
    "Compress all": ("y = Compress(t, c)", [{"c": np.array(c, bool)} for c in ([1, 0, 1], [1] * 30)]),
    "Gather": ("y = Gather<axis = 1>(t, a)", [{"a": a} for a in (i64(1, 0, -1), i64(), i64(9))]),
    "GatherElements": (
        "p = Shape(t)  k = ConstantOfShape(p)  j = Cast<to = 7>(k)  y = GatherElements<axis = -1>(t, j)", ()),
    "GatherND": ("y = GatherND(t, b)", [{"b": b} for b in (i64(1, 2).reshape(1, 2), i64(0, -1).reshape(2, 1),
                                                            i64().reshape(0, 2), i64(1, 9).reshape(1, 2))]),
    "Where": ("f = Not(c)  y = Where(c, t, t)", [{"c": np.array(c, bool)} for c in ([1, 0, 1, 1], [1], [])]),
    "Slice": ("y = Slice(t, a, e)", [{"a": i64(a), "e": i64(e)} for a, e in ((0, 2), (-2, 99), (1, 0), (-99, -1))]),
    "Slice backwards": ("y = Slice(t, a, e, m, d)",
                        [{"a": i64(a), "e": i64(e), "m": i64(m), "d": i64(d)}
                         for a, e, m, d in ((9, -9, 0, -1), (-1, 0, -1, -2), (-99, -99, 1, -1), (0, 5, 0, 0),
                                            (5, 1, 3, 2))]),
    "Split": ("y, z = Split<axis = -1>(t, a)", [{"a": i64(*a)} for a in ((1, 3), (24, 0), (0, 1), (2, 2), (-1, 5))]),
    "Split evenly": ("y, z = Split<axis = 0, num_outputs = 2>(t)", ()),
    "TopK": ("y, z = TopK(t, a)", [{"a": i64(k)} for k in (1, 3, 0, 24, -1)]),
    "TopK, smallest": ("y, z = TopK<axis = 0, largest = 0>(t, a)", [{"a": i64(k)} for k in (1, 2, 5)]),
    "TopK, indices alone": ("w, y = TopK<axis = 0>(t, a)", [{"a": i64(1)}]),
    "Unique": ("y, z, v, w = Unique(t)", ()),
    "Unique, in order": ("y, z, v, w = Unique<sorted = 0>(t)", ()),
    "Unique, by axis": ("y, z, v, w = Unique<axis = 0>(t)", ()),
    "Unique, by the last axis": ("y, z, v, w = Unique<axis = -1, sorted = 0>(t)", ()),
    "ConcatFromSequence": ("q = SequenceConstruct(t, t)  y = ConcatFromSequence<axis = -1>(q)", ()),
    "ConcatFromSequence, new": ("q = SequenceConstruct(t, t)  y = ConcatFromSequence<axis = -1, new_axis = 1>(q)", ()),
    "SequenceAt": ("""k = Constant<value_ints = [-1, 4]>()  m = Reshape(x, k)
                      q = SplitToSequence<axis = 0, keepdims = 0>(m)
                      p = Squeeze(a)  y = SequenceAt(q, p)  z = SequenceLength(q)""",
                   [{"a": i64(a)} for a in (0, -1, 1, 30)]),
    "SequenceInsert": ("""e = SequenceEmpty()  o = SequenceInsert(e, t)  n = Neg(t)  p = Squeeze(a)
                          q = SequenceInsert(o, n, p)  y = ConcatFromSequence<axis = 0>(q)  z = SequenceLength(q)""",
                       [{"a": i64(a)} for a in (0, -1, 1, -2)]),
    "SequenceErase": ("""q = SplitToSequence<axis = -1>(x, a)  k = SequenceErase(q)  z = SequenceLength(k)
                         y = ConcatFromSequence<axis = -1>(k)""",
                      [{"a": i64(*a)} for a in ((1, 2, 1), (20, 4), (24,), (-1, 5))]),
    "SplitToSequence": ("""p = Squeeze(a)  q = SplitToSequence<axis = 0>(x, p)  z = SequenceLength(q)
                           y = ConcatFromSequence<axis = 0>(q)""", [{"a": i64(a)} for a in (1, 2, 5, 0)]),
    "Optional": ("o = Optional(t)  y = OptionalGetElement(o)  z = OptionalHasElement(o)", ()),
}  # fmt: skip
EXTRA = {
    "a": "int64[q] a",
    "b": "int64[q, w] b",
    "c": "bool[q] c",
    "e": "int64[1] e",
    "m": "int64[1] m",
    "d": "int64[1] d",
}

GENERATED = {
    "Range": ("y = Range(i, j, k)", "int64[] i, int64[] j, int64[] k",
              [{"i": i, "j": j, "k": k} for i, j, k in ((0, 10, 3), (5, -4, -2), (3, 3, 1), (0, 1, 0), (9, 0, 1),
                                                        (-(1 << 63), (1 << 63) - 1, 1 << 62))]),
    "Range of floats": ("y = Range(i, j, k)", "float[] i, float[] j, float[] k",
                        [{k: np.float32(v) for k, v in zip("ijk", t, strict=True)}
                         for t in ((0, 1, 0.1), (1, -2, -0.7), (0, np.inf, 1), (0, 1e30, 1e-30), (2, 1, 1))]),
    "ConstantOfShape": ("y = ConstantOfShape<value = int16[1] {-5}>(a)", "int64[q] a",
                        [{"a": i64(*a)} for a in ((2, 3), (), (0,), (-1,))]),
    "ConstantOfShape of zeros": ("y = ConstantOfShape(a)", "int64[q] a", [{"a": i64(2, 2)}]),
    "OneHot": ("y = OneHot<axis = 0>(a, d, v)", "int64[p, q] a, int64[] d, float16[2] v",
               [{"a": i64(0, 2, -1, 9, -9, 1).reshape(2, 3), "d": np.int64(d), "v": np.array([-1, 2], np.float16)}
                for d in (3, 0, 10, -1)]),
    "OneHot of floats": ("y = OneHot(a, d, v)", "float[p] a, float d, int32[2] v",
                         [{"a": np.array([0, 1.5, -1, 2, np.nan], np.float32), "d": np.float32(3.7),
                           "v": np.array([5, 6], np.int32)}]),
    **{f"Pad, {mode}": (f'y = Pad<mode = "{mode}">(x, a)', "float[m, n] x, int64[4] a",
                        [{"x": np.arange(m * n, dtype=np.float32).reshape(m, n), "a": i64(*a)}
                         for m, n in ((3, 4), (1, 2), (0, 2))
                         for a in ((1, 2, 0, 3), (-1, 1, 2, -1), (0, 9, 7, 0), (-4, 0, 0, 0))])
       for mode in ("constant", "edge", "reflect", "wrap")},
    "Pad by a value, some axes": ("y = Pad(x, a, v, e)", "int8[m, n] x, int64[q] a, int8 v, int64[r] e",
                                  [{"x": np.ones((2, 3), np.int8), "a": i64(*a), "v": np.int8(7), "e": i64(*e)}
                                   for a, e in (((1, 2), (-1,)), ((1, 0, 1, 1), (1, 0)), ((1, 2), (5,)),
                                                ((1,), (0,)))]),
    **{f"Reduce{op}, {kind}": (f"y = Reduce{op}<keepdims = {keep}>(t, e)", f"{kind}[n] x, int64[w] s, int64[r] e",
                               [{"x": (3 * np.arange(-30, 30)).astype(TYPES[kind]), "s": i64(3, 4, 5), "e": i64(*e)}
                                for e in ((0,), (-1, 1), (), (0, 1, 2), (3,))])
       for op in ("Sum", "Mean", "Max", "Min", "Prod")
       for kind, keep in (("float", 1), ("int32", 0), ("float16", 1), ("uint64", 0))},
}  # fmt: skip
"""Bodies, operands and feeds."""

X = "float[n, m, 1] x"
SIZED: dict[str, tuple[str, str, dict[str, tuple[int, ...]]]] = {
    "Reshape": ("y = Reshape(x, a)", X, {"a": (2,)}),
    "Reshape, allowzero": ("y = Reshape<allowzero = 1>(x, a)", X, {"a": (3,)}),
    "Squeeze": ("y = Squeeze(x, a)", "float[n, 1, 1] x", {"a": (1,)}),
    "Unsqueeze": ("y = Unsqueeze(x, a)", X, {"a": (2,)}),
    "Expand": ("y = Expand(x, a)", X, {"a": (3,)}),
    "ConstantOfShape": ("z = ConstantOfShape(a)  s = Size(x)  y = Identity(z)", X, {"a": (2,)}),
    "Tile": ("y = Tile(x, a)", X, {"a": (3,)}),
    "Pad": ("y = Pad(x, a)", X, {"a": (6,)}),
    "Pad, axes": ("""v = Constant<value_float = 2.0>()  b = Constant<value_ints = [2, -3]>()
                     y = Pad(x, a, v, b)""", X, {"a": (4,)}),
    "Slice": ("c = Constant<value_ints = [-1, 0]>()  y = Slice(x, a, b, c, d)", X, {"a": (2,), "b": (2,), "d": (2,)}),
    "Slice, part": ("y = Slice(x, a, b)", X, {"a": (3,), "b": (3,)}),
    "OneHot": ("s = Shape(x)  v = Constant<value_floats = [0.0, 1.0]>()  y = OneHot<axis = 0>(s, a, v)", X, {"a": ()}),
    "Range": ("r = Range(a, b, c)  f = Cast<to = 1>(r)  y = Neg(f)", X, {"a": (), "b": (), "c": ()}),
    "CenterCropPad": ("y = CenterCropPad<axes = [-3, 1]>(x, a)", X, {"a": (2,)}),
    "AffineGrid": ("y = AffineGrid(x, a)", "float[n, 2, 3] x", {"a": (4,)}),
    "HannWindow": ("w = HannWindow(a)  y = Neg(w)", X, {"a": ()}),
    "HammingWindow": ("w = HammingWindow(a)  y = Neg(w)", X, {"a": ()}),
    "BlackmanWindow": ("w = BlackmanWindow(a)  y = Neg(w)", X, {"a": ()}),
    "Resize to sizes": ('y = Resize<mode = "nearest", axes = [0, 1]>(x, , , a)', X, {"a": (2,)}),
    **{f"Resize, {policy}": (f'''y = Resize<mode = "nearest", axes = [1, 0],
                                           keep_aspect_ratio_policy = "{policy}">(x, , , a)''', X, {"a": (2,)})
       for policy in ("not_larger", "not_smaller")},
    "Resize by scales": ('''f = Cast<to = 1>(a)  k = Constant<value_float = 0.64>()  g = Mul(f, k)
                            y = Resize<mode = "nearest">(x, , g)''', X, {"a": (3,)}),
    **{f"Reduce{op}": (f"y = Reduce{op}<keepdims = {k % 2}>(x, a)", X, {"a": (2,)}) for k, op in enumerate(
        ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"))},
}  # fmt: skip
"""Bodies, what x is, and the shapes of small operands which tell the sizes of the result."""


def of_any_rank(name: str) -> str:
    """The text of one of ``OF_ANY_RANK``."""
    body, feeds = OF_ANY_RANK[name]
    outs = [o for o in "yzvw" if f"{o}," in body or f"{o} =" in body]
    signature = ", ".join(["float[n] x", "int64[r] s", *(EXTRA[g] for g in (feeds[0] if feeds else ()))])
    return f"g ({signature}) => ({', '.join(outs)}) {{ t = Reshape(x, s)  {body} }}"


def made_from_numbers(name: str) -> str:
    """One of ``GENERATED``."""
    body, signature, _ = GENERATED[name]
    if "int64[w] s" in signature:
        body = f"t = Reshape(x, s)  {body}"
    return f"g ({signature}) => (y) {{ {body} }}"


def sized(name: str) -> str:
    """One of ``SIZED``."""
    body, x, small = SIZED[name]
    signature = ", ".join([x, *(f"int64{list(shape) or ''} {k}" for k, shape in small.items())])
    return f"g ({signature}) => (y) {{ {body} }}"


def types_of_elements(kind: str) -> str:
    """Orders, comparisons and moves."""
    outs = {"m": "Transpose(t)", "p": "NonZero(t)", "f": "Flatten<axis = 0>(t)"}
    bodies = ["three = Constant<value_ints = [3]>()"]
    if kind not in ("bool", "bfloat16"):
        outs |= {"top, where": "TopK(t, three)", "b, c, d, g": "Unique(t)", "h, i, j, l": "Unique<axis = 0>(f)"}
    if kind != "bool":
        orders = ("Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Equal")
        outs |= {f"r{k}": f"{op}(t, u)" for k, op in enumerate(orders)}
        outs |= {"least": "Min(t, u)", "most": "Max(t, u, t)"}
    return _any_rank(kind, f"{kind}[q] u", outs, bodies)


def _any_rank(kind: str, more: str, outs: dict[str, str], bodies: Sequence[str] = ()) -> str:
    code = "  ".join([*bodies, *(f"{o} = {body}" for o, body in outs.items())])
    signature = ", ".join([f"{kind}[n] x", "int64[r] s", *([more] if more else [])])
    return f"g ({signature}) => ({', '.join(outs)}) {{ t = Reshape(x, s)  {code} }}"


def arithmetic(kind: str) -> str:
    """What is defined on numbers of a type."""
    outs = {"add": "Add(t, u)", "sub": "Sub(t, u)", "mul": "Mul(t, u)", "div": "Div(t, u)", "abs": "Abs(t)",
            "sign": "Sign(t)", "clip": "Clip(t, low, high)", "up": "Clip(t, low)",
            "rest": "Mod<fmod = 1>(t, u)"}  # fmt: skip
    if not kind.startswith("u"):
        outs["neg"] = "Neg(t)"
    if kind in FLOATS:
        outs |= {op.lower(): f"{op}(t)" for op in ("Floor", "Ceil", "Sqrt", "Reciprocal")}
    else:
        outs["modulo"] = "Mod(t, u)"
    if kind in ("int32", "int64"):
        outs["pow"] = "Pow(t, u)"
    if kind in ("float", "double", "float16"):
        outs["round"] = "Round(t)"
    return _any_rank(kind, f"{kind}[q] u, {kind} low, {kind} high", outs)


def conversions(kind: str, to: Sequence[str]) -> str:
    """Cast, to several types."""
    return _any_rank(kind, "", {f"to_{t}": f"Cast<to = {NUMBERS[t]}>(t)" for t in to})


TRUTH = _any_rank("bool", "bool[q] u", {"a": "And(t, u)", "b": "Or(t, u)", "c": "Not(t)", "d": "Equal(t, u)"})
POWERS = _any_rank("float", "float p", {"a": "Exp(t)", "b": "Log(t)", "c": "Pow(t, p)"})
BOXES = """g (float[i, n, 4] b, float[i, c, n] s, int64 most, float limit, float least) => (y, z, w) {
    y = NonMaxSuppression(b, s, most, limit, least)
    z = NonMaxSuppression<center_point_box = 1>(b, s, most, limit)  w = NonMaxSuppression(b, s) }"""
INDICES = """g (float[n] x, int64[r] s, int64[q] i, int64[p, 2] j, int64 k) => (y, z, v) {
    t = Reshape(x, s)  y = Gather<axis = -1>(t, i)  z = GatherND(t, j)
    e = SequenceConstruct(t, t)  v = SequenceAt(e, k) }"""
LOOP = """g (float[n] x, int64 trips) => (y, length) {
    empty = SequenceEmpty()  yes = Constant<value_int = 1>()  go = Cast<to = 9>(yes)
    made = Loop (trips, go, empty) < body = b (int64 i, bool c, seq(float[n]) before) => (bool d, seq(float[n]) after) {
        d = Identity(c)  f = Cast<to = 1>(i)  more = Add(x, f)  after = SequenceInsert(before, more) } >
    length = SequenceLength(made)  y = ConcatFromSequence<axis = 0, new_axis = 1>(made) }"""


RANDOM = """g (float[n] x, double[n] p, float r, bool go) => (a, b, c, d, e, f, g, h, m) {
    a = RandomUniform<shape = [3, 5], seed = 7.0, low = -1.0, high = 3.0>()
    b = RandomNormal<shape = [9], seed = 8.0, mean = 2.0, scale = 0.3, dtype = 11>()
    c = RandomUniformLike<seed = 9.0>(x)  d = RandomNormalLike<dtype = 10, seed = 1.0>(x)
    e = Bernoulli<seed = 3.0>(p)  f = Bernoulli<seed = 4.0, dtype = 7>(p)
    g, m = Dropout<seed = 5>(x, r, go)  h = Dropout<seed = 6>(p, r, go) }"""
UNSEEDED = """g (float[n] x) => (a, b) { a = RandomUniformLike<low = 2.0, high = 3.0>(x)  b = RandomNormalLike(x) }"""


SOUND = """g (int64 bins, int64 length, int64 rate, float low, float high, double low2, double high2) => (y, z) {
    y = MelWeightMatrix(bins, length, rate, low, high)
    z = MelWeightMatrix<output_datatype = 11>(bins, length, rate, low2, high2) }"""


def grams(mode: str, weights: str = "") -> str:
    """n-grams of one and two integers, of one row and of several."""
    attributes = f"""mode = "{mode}", min_gram_length = 1, max_gram_length = 2, max_skip_count = 1,
        ngram_counts = [0, 3], ngram_indexes = [4, 0, 1, 2, 3], pool_int64s = [2, 3, 5, 2, 2, 5, 3]{weights}"""
    return f"""g (int32[n] x, int64[k, n] m) => (y, z) {{
        y = TfIdfVectorizer<{attributes}>(x)  z = TfIdfVectorizer<{attributes}>(m) }}"""


def texts() -> Iterator[str]:
    """Of all of them; of several element types, what makes a difference."""
    yield from map(of_any_rank, OF_ANY_RANK)
    yield from map(made_from_numbers, GENERATED)
    yield from map(sized, SIZED)
    yield from (types_of_elements("float"), conversions("float", ["int64"]))
    yield from map(arithmetic, ("float", "int64"))
    yield from (TRUTH, POWERS, BOXES, INDICES, LOOP, RANDOM, SOUND, grams("TF"))
