"""What the simplifier makes of models, and that it gives what they give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import tilewright
from tilewright.simplification.options import SimplifyOptions
from tilewright.simplification.simplify import Simplified, simplify_model
from tilewright.tests.quantization.models import model_of, normal
from tilewright.tests.simplification.models import classifier, flattening, foreign, integers, past_and_mask


def simplified(model: onnx.ModelProto, **options: object) -> Simplified:
    """The model simplified and compared with the original at two sizes where it has symbolic ones."""
    done = simplify_model(model, SimplifyOptions(**options))  # type: ignore[arg-type]
    onnx.checker.check_model(done.to_onnx(), full_check=True)
    return done


def ops(done: Simplified) -> str:
    return " ".join(n.op_type for n in done.to_onnx().graph.node)


def test_a_network_of_symbolic_sizes() -> None:
    done = simplified(classifier())
    assert ops(done) == "Conv Relu GlobalAveragePool Reshape Gemm"
    assert done.checked is not None
    assert done.checked.cases == ("batch=2, height=7, width=9", "batch=1, height=16, width=24")
    assert sum(done.before.values()) == 12
    result = done.to_onnx()
    assert [d.dim_param for d in result.graph.input[0].type.tensor_type.shape.dim][2:] == ["height", "width"]
    assert result.opset_import[0].version == 17


def test_level_basic_keeps_what_is_computed() -> None:
    done = simplified(classifier(), level="basic")
    assert ops(done) == "Conv BatchNormalization Relu GlobalAveragePool Reshape MatMul Add"


def test_fixed_sizes() -> None:
    done = simplified(classifier(), input_shapes={"x": (2, 3, 8, 8)})
    dims = done.to_onnx().graph.output[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [2, 5]
    assert done.checked is not None
    assert done.checked.cases == ("",)


def test_the_model_given_stays_as_it_is() -> None:
    model = classifier()
    before = model.SerializeToString(deterministic=True)
    result = tilewright.simplify(model)
    assert model.SerializeToString(deterministic=True) == before
    assert len(result.graph.node) == 5


def test_operators_that_the_opset_lacks_are_not_made() -> None:
    nodes = [
        helper.make_node("Div", ["x", "root"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["gate"]),
        helper.make_node("Mul", ["x", "gate"], ["gated"]),
        helper.make_node("Mul", ["gated", "half"], ["y"]),
    ]
    constants = {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    model = model_of(nodes, {"x": ("n", 8)}, ["y"], constants)
    done = simplified(model)
    assert ops(done) == "Div Erf Add Mul Mul"
    assert ("gelu_erf", "opset 17 has no Gelu") in [(r.what, r.reason) for r in done.refusals()]
    assert ops(simplified(model, opset=20)) == "Gelu"


def test_norm_of_groups_from_means() -> None:
    """Five nodes that onnxruntime has kernels for; the operator, which it computes by definition, on request, and where
    the opset means the same by it."""
    nodes = [
        helper.make_node("Reshape", ["x", "groups"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["mean"], axes=[2]),
        helper.make_node("Sub", ["r", "mean"], ["d"]),
        helper.make_node("Mul", ["d", "d"], ["q"]),
        helper.make_node("ReduceMean", ["q"], ["variance"], axes=[2]),
        helper.make_node("Add", ["variance", "epsilon"], ["shifted"]),
        helper.make_node("Sqrt", ["shifted"], ["deviation"]),
        helper.make_node("Div", ["d", "deviation"], ["n"]),
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Reshape", ["n", "shape"], ["back"]),
        helper.make_node("Mul", ["back", "gain"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["y"]),
    ]
    constants = {"epsilon": np.float32(1e-5), "gain": normal(1, 6, 1, 1), "bias": normal(2, 6, 1, 1)}
    model = model_of(nodes, {"x": ("n", 6, "h", "w")}, ["y"], constants)
    model.graph.initializer.extend(integers({"groups": [0, 3, -1]}))
    parts = "Reshape InstanceNormalization Shape Reshape Mul Add"
    assert ops(simplified(model)) == parts
    assert ops(simplified(model, opset=21)) == parts
    assert ops(simplified(model, opset=21, enabled_pass=["group_norm"])) == "GroupNormalization"
    for opset, reason in ((17, "opset 17 has no GroupNormalization"), (18, "it means this from opset 21 on")):
        done = simplified(model, opset=opset, enabled_pass=["group_norm"])
        assert ops(done) == parts
        assert [r.what for r in done.refusals() if r.reason.endswith(reason)] == ["group_norm"]


def test_loop_over_a_cell() -> None:
    """Three steps of nn.GRUCell, with a batch of any size: one GRU."""
    nodes, h = [], "h"
    for t in range(3):
        nodes += [
            helper.make_node("Gather", ["x", f"at{t}"], [f"x{t}"], axis=1),
            helper.make_node("Gemm", [f"x{t}", "w", "b"], [f"i{t}"], transB=1),
            helper.make_node("Gemm", [h, "r", "d"], [f"s{t}"], transB=1),
            helper.make_node("Split", [f"i{t}", "sizes"], [f"ir{t}", f"iz{t}", f"in{t}"], axis=1),
            helper.make_node("Split", [f"s{t}", "sizes"], [f"sr{t}", f"sz{t}", f"sn{t}"], axis=1),
            helper.make_node("Add", [f"ir{t}", f"sr{t}"], [f"rs{t}"]),
            helper.make_node("Sigmoid", [f"rs{t}"], [f"r{t}"]),
            helper.make_node("Add", [f"iz{t}", f"sz{t}"], [f"zs{t}"]),
            helper.make_node("Sigmoid", [f"zs{t}"], [f"z{t}"]),
            helper.make_node("Mul", [f"r{t}", f"sn{t}"], [f"kept{t}"]),
            helper.make_node("Add", [f"in{t}", f"kept{t}"], [f"ns{t}"]),
            helper.make_node("Tanh", [f"ns{t}"], [f"n{t}"]),
            helper.make_node("Sub", [h, f"n{t}"], [f"d{t}"]),
            helper.make_node("Mul", [f"d{t}", f"z{t}"], [f"part{t}"]),
            helper.make_node("Add", [f"part{t}", f"n{t}"], [f"h{t}"]),
            helper.make_node("Unsqueeze", [f"h{t}", "one"], [f"y{t}"]),
        ]
        h = f"h{t}"
    nodes.append(helper.make_node("Concat", ["y0", "y1", "y2"], ["y"], axis=1))
    weights = {"w": normal(1, 15, 4), "b": normal(2, 15), "r": normal(3, 15, 5), "d": normal(4, 15)}
    model = model_of(nodes, {"x": ("n", 3, 4), "h": ("n", 5)}, ["y"], weights)
    model.graph.initializer.extend(integers({"sizes": [5] * 3, "one": [1], "at0": 0, "at1": 1, "at2": 2}))
    assert ops(simplified(model)) == "Unsqueeze Transpose GRU Squeeze Transpose"


def test_passes_on_request() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["s"]),
        helper.make_node("Mul", ["s", "half"], ["y"]),
    ]
    weights = {"w": normal(1, 4, 5), "b": normal(2, 5), "half": np.float32(0.3)}
    model = model_of(nodes, {"x": ("n", 3, 4)}, ["y"], weights)
    assert ops(simplified(model)) == "MatMul Add Mul"
    assert ops(simplified(model, enabled_pass=["fold_into_weights"])) == "MatMul Add"


def test_sizes_that_the_model_relates_are_tried_as_it_needs_them() -> None:
    done = simplified(past_and_mask())
    assert done.checked is not None
    assert done.checked.cases == ("n=2, past_len=7, len=9, total=16", "n=1, past_len=16, len=24, total=40")
    assert not done.checked.notes


def test_foreign_nodes_are_passed_by() -> None:
    done = simplified(foreign())
    assert ops(done) == "Secret Add"
    assert done.to_onnx().graph.node[0].attribute[0].i == 3
    assert done.checked is not None
    assert done.checked.runtime is None
    assert "does not take the model" in done.checked.notes[0]


def test_outputs_and_inputs_that_nobody_asks_for() -> None:
    nodes = [
        helper.make_node("Relu", ["a"], ["y"], "relu"),
        helper.make_node("Add", ["a", "b"], ["z"], "sum"),
    ]
    model = model_of(nodes, {"a": ("n",), "b": ("n",)}, ["y", "z"], {})
    done = simplified(model, outputs=["y"])
    assert (ops(done), done.unread) == ("Relu", ("b",))
    assert [i.name for i in done.to_onnx().graph.input] == ["a", "b"]
    gone = simplified(model, drop_outputs="z", drop_inputs=True)
    assert [i.name for i in gone.to_onnx().graph.input] == ["a"]


def test_quantized_operators_stay_between_their_pairs() -> None:
    from tilewright.tests.quantization.models import residual, samples

    model = residual()
    quantized = tilewright.quantize(model, samples(model), runtime="tilewright")
    done = simplified(quantized)
    for op in ("QuantizeLinear", "Conv", "Gemm"):
        assert done.before[op] == done.after[op]
    graph = done.to_onnx().graph
    producers = {o: n.op_type for n in graph.node for o in n.output}
    weights = [producers.get(n.input[1]) for n in graph.node if n.op_type in ("Conv", "Gemm")]
    assert weights == ["DequantizeLinear"] * 3


def test_control_flow() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node("Identity", ["x"], [f"{name}_i"]), helper.make_node(op, [f"{name}_i"], [name])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])

    nodes = [
        helper.make_node("Identity", ["yes"], ["known"]),
        helper.make_node("If", ["known"], ["a"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Abs")),
        helper.make_node("ReduceSum", ["a"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["open"], to=TensorProto.BOOL),
        helper.make_node("If", ["open"], ["y"], then_branch=branch("t2", "Neg"), else_branch=branch("e2", "Abs")),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor("yes", TensorProto.BOOL, [], [True])],
    )  # fmt: skip
    done = simplified(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert ops(done) == "Neg ReduceSum Cast If"
    assert done.after["Abs"] == 1
    assert "Identity" not in done.after


def test_initializers_that_are_inputs_become_constants() -> None:
    model = classifier()
    for t in model.graph.initializer:
        model.graph.input.add(name=t.name, type=helper.make_tensor_type_proto(t.data_type, t.dims))
    model.ir_version = 3
    result = tilewright.simplify(model, check=False)
    assert [i.name for i in result.graph.input] == ["x"]
    assert result.ir_version >= 4


def test_a_constant_is_folded_where_the_file_does_not_grow() -> None:
    nodes = [
        helper.make_node("Expand", ["one", "target"], ["large"]),
        helper.make_node("Add", ["x", "large"], ["y"]),
    ]
    model = model_of(nodes, {"x": (64, 64)}, ["y"], {"one": np.ones(1, np.float32)})
    model.graph.initializer.extend(integers({"target": [64, 64]}))
    done = simplified(model, disabled_pass=["simplify"])
    assert ops(done) == "Expand Add"
    assert done.refusals()[0].reason == "the result is 16364 bytes larger than its operands"
    assert ops(simplified(model, disabled_pass=["simplify"], growth_bytes=1 << 14)) == "Add"


def test_a_view_of_a_constant_that_stays_is_not_stored_twice() -> None:
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Transpose", ["table"], ["turned"]),
        helper.make_node("MatMul", ["rows", "turned"], ["y"]),
    ]
    model = model_of(nodes, {}, ["y"], {"table": normal(1, 64, 48)})
    model.graph.input.add(name="ids", type=helper.make_tensor_type_proto(TensorProto.INT64, ["n"]))
    done = simplified(model)
    assert ops(done) == "Gather Transpose MatMul"
    assert done.bytes[1] < 1.1 * done.bytes[0]


def test_names_and_metadata_stay() -> None:
    model = classifier()
    model.metadata_props.add(key="author", value="somebody")
    result = tilewright.simplify(model, check=False)
    assert [(p.key, p.value) for p in result.metadata_props] == [("author", "somebody")]
    assert result.graph.node[0].name == "conv"
    assert result.graph.output[0].name == "y"


def test_types_between_nodes_are_written_if_the_model_has_them(tmp_path: Path) -> None:
    bare = classifier()
    del bare.graph.value_info[:]
    said = onnx.shape_inference.infer_shapes(bare)
    assert said.graph.value_info
    assert not simplified(bare).to_onnx().graph.value_info
    (first, *_) = simplified(said).to_onnx().graph.value_info
    assert [d.dim_param for d in first.type.tensor_type.shape.dim][2:] == ["height", "width"]
    assert simplified(bare, value_infos=True).to_onnx().graph.value_info
    simplified(said, value_infos=False).save(tmp_path / "bare.onnx")
    assert not onnx.load(tmp_path / "bare.onnx").graph.value_info


def test_a_large_model_is_written_beside(tmp_path: Path) -> None:
    done = simplified(classifier())
    done.save(tmp_path / "y.onnx", external_data=True)
    again = tilewright.simplify(tmp_path / "y.onnx", check=False)
    assert again.graph.node == done.to_onnx().graph.node


def test_rows_of_a_view_are_reshaped_at_once() -> None:
    nodes = [*flattening("x"), helper.make_node("Relu", ["rows"], ["y"])]
    model = model_of(nodes, {"x": ("n", 4, 5)}, ["y"], {"unused": normal(0, 3)})
    model.graph.initializer.extend(integers({"zero": 0, "at": [0], "rest": [-1]}))
    done = simplified(model)
    assert ops(done) == "Reshape Relu"
    assert len(done.to_onnx().graph.initializer) == 1
