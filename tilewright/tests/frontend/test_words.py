"""A word that an attribute may not have is refused: taken for the default, it would be another program."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, helper

import tilewright
from tilewright.core.errors import ModelError
from tilewright.frontend.words import WORDS, check_word
from tilewright.tests.frontend.models import model_of


@pytest.mark.parametrize(("op", "attribute"), WORDS)
def test_other_words_are_refused(op: str, attribute: str) -> None:
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == ("", op)]
    specs = [s.attributes[attribute] for s in schemas if attribute in s.attributes]
    assert specs, "of no version"
    known = WORDS[op, attribute]
    for spec in specs:
        assert spec.type == onnx.defs.OpSchema.AttrType.STRING
        if spec.default_value.type == AttributeProto.STRING:
            assert spec.default_value.s.decode().replace("foward", "forward") in known  # of GRU, once
    for word in known:
        check_word(op, attribute, word, "node")
    with pytest.raises(ModelError, match=f"^node: attribute '{attribute}' expected one of .*{known[0]}.*, got 'foo'"):
        check_word(op, attribute, "foo", "node")


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (helper.make_node("MaxPool", ["x"], ["y"], "p", kernel_shape=[3, 3], auto_pad="same_upper"),
         r"node 'p' \(MaxPool\): attribute 'auto_pad' expected one of .*, got 'same_upper'; did you mean 'SAME_UPP"),
        (helper.make_node("Resize", ["x", "", "s"], ["y"], nearest_mode="flor"), "got 'flor'; did you mean 'floor'"),
        (helper.make_node("Gelu", ["x"], ["y"], approximate="tan\nh"), r"got 'tan\\nh'"),
        (helper.make_node("DepthToSpace", ["x"], ["y"], blocksize=2, mode=b"\xff"), "attribute 'mode' expected one of"),
    ],
)  # fmt: skip
def test_in_a_model(node: onnx.NodeProto, message: str) -> None:
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    with pytest.raises(ModelError, match=message) as e:
        tilewright.compile(model_of([node], {"x": [1, 4, 4, 4]}, ["y"], 20, constants=scales), progress=False)
    assert "\n" not in str(e.value)
