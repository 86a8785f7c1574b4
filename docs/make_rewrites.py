#!/usr/bin/env python3
"""Writes docs/rewrites.md: every rewrite of graphs by name, and what other tools call it.

python docs/make_rewrites.py            write the page
python docs/make_rewrites.py --check    exit status 1 if the page is out of date
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from docstrings import first_sentence, inline
from generated import GeneratedPage

from tilewright.graph_ir.passes.base import Exactness, Pass
from tilewright.graph_ir.pipeline import FILE_PASSES, FUSED_PASSES, PASSES
from tilewright.graph_ir.rules import (
    activations,
    algebra,
    attention,
    integer_products,
    logic,
    noops,
    norms,
    products,
    quantization,
    scales,
    views,
    weights,
)
from tilewright.graph_ir.rules.base import Rule
from tilewright.graph_ir.rules.composites import byte_functions, cells, channel_norms
from tilewright.graph_ir.rules.contractions import einsum
from tilewright.graph_ir.rules.files import defaults, gemm
from tilewright.graph_ir.rules.moves import convolutions, repeats, row_views, slices

MODULES = (
    activations, algebra, attention, byte_functions, cells, channel_norms, convolutions, defaults, einsum, gemm,
    integer_products, logic, noops, norms, products, quantization, repeats, row_views, scales, slices, views, weights,
)  # fmt: skip

ELSEWHERE: Mapping[str, str] = {
    "identity": "ORT EliminateIdentity; onnxoptimizer eliminate_identity; OV NopElimination",
    "dropout": "ORT EliminateDropout; onnxoptimizer eliminate_nop_dropout",
    "cast_to_same": "ORT CastElimination; onnxoptimizer eliminate_nop_cast",
    "view_to_same": (
        "ORT ExpandElimination; onnxoptimizer eliminate_nop_reshape, eliminate_nop_expand, eliminate_nop_flatten"
    ),
    "transpose_identity": "onnxoptimizer eliminate_nop_transpose",
    "slice_all": "ORT EliminateSlice",
    "pad_nothing": "onnxoptimizer eliminate_nop_pad",
    "variadic_single": "onnxoptimizer eliminate_nop_concat",
    "split_single": "onnxoptimizer eliminate_nop_split",
    "mul_one": "ORT NoopElimination; onnxoptimizer eliminate_nop_with_unit",
    "div_one": "ORT NoopElimination; onnxoptimizer eliminate_nop_with_unit",
    "sub_zero": "ORT NoopElimination; onnxoptimizer eliminate_nop_with_unit",
    "add_zero": "onnxoptimizer eliminate_nop_with_unit",
    "add_zero_float": "ORT NoopElimination; onnxoptimizer eliminate_nop_with_unit",
    "relu_relu": "onnxoptimizer eliminate_consecutive_idempotent_ops",
    "reshape_constant": "ORT ReshapeFusion; onnxoptimizer fuse_concat_into_reshape; TVM DynamicToStatic",
    "view_view": "onnxoptimizer fuse_consecutive_squeezes, fuse_consecutive_unsqueezes; onnxslim EliminationReshape",
    "transpose_transpose": "onnxoptimizer fuse_consecutive_transposes; onnxslim EliminationTranspose",
    "reduce_keeps_axes": "onnxoptimizer fuse_consecutive_reduce_unsqueeze; onnxslim FusionReduce",
    "transpose_reshape": "onnxslim EliminationTransposeAsReshape",
    "slice_slice": "onnxoptimizer fuse_consecutive_slices; onnxslim EliminationSlice; OV OptimizeStridedSlice",
    "repeat_below_elementwise": "OV BroadcastTransition, BroadcastElementwiseFusion (binary operators, one reader)",
    "repeat_below_matmul": "OV BroadcastMatMulFusion",
    "cast_cast": "ORT CastChainElimination; OV EraseRedundantConvertPair",
    "mul_mul": "OV LinOpSequenceFusion",
    "add_add": "OV LinOpSequenceFusion",
    "affine_chain": "OV LinOpSequenceFusion",
    "div_constant": "TVM DivToMul",
    "mul_reciprocal": "ORT DivMulFusion; OV DivideFusion",
    "gelu_erf": "ORT GeluFusion; onnxoptimizer fuse_gelu; onnxslim FusionGelu; OV GeluFusion",
    "gelu_tanh": "ORT FastGeluFusion; OV GeluFusion",
    "hard_sigmoid": "OV HSigmoidFusion",
    "hard_swish": "OV HSwishFusion",
    "hard_swish_of_ramp": "OV HSwishFusion",
    "softplus": "OV SoftPlusFusion",
    "leaky_relu": "OV LeakyReluFusion",
    "one_clip": "ORT FuseReluClip; OV ClampFusion",
    "layer_norm": "ORT LayerNormFusion; OV MVNFusion",
    "rms_norm": "ORT SimplifiedLayerNormFusion; OV RMSFusion",
    "instance_norm": "OV MVNFusion",
    "group_norm": "OV GroupNormalizationFusion; FusionGroupNorm of ORT's scripts for transformers",
    "lstm_cell": "OV LSTMCellFusion",
    "gru_cell": "OV GRUCellFusion",
    "attention": "ORT AttentionFusion; onnxoptimizer fuse_attention",
    "batchnorm_into_conv": "ORT ConvBNFusion, MatmulBNFusion; onnxoptimizer fuse_bn_into_conv; onnxslim FusionConvBN",
    "batchnorm_as_affine": "TVM SimplifyInference",
    "scale_into_conv": (
        "ORT ConvMulFusion; onnxoptimizer fuse_mul_into_conv; onnxslim FusionConvMul; TVM FoldScaleAxis"
    ),
    "shift_into_conv": "ORT ConvAddFusion; onnxoptimizer fuse_add_bias_into_conv; onnxslim FusionConvAdd",
    "scale_before_conv": "TVM FoldScaleAxis",
    "pad_into_conv": (
        "ORT PadFusion; onnxoptimizer fuse_pad_into_conv; onnxslim FusionPadConv; OV PadFusion; TVM FoldExplicitPadding"
    ),
    "matmul_add_as_gemm": "ORT MatMulAddFusion; onnxoptimizer fuse_matmul_add_bias_into_gemm; onnxslim FusionGemm",
    "add_into_gemm": "ORT GemmSumFusion",
    "transpose_into_gemm_left": "ORT GemmTransposeFusion; onnxoptimizer fuse_transpose_into_gemm",
    "transpose_into_gemm_right": "ORT GemmTransposeFusion; onnxoptimizer fuse_transpose_into_gemm",
    "einsum_as_product": "onnxoptimizer replace_einsum_with_matmul; OV EinsumDecomposition",
    "cancel_views": "onnxslim EliminationReshape",
    "split_slices": "ORT GatherSliceToSplitFusion; OV GroupedSliceToVSplitOptimization",
    "scale_into_matmul": "OV MatMulMultiplyFusion; TVM FoldScaleAxis",
    "scale_before_matmul": "TVM FoldScaleAxis",
    "scale_after_matmul_left": "ORT MatMulScaleFusion",
    "scale_after_matmul_right": "ORT MatMulScaleFusion",
    "drop_dead": "onnxoptimizer eliminate_deadend, eliminate_unused_initializer; TVM DeadCodeElimination",
    "fold_shapes": (
        "ORT ConstantFolding; onnxoptimizer eliminate_shape_gather, eliminate_slice_after_shape, "
        "eliminate_shape_op; onnxsim's constant folding; TVM DynamicToStatic"
    ),
    "fold_constants": "ORT ConstantFolding; onnxsim's constant folding; TVM FoldConstant",
    "resolve_if": "onnxoptimizer eliminate_if_with_const_cond",
    "share_common": (
        "ORT CommonSubexpressionElimination, ConstantSharing; onnxoptimizer eliminate_common_subexpression, "
        "eliminate_duplicate_initializer; TVM EliminateCommonSubexpr"
    ),
    "merge_products": (
        "onnxoptimizer fuse_qkv; TVM CombineParallelDense, CombineParallelConv2D, CombineParallelBatchMatmul"
    ),
    "merge_packed_products": "TVM CombineParallelMatmul",
    "sink_transposes": "ORT TransposeOptimizer; TVM ConvertLayout",
    "channels_last": "ORT NchwcTransformer, NhwcTransformer; TVM AlterOpLayout",
    "fuse_groups": (
        "ORT ConvActivationFusion, ConvAddActivationFusion, GemmActivationFusion, BiasGeluFusion, "
        "SkipLayerNormFusion, EmbedLayerNormFusion, BiasSoftmaxFusion, MatMulActivationFusion; TVM FuseOps"
    ),
    "qlinear_conv": "ORT QDQSelectorActionTransformer",
}
"""Rule or pass -> its names in other tools, as their sources and documentation have them."""

MISSING: Mapping[str, str] = {
    "ORT MatmulTransposeFusion": (
        "a kernel reads a transposed operand as it packs it, and a constant is turned at build time without a copy"
    ),
    "onnxoptimizer eliminate_nop_monotone_argmax": "argmax of rounded numbers may find another maximum",
    "ORT GeluApproximation; TVM FastMath": (
        "approximations of functions; what the vectorized functions lack in accuracy is below a unit in the last "
        "place or two"
    ),
    "ORT NotWhereFusion": "the negation runs in the kernel of the Where",
    "ORT QuickGeluFusion": "x * sigmoid(1.702 x) is two operators of one kernel",
    "OV ConvertTensorIteratorToLSTMSequence, ConvertLoopToLSTMSequence": (
        "a Loop or Scan of cells is compiled as the loop that it is; chains of steps are joined (`join_steps`)"
    ),
    "OV FuseRotaryPositionalEmbeddings": "the rotation is elementwise and runs in the kernels beside it",
    "ORT FreeDimensionOverrideTransformer": "`input_shapes` of `compile`, before the graph passes",
    "ORT DoubleQDQPairsRemover, QDQPropagationTransformer": (
        "quantization keeps its places; what kernels do with it is in [quantized models](quantized-models.md)"
    ),
    "ORT GatherToSliceFusion": (
        "what only moves elements runs in the kernel that reads them, a Gather as well as a Slice"
    ),
    "ORT LabelEncoderFusion": "operators of ai.onnx.ml are not compiled",
}
"""What they have and we do not -> why."""

HEAD = """\
# Rewrites

<!-- Written by docs/make_rewrites.py; a test compares it with the code. Do not edit. -->

Every rewrite of graphs, by the pass that runs it, in the order of the pipeline. `explain()` lists which fired
where, and which were refused and why; `disabled_pass=["slice_slice"]` or `--disable-pass slice_slice` switches one
off, `enabled_pass` one on that is off by itself. A level (`none`, `basic`, `extended`, `all`) runs what runs from
it or from a lower one on.

Exactness: *bit-exact* rewrites change no bit of a result, NaN included. *Reassociating* ones are equal in real
arithmetic; rounding differs, and infinities may meet in another sum, or in none. *Approximate* ones, and those that
ask for more than the standard promises, such as inputs without NaN, are never on by a level alone.

*Elsewhere* is what others call it: ORT is ONNX Runtime and OV OpenVINO (names of classes), TVM its passes on Relay;
onnxsim runs onnxoptimizer's passes and folds constants in between. [Adding one](add-a-pass.md) is a value in a file
of `graph_ir/rules`.
"""


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    tuples = (v for m in MODULES for v in vars(m).values() if isinstance(v, tuple))
    return {r.name: r for t in tuples for r in t if isinstance(r, Rule)}


def passes() -> list[Pass]:
    """Every pass once, in the order of the pipeline."""
    return list(dict.fromkeys((*PASSES, *FUSED_PASSES, *FILE_PASSES)))


def render() -> str:
    """The whole page."""
    known, shown = rules(), set[str]()
    lines = [HEAD, *_overview()]
    for p in passes():
        own = [known[r] for r in p.rules if r in known and r not in shown]
        shown |= {r.name for r in own}
        lines += _section(p, own)
    lines += ["## What other tools have and this one has not", "", "| there | why not here |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in sorted(MISSING.items())]
    return "\n".join(lines) + "\n"


def _overview() -> Iterator[str]:
    """The passes in the order in which they run, those that run twice twice."""
    yield "## The passes in their order"
    yield ""
    yield "A build runs the first two groups. The third is for graphs that become files (`simplify`)."
    for title, group in (
        ("Graph to graph", PASSES), ("Nodes to groups, values to places", FUSED_PASSES), ("To files", FILE_PASSES)
    ):  # fmt: skip
        yield from ("", f"| {title} | level | rules | exactness | |", "|---|---|---|---|---|")
        for p in group:
            level = p.level.name.lower() if p.level and p not in FUSED_PASSES else "every"
            notes = ["off unless enabled"] * p.optional + ["cannot be disabled"] * p.required
            cells = (f"[`{p.name}`](#{p.name})", level, str(len(p.rules) or ""), p.exactness.value, ", ".join(notes))
            yield f"| {' | '.join(cells)} |"
    yield ""


def _section(p: Pass, own: list[Rule]) -> Iterator[str]:
    level = (
        "where graphs become files"
        if p in FILE_PASSES
        else f"from `{p.level.name.lower()}` on"
        if p.level
        else "at all levels"
    )
    yield f"## {p.name}"
    yield ""
    yield f"{_sentence(p)} Runs {level}{', if it is enabled' if p.optional else ''}."
    if p.name in ELSEWHERE:
        yield f"Elsewhere: {ELSEWHERE[p.name]}."
    yield ""
    if own:
        yield "| rule | equation | exactness | elsewhere |"
        yield "|---|---|---|---|"
        for r in own:
            off = ", off by itself" if r.exactness is Exactness.APPROXIMATE else ""
            equation = r.equation.replace("|", "\\|")
            yield f"| `{r.name}` | {equation} | {r.exactness.value}{off} | {ELSEWHERE.get(r.name, '')} |"
        yield ""


def _sentence(p: Pass) -> str:
    """What the pass gives, by its function's docstring; for a pass of rules, which these are."""
    if p not in FUSED_PASSES and p.rules:
        return f"{len(p.rules)} rules; those of passes above are not listed again."
    text = (getattr(p.run, "func", p.run).__doc__ or p.name).split("\n\n")[0]
    return first_sentence(inline(text)).split(";")[0].rstrip(".") + "."


def unknown_names() -> list[str]:
    """Entries of ELSEWHERE that are no rule or pass."""
    return sorted(set(ELSEWHERE) - set(rules()) - {p.name for p in passes()})


PAGE = GeneratedPage(__file__, "rewrites.md", render)

if __name__ == "__main__":
    sys.exit(PAGE.main())
