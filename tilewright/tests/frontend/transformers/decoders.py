"""Language models as ONNX Runtime GenAI exports them, with random weights: of the Llama and Qwen2 kind, of any size.

``benchmarks/decoder.py`` times large ones, tests run small ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes of a model. ``bits``: of a weight, 32 for float32; ``block``: weights that share a scale; ``rows``: how
    long the caches are, None for caches that grow; ``positions``: rows of the tables of angles; ``accuracy``: how exact
    onnxruntime has to be (``accuracy_level``), 4 for bytes."""

    layers: int = 24
    hidden: int = 896
    heads: int = 14
    kv_heads: int = 2
    intermediate: int = 4864
    vocabulary: int = 151936
    bits: int = 4
    block: int = 32
    rows: int | None = None
    positions: int = 4096
    accuracy: int = 0

    @property
    def head(self) -> int:
        return self.hidden // self.heads

    def empty_caches(self, batch: int = 1) -> Arrays:
        """What a prompt begins with."""
        shape = (batch, self.kv_heads, self.rows or 0, self.head)
        return {n: np.zeros(shape, np.float32) for n in past_names(self.layers)}

    def step(self, ids: np.ndarray, seen: int, caches: Arrays) -> Arrays:
        """The inputs of a call with ``ids`` [batch, steps] behind ``seen`` others."""
        mask = np.ones((ids.shape[0], seen + ids.shape[1]), np.int64)
        return {"input_ids": ids.astype(np.int64), "attention_mask": mask, **caches}

    def next_caches(self, results: Arrays) -> Arrays:
        """The caches of the next call from the results of one."""
        return {n: results[present_name(n)] for n in past_names(self.layers)}


def past_names(layers: int) -> list[str]:
    return [f"past_key_values.{k}.{what}" for k in range(layers) for what in ("key", "value")]


def present_name(past: str) -> str:
    """The output that is a cache behind the call, of the input that it is before."""
    return past.replace("past_key_values", "present")


def decoder_model(d: Decoder, seed: int = 0) -> onnx.ModelProto:
    """The model: input_ids, attention_mask and caches to logits and caches."""
    build = _Builder(d, np.random.default_rng(seed))
    return build.model()


class _Builder:
    def __init__(self, d: Decoder, rng: np.random.Generator) -> None:
        self.d, self.rng = d, rng
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        d = self.d
        angle = np.arange(d.positions)[:, None] / 1e6 ** (np.arange(d.head // 2) / (d.head // 2))
        self.constant("cos_cache", np.cos(angle).astype(np.float32))
        self.constant("sin_cache", np.sin(angle).astype(np.float32))
        self.lengths()
        x = self.embedding()
        skip = ""
        for k in range(d.layers):
            x, skip = self.layer(f"/model/layers.{k}", k, x, skip)
        (x,) = self.skip_norm("/model/norm", x, skip, 1)
        self.product("/lm_head", x, d.hidden, d.vocabulary, "logits")
        past = d.rows or "past_sequence_length"
        present = d.rows or "total_sequence_length"
        inputs = [("input_ids", INT64, ["batch_size", "sequence_length"]),
                  ("attention_mask", INT64, ["batch_size", "total_sequence_length"]),
                  *((n, FLOAT, ["batch_size", d.kv_heads, past, d.head]) for n in past_names(d.layers))]  # fmt: skip
        outputs = [("logits", FLOAT, ["batch_size", "sequence_length", d.vocabulary]),
                   *((present_name(n), FLOAT, ["batch_size", d.kv_heads, present, d.head])
                     for n in past_names(d.layers))]  # fmt: skip
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, "decoder", [info(*i) for i in inputs], [info(*o) for o in outputs],
                                  self.weights)  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    # -- pieces ------------------------------------------------------------------------------------------------------
    def constant(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, name: str, inputs: list[str], outputs: int | list[str] = 1, **attrs: object) -> list[str]:
        names = [f"{name}/output_{k}" for k in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(op, inputs, names, name, **attrs))  # type: ignore[arg-type]
        return [n for n in names if n]

    def lengths(self) -> None:
        """What the attention of all layers takes of the mask: the last place of each sequence, and how long it is."""
        root, i32 = "/model/attn_mask", TensorProto.INT32
        (total,) = self.node("ReduceSum", f"{root}/sum", ["attention_mask", self.constant("ones", np.array([1]))])
        (last,) = self.node("Sub", f"{root}/last", [total, self.constant("one", np.array([1]))])
        self.node("Cast", f"{root}/seqlens", [last], ["seqlens_k"], to=i32)
        (shape,) = self.node("Shape", f"{root}/shape", ["attention_mask"])
        (size,) = self.node("Gather", f"{root}/size", [shape, self.constant("axis", np.array(1))], axis=0)
        self.node("Cast", f"{root}/total", [size], ["total_length"], to=i32)

    def embedding(self) -> str:
        d, name = self.d, "/model/embed_tokens"
        if d.bits == 32:
            table = self.real((d.vocabulary, d.hidden), 1.0)
            return self.node("Gather", name, [self.constant("embedding", table), "input_ids"])[0]
        inputs = self.quantized("embedding", d.vocabulary, d.hidden, 1.0, is_flat=True)
        return self.node("GatherBlockQuantized", name, [inputs[0], "input_ids", inputs[1]], domain=MS,
                         bits=d.bits, block_size=d.block, gather_axis=0, quantize_axis=1)[0]  # fmt: skip

    def real(self, shape: tuple[int, ...], size: float) -> np.ndarray:
        return self.rng.standard_normal(shape, np.float32) * np.float32(size)

    def quantized(self, name: str, rows: int, columns: int, size: float, is_flat: bool = False) -> list[str]:
        """Bytes and scales of a weight [rows, columns] of about normal numbers times ``size``."""
        d = self.d
        blocks = columns // d.block
        raw = self.rng.integers(0, 256, (rows, blocks, d.block * d.bits // 8), np.uint8)
        scales = self.rng.uniform(0.5, 1.5, (rows, blocks)).astype(np.float32) * np.float32(size * 2.0 ** (2 - d.bits))
        bytes_ = self.constant(f"{name}.qweight", raw.reshape(rows, -1) if is_flat else raw)
        return [bytes_, self.constant(f"{name}.scales", scales)]

    def product(self, name: str, x: str, k: int, n: int, out: str = "") -> str:
        """x @ weight with a weight that leaves the size of x."""
        size, outputs = k**-0.5, [out or f"{name}/output_0"]
        if self.d.bits == 32:
            weight = self.constant(f"{name}.weight", self.real((k, n), size))
            return self.node("MatMul", name, [x, weight], outputs)[0]
        inputs = [x, *self.quantized(name, n, k, size)]
        return self.node("MatMulNBits", name, inputs, outputs, domain=MS, K=k, N=n, bits=self.d.bits,
                         block_size=self.d.block, accuracy_level=self.d.accuracy)[0]  # fmt: skip

    def norm(self, name: str) -> str:
        return self.constant(f"{name}.weight", self.rng.uniform(0.8, 1.2, self.d.hidden).astype(np.float32))

    def skip_norm(self, name: str, x: str, skip: str, outputs: int) -> list[str]:
        """The norm of x + skip, and with two outputs the sum."""
        names = [f"{name}/output_0", "", "", f"{name}/output_3"][: 1 if outputs == 1 else 4]
        inputs = [x, skip, self.norm(name)]
        return self.node("SkipSimplifiedLayerNormalization", name, inputs, names, domain=MS, epsilon=1e-6)

    def layer(self, root: str, k: int, x: str, skip: str) -> tuple[str, str]:
        """One layer: of what is added to the sum so far, ``skip``, the next such pair."""
        d = self.d
        if skip:
            normal, total = self.skip_norm(f"{root}/input_layernorm", x, skip, 2)
        else:
            name, total = f"{root}/input_layernorm", x
            (normal,) = self.node("SimplifiedLayerNormalization", name, [x, self.norm(name)], axis=-1, epsilon=1e-6,
                                  stash_type=1)  # fmt: skip
        attended = self.attention(f"{root}/attn", k, normal)
        normal, total = self.skip_norm(f"{root}/post_attention_layernorm", total, attended, 2)
        gate = self.product(f"{root}/mlp/gate_proj", normal, d.hidden, d.intermediate)
        up = self.product(f"{root}/mlp/up_proj", normal, d.hidden, d.intermediate)
        (soft,) = self.node("Sigmoid", f"{root}/mlp/sigmoid", [gate])
        (active,) = self.node("Mul", f"{root}/mlp/silu", [gate, soft])
        (inner,) = self.node("Mul", f"{root}/mlp/mul", [active, up])
        return self.product(f"{root}/mlp/down_proj", inner, d.intermediate, d.hidden), total

    def attention(self, root: str, k: int, x: str) -> str:
        d = self.d
        parts = []
        for what, n in (("q", d.hidden), ("k", d.kv_heads * d.head), ("v", d.kv_heads * d.head)):
            product = self.product(f"{root}/{what}_proj", x, d.hidden, n)
            bias = self.constant(f"{root}/{what}_proj.bias", self.real((n,), 0.1))
            parts += self.node("Add", f"{root}/{what}_proj/Add", [product, bias])
        past = [f"past_key_values.{k}.{what}" for what in ("key", "value")]
        inputs = [*parts, *past, "seqlens_k", "total_length", "cos_cache", "sin_cache"]
        outputs = [f"{root}/output_0", *map(present_name, past)]
        self.node("GroupQueryAttention", f"{root}/GroupQueryAttention", inputs, outputs, domain=MS, num_heads=d.heads,
                  kv_num_heads=d.kv_heads, scale=d.head**-0.5, do_rotary=1, rotary_interleaved=0,
                  local_window_size=-1)  # fmt: skip
        return self.product(f"{root}/o_proj", outputs[0], d.hidden, d.hidden)
