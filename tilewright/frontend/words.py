"""Words that string attributes of ONNX's own operators may have: any other would be taken for the default."""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.core.errors import ModelError
from tilewright.core.suggestions import did_you_mean

_WINDOWS = ("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "MaxPool", "AveragePool", "LpPool")
_SCATTERS = ("ScatterElements", "ScatterND")
_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")

WORDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    **{(op, "auto_pad"): ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", "") for op in _WINDOWS},
    **{(op, "direction"): ("forward", "reverse", "bidirectional") for op in ("LSTM", "GRU", "RNN")},
    **{(op, "reduction"): ("none", "add", "mul", "max", "min") for op in _SCATTERS},
    **{(op, "reduction"): ("none", "sum", "mean") for op in _LOSSES},
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Cast", "round_mode"): ("up", "down", "nearest"),
    **{(op, "mode"): ("DCR", "CRD") for op in ("DepthToSpace", "SpaceToDepth")},
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic", "bilinear", "bicubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("ImageDecoder", "pixel_format"): ("RGB", "BGR", "Grayscale"),
    ("LinearAttention", "update_rule"): ("linear", "gated", "delta", "gated_delta"),
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_crop_and_resize", "tf_half_pixel_for_nn",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("StringNormalizer", "case_change_action"): ("NONE", "LOWER", "UPPER"),
    ("TensorScatter", "mode"): ("linear", "circular"),
    ("TfIdfVectorizer", "mode"): ("TF", "IDF", "TFIDF"),
    ("Upsample", "mode"): ("nearest", "linear", "bilinear", "cubic"),
}  # fmt: skip
"""By operator and attribute, those of all versions."""


def check_word(op: str, attribute: str, word: str, who: str) -> None:
    """Raises ModelError where the attribute may not have this word."""
    known = WORDS.get((op, attribute))
    if known is not None and word not in known:
        listed = ", ".join(filter(None, known))
        raise ModelError(f"{who}: attribute {attribute!r} expected one of {listed}, got {word!r}"
                         f"{did_you_mean(word, filter(None, known))}")  # fmt: skip
