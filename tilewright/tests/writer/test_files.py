"""Files: what is kept beside the graph, elements of every type, weights beside the model, what is in the place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from tilewright.core import dtypes
from tilewright.core.errors import InputError, ModelError, UnsupportedError
from tilewright.edit.diff import diff_graphs
from tilewright.frontend import from_onnx
from tilewright.frontend.keep import read_model
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.graph_ir.interpreter import interpret
from tilewright.tests.edit.random_graphs import random_graph
from tilewright.tests.writer.written import feeds, require_same
from tilewright.writer import save_onnx, to_onnx


def checked(model: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(model, full_check=True)
    return model


def by_name(node: onnx.NodeProto) -> list[onnx.AttributeProto]:
    return sorted(node.attribute, key=lambda a: a.name)


def again(text: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A model, and the same read and written, with no difference."""
    model = parser.parse_model(text)
    kept = read_model(model)
    written = checked(to_onnx(kept))
    assert not diff_graphs(kept.graph, read_model(written).graph)
    return model, written


FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1, "com.acme" : 2], producer_name: "exporter", model_version: 7,
 doc_string: "what it is for">
g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z) {
  [twice] h = local.Twice <scale = 3.0> (x)
  [odd] y = com.acme.Mystery <words = ["a", "b"], limit = 0.5> (h)
  z = local.Outer (x)
}
<domain: "local", opset_import: ["" : 18]> Twice <scale> (a) => (b) {
  s = Constant <value_float: float = @scale> ()
  b = Mul (a, s)
}
<domain: "local", opset_import: ["" : 18, "local" : 1]> Outer (a) => (b) { b = local.Inner (a) }
<domain: "local", opset_import: ["" : 18]> Inner (a) => (b) { b = Relu (a) }
<domain: "local", opset_import: ["" : 18]> Unused (a) => (b) { b = Relu (a) }
"""


def test_functions_and_other_domains() -> None:
    model, written = again(FUNCTIONS)
    assert [(n.domain, n.op_type, n.name) for n in written.graph.node][:2] == [
        ("local", "Twice", "twice"), ("com.acme", "Mystery", "odd"),
    ]  # fmt: skip
    assert by_name(written.graph.node[1]) == by_name(model.graph.node[1])
    assert [f.name for f in written.functions] == ["Twice", "Outer", "Inner"]
    assert {o.domain: o.version for o in written.opset_import} == {"": 18, "local": 1, "com.acme": 2}
    assert (written.producer_name, written.model_version, written.doc_string) == ("exporter", 7, "what it is for")


def test_functions_are_of_the_opset_of_their_file() -> None:
    kept = read_model(parser.parse_model(FUNCTIONS.replace("b = Relu (a) }", "b = ReduceMax (a) }")))
    with pytest.raises(UnsupportedError, match=r"function 'Inner': opset 17 cannot say its ReduceMax, .* of opset 18"):
        to_onnx(kept, 17)
    with pytest.raises(UnsupportedError, match="function 'Twice': opset 19 cannot say its Constant"):
        to_onnx(kept, 19)


def test_attributes_without_a_form_in_the_graph() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18, "com.acme" : 1]>
        g (float[4] x) => (float[4] y) { y = com.acme.Mystery (x) }""")
    node = model.graph.node[0]
    node.attribute.append(helper.make_attribute("none", [], attr_type=onnx.AttributeProto.FLOATS))
    node.attribute.append(helper.make_attribute("bytes", b"\xff\xfe"))
    node.attribute.append(helper.make_attribute("two", [numpy_helper.from_array(np.ones(k)) for k in (1, 2)]))
    node.attribute.append(helper.make_attribute("like", helper.make_tensor_type_proto(TensorProto.FLOAT, [2])))
    written = checked(to_onnx(read_model(model)))
    assert by_name(written.graph.node[0]) == by_name(node)


def test_names_texts_and_sizes() -> None:
    model = parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 18]>
        g (float[batch, seq, 4] x, float[4] unused) => (float[batch, seq, 8] y) {
            [join] c = Concat <axis = -1> (x, x)
            [act] y = Relu (c)
        }"""
    )
    for v in (model.graph.input[0], model.graph.output[0]):
        for d, name in zip(v.type.tensor_type.shape.dim, ("batch-size", "seq len"), strict=False):
            d.dim_param = name
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model.graph.input[0].doc_string = "tokens"
    model.graph.doc_string = "a graph"
    model.graph.node[0].doc_string = "a node"
    model.graph.node[0].metadata_props.add(key="from", value="layer.3")
    model.metadata_props.add(key="author", value="me")
    written = checked(to_onnx(read_model(model)))
    x, unused = written.graph.input
    assert [d.dim_param for d in x.type.tensor_type.shape.dim[:2]] == ["batch-size", "seq len"]
    assert (x.doc_string, x.type.tensor_type.shape.dim[0].denotation, unused.name) == ("tokens", "DATA_BATCH", "unused")
    first = written.graph.node[0]
    assert (first.name, first.doc_string, first.metadata_props[0].value) == ("join", "a node", "layer.3")
    assert written.graph.doc_string == "a graph"
    assert [(p.key, p.value) for p in written.metadata_props] == [("author", "me")]
    (info,) = written.graph.value_info
    assert info.name == "c"
    assert [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim] == ["batch-size", "seq len", 8]
    assert not to_onnx(read_model(model), value_infos=False).graph.value_info


def test_subgraphs_sequences_optionals_and_strings() -> None:
    again("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[n, 4] x, bool c, string[k] s, optional(float[2]) o, seq(float[m]) q)
          => (float[n, 4] y, string[k] t, bool has, float[r] last, int64 count) {
            y = If (c) <then_branch = yes () => (a) { a = Add (x, one) },
                        else_branch = no () => (b) <float[4] w = {1, 2, 3, 4}> { b = Mul (x, w) }>
            one = Constant <value = float {1}> ()
            t = Identity (s)
            has = OptionalHasElement (o)
            place = Constant <value_int = -1> ()
            last = SequenceAt (q, place)
            count = SequenceLength (q)
        }""")


def test_inputs_that_have_a_value() -> None:
    """They stay inputs, in their places, whatever order the file has."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2] w, float[2] x, float[2] v) => (float[2] y) <float[2] w = {1, 2}, float[2] v = {3, 4}>
        { h = Mul (x, w)  y = Add (h, v) }""")
    written = checked(to_onnx(read_model(model)))
    assert [i.name for i in written.graph.input] == ["w", "x", "v"]
    assert sorted(t.name for t in written.graph.initializer) == ["v", "w"]


def test_annotations_of_quantized_tensors() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 18]>
        g (float[2] x) => (float[2] y) <float s = {0.5}> { y = Mul (x, s) }""")
    note = model.graph.quantization_annotation.add(tensor_name="y")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="s")
    kept = read_model(model)
    assert checked(to_onnx(kept)).graph.quantization_annotation == model.graph.quantization_annotation
    b = GraphBuilder("other")
    without = b.build(b.op("Relu", b.input("x", "float32", (2,))))
    assert not to_onnx(kept.with_graph(without)).graph.quantization_annotation


def test_sparse_constants_are_written_in_full() -> None:
    model = parser.parse_model('<ir_version: 10, opset_import: ["" : 18]> g (float[2, 3] x) => (float[2, 3] y) '
                               "{ y = Add (x, w) }")  # fmt: skip
    values, indices = np.array([5, 7], np.float32), np.array([1, 5], np.int64)
    model.graph.sparse_initializer.append(
        helper.make_sparse_tensor(numpy_helper.from_array(values, "w"), numpy_helper.from_array(indices), [2, 3])
    )
    (w,) = checked(to_onnx(read_model(model))).graph.initializer
    assert numpy_helper.to_array(w).tolist() == [[0, 5, 0], [0, 0, 7]]


@pytest.mark.parametrize("dtype", [t for t in dtypes.ALL if t.name != "string"], ids=str)
@pytest.mark.parametrize("beside", [True, False])
def test_elements_of_every_type(dtype: dtypes.DType, beside: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    array = rng.integers(0, 2, (5, 421)).astype(np.float32).astype(dtype.numpy)
    b = GraphBuilder("g")
    graph = b.build(b.op("Identity", b.constant(array, "w")))
    save_onnx(graph, tmp_path / "m.onnx", external_data=beside)
    assert (tmp_path / "m.onnx.data").exists() == beside
    read = from_onnx(tmp_path / "m.onnx").constants["w"].array
    assert (read.dtype, read.shape, read.tobytes()) == (array.dtype, array.shape, array.tobytes())


@pytest.mark.parametrize("seed", range(4))
def test_random_graphs(seed: int, tmp_path: Path) -> None:
    graph = random_graph(np.random.default_rng(seed))
    for beside in (True, False):
        path = tmp_path / f"{beside}.onnx"
        save_onnx(graph, path, external_data=beside)
        onnx.checker.check_model(str(path), full_check=True)
        kept = read_model(path)
        assert not diff_graphs(graph, kept.graph)
        feed = feeds(graph, {"n": 3})[0]
        require_same(interpret(graph, feed), interpret(kept.graph, feed), 0.0)


def test_a_model_above_2_gb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is lowered here; ``python -m tilewright.tests.writer.large`` writes such a model."""
    b = GraphBuilder("g")
    x = b.input("x", "float32", ("n", 512))
    graph = b.build(b.op("MatMul", x, np.eye(512, dtype=np.float32)))
    monkeypatch.setattr("tilewright.writer.file.MOST_IN_ONE_FILE", 1 << 21)
    save_onnx(graph, tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx.data").exists()
    monkeypatch.setattr("tilewright.writer.file.MOST_IN_ONE_FILE", 1 << 19)
    save_onnx(graph, tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.data").stat().st_size == 4096 + 512 * 512 * 4
    assert (tmp_path / "m.onnx").stat().st_size < 1 << 12
    with pytest.raises(InputError, match=r"m.onnx: \d+ bytes are more than one ONNX file can have; expected external"):
        save_onnx(graph, tmp_path / "m.onnx", external_data=False)
    data = (tmp_path / "m.onnx.data").read_bytes()
    (tmp_path / "m.onnx.data").write_bytes(data[:-4])
    with pytest.raises(ModelError, match=r"m.onnx.data' needs 1052672 bytes, got 1052668"):
        from_onnx(tmp_path / "m.onnx")


def test_a_file_may_be_written_over_the_one_that_was_read(tmp_path: Path) -> None:
    graph = random_graph(np.random.default_rng(1))
    place = tmp_path / "m.onnx"
    save_onnx(graph, place, external_data=True)
    for _ in range(2):
        kept = read_model(place)
        save_onnx(kept, place, external_data=True)
        assert not diff_graphs(graph, read_model(place).graph)
    assert [p.key for p in onnx.load(place).metadata_props] == ["tilewright"]


def test_opsets_that_there_are() -> None:
    graph = random_graph(np.random.default_rng(0))
    for opset in (6, 10**6, "17", 17.5):
        with pytest.raises(InputError, match="opset: expected a version from 7 to"):
            to_onnx(graph, opset)  # type: ignore[arg-type]
    assert to_onnx(graph, 7).opset_import[0].version == 7


def test_what_reads_an_unknown_type_is_not_said_in_words_that_changed() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["" : 13, "com.acme" : 1]>
        g (float[4] x) => (float[n, m, k] y) { h = com.acme.Mystery (x)  y = Softmax <axis = 1> (h) }""")
    kept = read_model(model)
    checked(to_onnx(kept, 20))
    with pytest.raises(
        UnsupportedError, match=r"Softmax.*the rank of 'h' is not known; the lowest opset that can is 13"
    ):
        to_onnx(kept, 11)
