"""GroupQueryAttention against a reference in numpy, and against onnxruntime where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

import tilewright
from tilewright.core.errors import InputError, ModelError, UnsupportedError
from tilewright.core.plan import HostStep, KernelStep
from tilewright.frontend import from_onnx
from tilewright.inspect.ort import OnnxRuntimeError, is_installed, open_session, translated_errors
from tilewright.tests.frontend.against_ort import dtype_code, node_model
from tilewright.tests.frontend.transformers.references import Arrays, group_query

HEADS, SHARED, SIZE, PLACES = 6, 2, 32, 24
NAMES = (
    "query key value past_key past_value seqlens_k total_sequence_length cos_cache sin_cache position_ids "
    "attention_bias head_sink k_scale v_scale q_norm_weight k_norm_weight query_seqlens"
).split()
CONSTANTS = ("cos_cache", "sin_cache", "head_sink", "q_norm_weight", "k_norm_weight")


@dataclass(frozen=True, slots=True)
class Phase:
    """A call: new rows, rows of the past (None: no past is given), places of the last rows."""

    steps: int
    past: int | None
    last: tuple[int, ...]
    total: int


PHASES = {
    "prompt": Phase(5, None, (4, 4), 5), "padded_prompt": Phase(5, None, (2, 4), 5), "empty_past": Phase(5, 0, (4,), 5),
    "prompt_fixed": Phase(5, 9, (4, 1), 5), "decode": Phase(1, 6, (6, 6), 7), "ragged_decode": Phase(1, 6, (6, 3), 7),
    "decode_fixed": Phase(1, 11, (6, 3, 0), 7), "decode_full": Phase(1, 7, (6,), 7), "continued": Phase(3, 4, (6,), 7),
    "continued_fixed": Phase(3, 12, (6,), 7), "first_token": Phase(1, 0, (0,), 1),
}  # fmt: skip
KINDS: dict[str, dict[str, Any]] = {
    "plain": {}, "scaled": {"scale": 0.4}, "window": {"local_window_size": 2}, "softcap": {"softcap": 1.5},
    "smooth": {"smooth_softmax": 1}, "sink": {}, "bias": {}, "bias_of_heads": {"softcap": 2.0}, "packed": {},
    "rotary": {"do_rotary": 1}, "interleaved": {"do_rotary": 1, "rotary_interleaved": 1},
    "partial": {"do_rotary": 1}, "packed_rotary": {"do_rotary": 1, "local_window_size": 3},
    "places": {"do_rotary": 1}, "norms": {"do_rotary": 1, "qk_norm_epsilon": 1e-3, "k_norm_epsilon": 0.1},
    "bidirectional": {"causal": 0},
}  # fmt: skip


def inputs_of(kind: str, p: Phase, dtype: Any = np.float32) -> Arrays:
    rng = np.random.default_rng(len(kind) + p.total)
    batch = len(p.last)

    def real(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    widths = {"query": HEADS * SIZE, "key": SHARED * SIZE, "value": SHARED * SIZE}
    if kind.startswith("packed"):
        widths = {"query": sum(widths.values())}
    feed = {n: real(batch, p.steps, w) for n, w in widths.items()}
    if p.past is not None:
        feed |= {n: real(batch, SHARED, p.past, SIZE) for n in ("past_key", "past_value")}
    feed |= {"seqlens_k": np.array(p.last, np.int32), "total_sequence_length": np.array(p.total, np.int32)}
    if KINDS[kind].get("do_rotary"):
        angles = rng.uniform(-3, 3, (PLACES, SIZE // 4 if kind == "partial" else SIZE // 2))
        feed |= {"cos_cache": np.cos(angles).astype(dtype), "sin_cache": np.sin(angles).astype(dtype)}
    match kind:
        case "places":
            feed["position_ids"] = rng.integers(0, PLACES - p.steps, (batch, p.steps))
        case "bias":
            feed["attention_bias"] = real(1, 1, p.steps, p.total)
        case "bias_of_heads":
            feed["attention_bias"] = real(batch, HEADS, p.steps, p.total)
        case "sink":
            feed["head_sink"] = real(HEADS)
        case "norms":
            feed |= {n: rng.uniform(0.5, 1.5, SIZE).astype(dtype) for n in ("q_norm_weight", "k_norm_weight")}
    return feed


def model_of_kind(kind: str, feed: Arrays, symbolic: bool, **more: Any) -> onnx.ModelProto:
    shapes: dict[str, list[int | str | None]] = {}
    if symbolic:
        for n in ("query", "key", "value"):
            shapes[n] = ["batch", "steps", *feed.get(n, feed["query"]).shape[2:]]
        for n in ("past_key", "past_value"):
            shapes[n] = ["batch", SHARED, "past", SIZE]
        shapes |= {"seqlens_k": ["batch"], "position_ids": ["batch", "steps"]}
        if "attention_bias" in feed:
            lead = [1, 1] if kind == "bias" else ["batch", HEADS]
            shapes["attention_bias"] = [*lead, "steps", "total"]  # type: ignore[list-item]
    constants = {k: x for k, x in feed.items() if k in CONSTANTS}
    given = {k: x for k, x in feed.items() if k not in CONSTANTS}
    wanted = [n if n in feed else "" for n in NAMES]
    while not wanted[-1]:
        wanted.pop()
    code = dtype_code(feed["query"])
    return node_model("GroupQueryAttention", given, constants, wanted, [code] * 3, shapes=shapes, num_heads=HEADS,
                      kv_num_heads=SHARED, **KINDS[kind], **more)  # fmt: skip


def close(got: np.ndarray, wanted: np.ndarray, tolerance: float) -> None:
    """Equal where the reference has a number."""
    assert got.shape == wanted.shape
    np.testing.assert_allclose(np.where(np.isnan(wanted), 0, got), np.nan_to_num(wanted), tolerance, tolerance)


def check(kind: str, phase: str, dtype: Any, symbolic: bool, tolerance: float) -> None:
    feed = inputs_of(kind, PHASES[phase], dtype)
    model = model_of_kind(kind, feed, symbolic)
    given = {k: x for k, x in feed.items() if k not in CONSTANTS}
    attrs = {"num_heads": HEADS, "kv_num_heads": SHARED, **KINDS[kind]}
    y, caches = group_query(feed, attrs)
    ours = tilewright.compile(model).run(given)
    for name, wanted in zip(("y0", "y1", "y2"), (y, *caches), strict=True):
        close(ours[name], wanted, tolerance)
        assert ours[name].dtype == dtype
    for name, array in theirs(model, given).items():
        close(array, dict(zip(("y0", "y1", "y2"), (y, *caches), strict=True))[name], tolerance)


def theirs(model: onnx.ModelProto, feed: Arrays) -> Arrays:
    """onnxruntime's results; none where it is not installed, or refuses the model or call."""
    if not is_installed():
        return {}
    try:
        session = open_session(model, 1)
        assert session is not None
        with translated_errors():
            return dict(zip(("y0", "y1", "y2"), session.run(None, feed), strict=True))
    except OnnxRuntimeError:
        return {}


@pytest.mark.parametrize("phase", list(PHASES))
def test_all_phases(phase: str) -> None:
    check("rotary", phase, np.float32, True, 2e-5)


@pytest.mark.parametrize("phase", ["padded_prompt", "ragged_decode", "continued_fixed"])
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "rotary"])
def test_all_kinds(kind: str, phase: str) -> None:
    check(kind, phase, np.float32, True, 2e-5)


@pytest.mark.parametrize(("kind", "phase"), [
    ("packed_rotary", "prompt"), ("bias", "prompt"), ("bias", "decode_fixed"), ("bias_of_heads", "decode_fixed"),
    ("sink", "decode"),
])  # fmt: skip
def test_fixed_sizes(kind: str, phase: str) -> None:
    check(kind, phase, np.float32, False, 2e-5)


@pytest.mark.parametrize(("kind", "phase"), [
    ("rotary", "padded_prompt"), ("rotary", "ragged_decode"), ("softcap", "ragged_decode"), ("sink", "continued"),
])  # fmt: skip
def test_float16_is_computed_in_float32(kind: str, phase: str) -> None:
    check(kind, phase, np.float16, True, 2e-3)


@pytest.mark.skipif(not is_installed(), reason="onnxruntime is not installed")
@pytest.mark.parametrize("kind", [k for k in KINDS if k != "norms"])
def test_onnxruntime_takes_all_kinds_but_norms(kind: str) -> None:
    """A comparison that it refuses would say nothing."""
    feed = inputs_of(kind, PHASES["decode"])
    given = {k: x for k, x in feed.items() if k not in CONSTANTS}
    assert theirs(model_of_kind(kind, feed, False), given)


def test_a_row_of_the_cache_that_no_sequence_has_stays() -> None:
    feed = inputs_of("plain", PHASES["decode_fixed"])
    ours = tilewright.compile(model_of_kind("plain", feed, True)).run(feed)
    for b, last in enumerate(PHASES["decode_fixed"].last):
        for got, past in ((ours["y1"], "past_key"), (ours["y2"], "past_value")):
            np.testing.assert_array_equal(np.delete(got[b], last, 1), np.delete(feed[past][b], last, 1))


def test_a_decoding_call_has_no_host_step_and_copies_each_cache_once() -> None:
    feed = inputs_of("rotary", PHASES["decode"])
    model = model_of_kind("rotary", feed, True)
    sizes = {"batch": 1, "steps": 1}
    total = model.graph.input[[i.name for i in model.graph.input].index("total_sequence_length")]
    mask = onnx.helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["batch", "total"])
    model.graph.input.remove(total)
    model.graph.input.append(mask)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(1), "one"))
    model.graph.node.insert(0, onnx.helper.make_node("Shape", ["mask"], ["sizes"]))
    model.graph.node.insert(1, onnx.helper.make_node("Gather", ["sizes", "one"], ["keys"]))
    model.graph.node.insert(2, onnx.helper.make_node("Cast", ["keys"], ["total_sequence_length"], to=TensorProto.INT32))
    compiled = tilewright.compile(model, input_shapes=sizes)
    assert not [s for s in compiled.plan.steps if isinstance(s, HostStep)]
    fused = tilewright.compile(model, stop_after="fuse", input_shapes=sizes)
    ops = {n.name: n.op for g in fused.groups for n in g.nodes}
    kernels = [{ops[n] for n in s.nodes} for s in compiled.plan.steps if isinstance(s, KernelStep)]
    assert not [k for k in kernels if k & {"Concat", "Expand"}]
    assert [k for k in kernels if k & {"Pad", "TensorScatter"}] == [{"Pad"}, {"TensorScatter"}] * 2
    assert compiled.in_place == {"y1": "past_key", "y2": "past_value"}


# -- refusals --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("attrs", "told"), [
    ({"qk_output": 1}, "attribute qk_output = 1 is not supported"),
    ({"sliding_window_cache": 1}, "attribute sliding_window_cache = 1 is not supported"),
    ({"kv_cache_bit_width": 8}, "attribute kv_cache_bit_width = 8 is not supported"),
    ({"k_quant_type": "PER_TENSOR"}, "attribute k_quant_type = PER_TENSOR: quantized caches are not supported"),
])  # fmt: skip
def test_refused_attributes(attrs: dict[str, Any], told: str) -> None:
    feed = inputs_of("plain", PHASES["decode"])
    with pytest.raises(UnsupportedError, match=rf"node 'node' \(GroupQueryAttention\): {told}"):
        from_onnx(model_of_kind("plain", feed, False, **attrs))


@pytest.mark.parametrize(("name", "told"), [
    ("k_scale", r"input 12 \(k_scale\) is not supported"), ("v_scale", r"input 13 \(v_scale\) is not supported"),
    ("query_seqlens", r"input 16 \(query_seqlens\) is not supported"),
])  # fmt: skip
def test_refused_inputs(name: str, told: str) -> None:
    feed = inputs_of("plain", PHASES["decode"]) | {name: np.ones(2, np.int32)}
    with pytest.raises(UnsupportedError, match=told):
        from_onnx(model_of_kind("plain", feed, False))


@pytest.mark.parametrize(("missing", "kind", "told"), [
    ("value", "plain", "expected inputs 1 and 2 both or neither, got one"),
    ("past_value", "plain", "expected inputs 3 and 4 both or neither, got one"),
    ("sin_cache", "rotary", "expected inputs 7 and 8 both or neither, got one"),
    ("k_norm_weight", "norms", "expected inputs 14 and 15 both or neither, got one"),
])  # fmt: skip
def test_inputs_that_belong_together(missing: str, kind: str, told: str) -> None:
    feed = inputs_of(kind, PHASES["decode"])
    del feed[missing]
    with pytest.raises(ModelError, match=told):
        from_onnx(model_of_kind(kind, feed, False))


def test_heads_that_do_not_divide() -> None:
    model = model_of_kind("plain", inputs_of("plain", PHASES["decode"]), False)
    attr = next(a for a in model.graph.node[0].attribute if a.name == "num_heads")
    attr.i = 5
    with pytest.raises(ModelError, match=r"the first a multiple of the second, got \(5, 2\)"):
        from_onnx(model)
    attr.i = 8
    with pytest.raises(ModelError, match="expected input 1 with 48 elements along axis -1, got 64"):
        from_onnx(model)


def test_a_sequence_longer_than_the_longest_is_an_error_of_the_call() -> None:
    feed = inputs_of("plain", PHASES["decode_fixed"])
    model = tilewright.compile(model_of_kind("plain", feed, True))
    with pytest.raises(InputError, match=r"expected indices in \[-7, 6\], got 7"):
        model.run(feed | {"seqlens_k": np.array([6, 7, 0], np.int32)})
