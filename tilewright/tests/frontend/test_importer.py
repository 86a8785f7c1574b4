"""Names, scopes, dims, functions, the report of what is not supported, and the errors of malformed models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.arith.parse import parse
from tilewright.core.errors import InputError, ModelError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.frontend.importer import has_operator
from tilewright.graph_ir.interpreter import interpret
from tilewright.graph_ir.ir import walk_graphs
from tilewright.tests.frontend.models import MODELS, control, functions, model_of

FLOAT = TensorProto.FLOAT


def relu(**dims: Any) -> onnx.ModelProto:
    return model_of([helper.make_node("Relu", ["x"], ["y"], "act")], {"x": dims["x"]}, ["y"])


def shape_of(model: onnx.ModelProto, **kwargs: Any) -> list[str]:
    graph = from_onnx(model, **kwargs)
    return [str(d) for d in graph.values[graph.outputs[0]].shape]


# -- dims ------------------------------------------------------------------------------------------------------------
def test_dim_names_become_symbols() -> None:
    dims = shape_of(relu(x=["batch", "s0 + 1", "s0_1", None, "class", "min", "2x", "s0 + 1"]))
    assert dims == ["batch", "s0_1", "s0_1_1", "x_d3", "d_class", "d_min", "d_2x", "s0_1"]
    for d in dims:
        assert parse(d).free_vars() == {d}


def test_overrides_by_input_and_by_dim() -> None:
    model = relu(x=["batch", 3, "s0 + 1"])
    assert shape_of(model, input_shapes={"x": (1, 3, "n")}) == ["1", "3", "n"]
    assert shape_of(model, input_shapes={"batch": 4}) == ["4", "3", "s0_1"]
    assert shape_of(model, input_shapes={"s0 + 1": 5}) == ["batch", "3", "5"]
    assert shape_of(model, input_shapes={"x": ("batch", 7, 8), "batch": 2}) == ["2", "7", "8"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": (1,)}, r"no input 'z', inputs are \['x'\]"),
        ({"z": 1}, r"no dimension 'z', dimensions are \['batch'\]"),
        ({"x": (1, 2, 3)}, "expected 2 dims"),
        ({"x": (1, -2)}, "expected sizes in"),
        ({"batch": 2**41}, "expected sizes in"),
        ({"x": "1,2"}, "expected a shape or a size"),
        ({"x": (1, 2.5)}, "expected sizes in"),
    ],
)
def test_wrong_overrides_are_refused(shapes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        from_onnx(relu(x=["batch", 3]), input_shapes=shapes)


@pytest.mark.parametrize("dims", [[-1, 3], [2**41, 1], [2**20, 2**20]])
def test_impossible_dims_are_refused(dims: list[int]) -> None:
    with pytest.raises(ModelError, match=r"0\.\.2\*\*40|at most 2\*\*31"):
        from_onnx(relu(x=dims))


# -- names and scopes ------------------------------------------------------------------------------------------------
def test_names_are_unique_over_all_subgraphs() -> None:
    graph = from_onnx(control())
    seen: list[str] = []
    for g in walk_graphs(graph):
        seen += [*g.inputs, *g.constants, *(o for n in g.nodes for o in n.outputs if o)]
    assert len(seen) == len(set(seen))
    names = [n.name for g in walk_graphs(graph) for n in g.nodes]
    assert len(names) == len(set(names))
    assert graph.outputs == ("last", "all")


def test_import_is_deterministic() -> None:
    def listing() -> list[tuple[object, ...]]:
        return [(n.name, n.op, n.inputs, n.outputs) for g in walk_graphs(from_onnx(functions())) for n in g.nodes]

    assert listing() == listing()


def test_the_users_model_is_not_changed() -> None:
    for make in MODELS.values():
        model = make()
        before = model.SerializeToString(deterministic=True)
        from_onnx(model)
        assert model.SerializeToString(deterministic=True) == before


def test_nodes_are_sorted_where_they_are_not() -> None:
    nodes = [helper.make_node("Relu", ["t"], ["y"]), helper.make_node("Neg", ["x"], ["t"])]
    assert [n.op for n in from_onnx(model_of(nodes, {"x": [1]}, ["y"])).nodes] == ["Neg", "Relu"]


def test_an_initializer_that_is_an_input_is_a_constant() -> None:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [2], "w": [2]}, ["y"],
                     constants={"w": np.ones(2, np.float32)})  # fmt: skip
    graph = from_onnx(model)
    assert graph.inputs == ("x",)
    assert set(graph.constants) == {"w"}


def test_absent_optional_inputs_and_outputs() -> None:
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((1, 8, 3)), "r": rng.standard_normal((1, 8, 2)), "h": np.zeros((1, 1, 2))}
    node = helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["", "last"], hidden_size=2)
    model = model_of([node], {"x": [4, 1, 3]}, ["last"],
                     constants={k: v.astype(np.float32) for k, v in weights.items()})  # fmt: skip
    (lstm,) = from_onnx(model).nodes
    assert lstm.inputs == ("x", "w", "r", "", "", "h")
    assert lstm.outputs == ("", "last")


def test_element_type_attributes_are_types() -> None:
    model = model_of([helper.make_node("Cast", ["x"], ["y"], to=TensorProto.INT8)], {"x": [1]}, ["y"],
                     out_dtype=TensorProto.INT8)  # fmt: skip
    assert str(from_onnx(model).nodes[0].attr("to")) == "int8"


# -- functions -------------------------------------------------------------------------------------------------------
def test_standard_functions_are_expanded_if_not_native() -> None:
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    for op, attrs in (("Softplus", {}), ("HardSwish", {}), ("LayerNormalization", {"axis": -1}), ("Gelu", {}),
                      ("Softmax", {}), ("Clip", {}), ("LeakyRelu", {"alpha": 0.3}), ("Mish", {})):  # fmt: skip
        inputs, constants = ["x"], {}
        if op == "LayerNormalization":
            inputs, constants = ["x", "s"], {"s": np.arange(6, dtype=np.float32)}
        elif op == "Clip":
            inputs, constants = ["x", "", "s"], {"s": np.array(0.5, np.float32)}
        model = model_of([helper.make_node(op, inputs, ["y"], "n", **attrs)], {"x": [2, 6]}, ["y"], constants=constants)
        whole = from_onnx(model)
        expanded = from_onnx(model, native=lambda o, op=op: o != op and has_operator(o))
        assert op not in [n.op for n in expanded.nodes]
        assert len(expanded.nodes) > 1
        want = interpret(whole, {"x": x})["y"]
        np.testing.assert_allclose(interpret(expanded, {"x": x})["y"], want, rtol=1e-4, atol=1e-5)


def test_a_function_that_calls_itself_is_refused() -> None:
    f = helper.make_function("local", "f", ["a"], ["r"], [helper.make_node("f", ["a"], ["r"], domain="local")],
                             [helper.make_opsetid("local", 1)])  # fmt: skip
    model = model_of([helper.make_node("f", ["x"], ["y"], domain="local")], {"x": [1]}, ["y"], functions=[f],
                     domains={"local": 1})  # fmt: skip
    with pytest.raises(ModelError, match=r"function 'f' calls itself"):
        from_onnx(model)


def test_functions_that_double_at_each_level_are_refused() -> None:
    opsets = [helper.make_opsetid("local", 1), helper.make_opsetid("", 18)]
    fs = [helper.make_function("local", "f0", ["a"], ["r"], [helper.make_node("Neg", ["a"], ["r"])], opsets)]
    for k in range(1, 25):
        calls = [helper.make_node(f"f{k - 1}", [i], [o], domain="local") for i, o in (("a", "t"), ("t", "r"))]
        fs.append(helper.make_function("local", f"f{k}", ["a"], ["r"], calls, opsets))
    model = model_of([helper.make_node("f24", ["x"], ["y"], domain="local")], {"x": [1]}, ["y"], 18, functions=fs,
                     domains={"local": 1})  # fmt: skip
    with pytest.raises(ModelError, match=r"expands to more than"):
        from_onnx(model)


def test_deep_function_calls_are_refused() -> None:
    opsets = [helper.make_opsetid("local", 1), helper.make_opsetid("", 18)]
    fs = [helper.make_function("local", "f0", ["a"], ["r"], [helper.make_node("Neg", ["a"], ["r"])], opsets)]
    for k in range(1, 41):
        inner = helper.make_node(f"f{k - 1}", ["a"], ["r"], domain="local")
        fs.append(helper.make_function("local", f"f{k}", ["a"], ["r"], [inner], opsets))
    model = model_of([helper.make_node("f40", ["x"], ["y"], domain="local")], {"x": [1]}, ["y"], 18, functions=fs,
                     domains={"local": 1})  # fmt: skip
    with pytest.raises(ModelError, match=r"nested deeper than 32"):
        from_onnx(model)


def test_messages_nested_deeper_than_protobuf_allows_are_refused() -> None:
    content = bytes(2000)
    for k in range(120):  # attribute.g -> graph.node -> node.attribute -> ...
        field = (6, 5, 1)[k % 3]
        length = len(content)
        content = bytes([field << 3 | 2, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + content
    length = len(content)
    data = bytes([7 << 3 | 2, length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + content
    with pytest.raises(ModelError, match=r"nested deeper|not an ONNX model"):
        from_onnx(data)


# -- the report ------------------------------------------------------------------------------------------------------
def test_everything_unsupported_is_in_one_report() -> None:
    body = helper.make_graph([helper.make_node("Nope", ["x"], ["r"], "inside")], "b", [],
                             [helper.make_tensor_value_info("r", FLOAT, None)])  # fmt: skip
    f = helper.make_function("local", "f", ["a"], ["r"], [helper.make_node("Odd", ["a"], ["r"], "deep", domain="acme")],
                             [helper.make_opsetid("acme", 3)])  # fmt: skip
    nodes = [
        *(helper.make_node("Nope", ["x"], [f"n{k}"], f"n{k}") for k in range(7)),
        helper.make_node("If", ["c"], ["i"], then_branch=body, else_branch=body),
        helper.make_node("f", ["x"], ["u"], domain="local"),
        helper.make_node("Binarizer", ["x"], ["y"], domain="ai.onnx.ml"),
    ]
    model = model_of(nodes, {"x": [1]}, ["y"], 18, constants={"c": np.array(True)}, functions=[f],
                     domains={"local": 1, "ai.onnx.ml": 3})  # fmt: skip
    with pytest.raises(UnsupportedError) as e:
        from_onnx(model)
    text = str(e.value)
    assert "not supported (3 findings)" in text
    assert "Nope (version 18) on float32: unknown operator; 9 nodes: n0, n1, n2, n3, n4, ..." in text
    assert "acme.Odd (version 3) on ?: unknown operator or domain; 1 node: f/deep" in text
    assert "ai.onnx.ml.Binarizer (version 3) on float32: not implemented; 1 node: (unnamed, makes y)" in text


def test_a_later_stage_can_say_what_is_native() -> None:
    with pytest.raises(UnsupportedError, match=r"Conv .version 9. on float32, float32: not impl.* 1 node: conv"):
        from_onnx(MODELS["convnet"](), native=lambda op: op != "Conv" and has_operator(op))


def test_an_old_form_without_converter_is_reported() -> None:
    body = helper.make_graph([helper.make_node("Neg", ["a"], ["b"])], "b",
                             [helper.make_tensor_value_info("a", FLOAT, [1])],
                             [helper.make_tensor_value_info("b", FLOAT, [1])])  # fmt: skip
    scan = helper.make_node("Scan", ["", "x"], ["y"], num_scan_inputs=1, body=body)
    with pytest.raises(UnsupportedError, match=r"Scan .version 8.* has a batch axis"):
        from_onnx(model_of([scan], {"x": [1, 2, 1]}, ["y"], 8))


# -- errors ----------------------------------------------------------------------------------------------------------
def add(**changes: Any) -> onnx.ModelProto:
    model = model_of([helper.make_node("Add", ["x", "w"], ["y"], "sum")], {"x": [2]}, ["y"],
                     constants={"w": np.ones(2, np.float32)})  # fmt: skip
    for change in changes.values():
        change(model)
    return model


def node(op: str, inputs: list[str], outputs: list[str], **attrs: Any) -> Callable[[onnx.ModelProto], None]:
    return lambda m: m.graph.node.append(helper.make_node(op, inputs, outputs, "extra", **attrs))


def call(text: str) -> Callable[[onnx.ModelProto], None]:
    return lambda m: exec(text, {"m": m, "helper": helper, "numpy_helper": numpy_helper, "np": np})


MALFORMED = [
    (call("del m.graph.initializer[:]"), "node 'sum' .Add.: expected a definition of input 'w', got none"),
    (call("m.graph.output[0].name = 'z'"), "expected a definition of output 'z', got none"),
    (call("m.graph.node[0].input[1] = 'y'"), "nodes form a cycle: sum"),
    (node("Neg", ["x"], ["y"]), "value 'y' is defined twice"),
    (call("m.graph.initializer.append(m.graph.initializer[0])"), "value 'w' is defined twice"),
    (node("Neg", ["x", "x"], ["q"]), "node 'extra' .Neg.: expected 1 inputs, got 2"),
    (node("Neg", ["x"], ["q"], alpha=1.0), "unknown attribute 'alpha'"),
    (node("Softmax", ["x"], ["q"], axis=1.0), "attribute 'axis' expected INT, got FLOAT"),
    (node("Cast", ["x"], ["q"]), "attribute 'to' expected, got none"),
    (node("Cast", ["x"], ["q"], to=77), "unknown ONNX element type number 77"),
    (node("MatMul", ["x", "big"], ["q"]), "expected a definition of input 'big'"),
    (call("m.graph.initializer[0].raw_data = b'123'"), "initializer 'w': .* needs 8 bytes of data, got 3"),
    (call("m.opset_import[0].version = 99"), "expected an ONNX opset of 7 to"),
    (call("m.ir_version = 99"), "expected ir_version 1 to"),
    (call("m.ClearField('graph')"), "expected a graph, got none"),
    (call("m.graph.output[0].type.tensor_type.elem_type = 7"), "output 'y': declared with element type number 7"),
    (call("m.graph.input[0].ClearField('type')"), "value 'x': expected a type, got none"),
    (call("m.graph.input[0].name = ''"), "has no name|expected a definition"),
    (call("m.graph.output.append(m.graph.output[0])"), "expected different outputs"),
]


@pytest.mark.parametrize(("change", "message"), MALFORMED)
def test_malformed_models_get_one_line(change: Callable[[onnx.ModelProto], None], message: str) -> None:
    with pytest.raises(ModelError, match=message) as e:
        from_onnx(add(change=change))
    assert "\n" not in str(e.value)


@pytest.mark.parametrize("data", [b"", b"hello world, this is no model", b"\xff" * 100, b"\x00" * 50])
def test_other_files_are_refused(data: bytes) -> None:
    with pytest.raises(ModelError, match=r"model"):
        from_onnx(data)


def test_missing_files_and_wrong_arguments_are_refused() -> None:
    with pytest.raises(ModelError, match=r"cannot read /nowhere/m.onnx: No such file"):
        from_onnx("/nowhere/m.onnx")
    with pytest.raises(ModelError, match=r"cannot read /"):
        from_onnx("/")
    with pytest.raises(ModelError, match=r"expected a path, bytes or an onnx.ModelProto, got int"):
        from_onnx(3)  # type: ignore[arg-type]
