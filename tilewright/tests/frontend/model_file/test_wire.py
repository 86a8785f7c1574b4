"""Large tensors are views of the model's bytes or parts of its file, whatever the field; bad bytes are refused."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.core.errors import ModelError
from tilewright.core.io.stored import StoredArray, loaded
from tilewright.frontend import from_onnx
from tilewright.frontend.model_file.source import Source, open_source
from tilewright.frontend.model_file.tensors import read_tensor
from tilewright.frontend.model_file.wire import split_payloads
from tilewright.tests.frontend.models import model_of


def tensor(code: int, dims: list[int], **fields: object) -> onnx.TensorProto:
    return TensorProto(name="t", data_type=code, dims=dims, **fields)


def read(t: onnx.TensorProto) -> np.ndarray:
    return loaded(read_tensor(Source(onnx.ModelProto()), t, "tensor 't'"))


def with_weight(w: np.ndarray) -> onnx.ModelProto:
    return model_of([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [1]}, ["y"], constants={"w": w})


def test_a_weight_is_a_view_of_the_bytes() -> None:
    w = np.random.default_rng(0).standard_normal((40, 50)).astype(np.float32)
    data = with_weight(w).SerializeToString()
    graph = from_onnx(data)
    got = graph.constants["w"].array
    np.testing.assert_array_equal(got, w)
    assert np.shares_memory(got, np.frombuffer(data, np.uint8))
    assert not got.flags.writeable


def test_a_weight_of_a_file_is_described_and_read_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(with_weight(np.ones((400, 500), np.float32)), path)
    source = open_source(path)
    assert len(source.model.SerializeToString()) < 1000
    assert len(source.spans) == 1
    got = read_tensor(source, source.model.graph.initializer[0], "w")
    assert isinstance(got, StoredArray)
    assert (got.shape, got.dtype, got.nbytes) == ((400, 500), np.float32, 800_000)
    array = got.array()
    assert array.sum() == 200_000
    assert not array.flags.writeable


def test_a_weight_of_bytes_that_may_be_written_to_is_a_copy() -> None:
    w = np.arange(2000, dtype=np.float32)
    data = bytearray(with_weight(w).SerializeToString())
    graph = from_onnx(memoryview(data))
    data[:] = bytes(len(data))
    np.testing.assert_array_equal(graph.constants["w"].array, w)


@pytest.mark.parametrize("field", ["float_data", "double_data"])
def test_packed_fields_are_views(field: str) -> None:
    code, dt = (TensorProto.FLOAT, np.float32) if field == "float_data" else (TensorProto.DOUBLE, np.float64)
    w = np.arange(700, dtype=dt)
    model = model_of([helper.make_node("Mul", ["x", "w"], ["y"])], {"x": [1]}, ["y"], dtype=code)
    model.graph.initializer.append(TensorProto(name="w", data_type=code, dims=[700], **{field: w.tolist()}))
    data = model.SerializeToString()
    got = from_onnx(data).constants["w"].array
    np.testing.assert_array_equal(got, w)
    assert np.shares_memory(got, np.frombuffer(data, np.uint8))


def test_weights_in_constant_nodes_subgraphs_and_functions_are_views() -> None:
    w = np.arange(1000, dtype=np.float32)
    const = helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w))
    branch = helper.make_graph(
        [const, helper.make_node("Add", ["x", "w"], ["r"])], "b", [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "unused")],
    )  # fmt: skip
    f = helper.make_function("local", "f", ["a"], ["r"], [const, helper.make_node("Add", ["a", "w"], ["r"])],
                             [helper.make_opsetid("", 18)])  # fmt: skip
    nodes = [
        helper.make_node("If", ["c"], ["p"], then_branch=branch, else_branch=branch),
        helper.make_node("f", ["p"], ["y"], domain="local"),
    ]
    model = model_of(nodes, {"x": [1]}, ["y"], 18, constants={"c": np.array(True)}, functions=[f], domains={"local": 1})
    data = model.SerializeToString()
    small, spans = split_payloads(memoryview(data))
    assert len(spans) == 5
    assert len(small) < 1500
    graph = from_onnx(data)
    whole = np.frombuffer(data, np.uint8)
    arrays = [c.array for c in graph.constants.values()]
    arrays += [c.array for n in graph.nodes for _, g in n.subgraphs() for c in g.constants.values()]
    large = [a for a in arrays if a.size == 1000]
    assert len(large) == 5
    assert all(np.shares_memory(a, whole) for a in large)


def test_small_tensors_stay_in_the_message() -> None:
    data = with_weight(np.ones(8, np.float32)).SerializeToString()
    small, spans = split_payloads(memoryview(data))
    assert small == data
    assert spans == ()


@pytest.mark.parametrize("at", [1, 7, 100, 2000, -1])
def test_truncated_bytes_are_refused(at: int) -> None:
    data = with_weight(np.ones(800, np.float32)).SerializeToString()
    with pytest.raises(ModelError, match=r"not an ONNX model|expected"):
        from_onnx(data[:at])


def test_a_marker_in_the_file_itself_is_refused() -> None:
    model = with_weight(np.ones(4, np.float32))
    t = model.graph.initializer[0]
    t.external_data.add(key="tilewright.payload", value="0")
    with pytest.raises(ModelError, match=r"refers to data that the file does not have"):
        from_onnx(model.SerializeToString())


# -- element types ---------------------------------------------------------------------------------------------------
RAW = [
    (TensorProto.INT4, b"\x21\xf8", [3], np.array([1, 2, -8], ml_dtypes.int4)),
    (TensorProto.UINT4, b"\x21\xf8", [4], np.array([1, 2, 8, 15], ml_dtypes.uint4)),
    (TensorProto.FLOAT4E2M1, b"\x72", [2], np.array([1, 6], ml_dtypes.float4_e2m1fn)),
    (TensorProto.BOOL, b"\x00\x01\x02", [3], np.array([False, True, True])),
    (TensorProto.FLOAT16, np.array([1.5, -2], np.float16).tobytes(), [2], np.array([1.5, -2], np.float16)),
    (TensorProto.BFLOAT16, b"\x80\x3f", [1], np.array([1], ml_dtypes.bfloat16)),
    (TensorProto.COMPLEX64, np.array([1 + 2j], np.complex64).tobytes(), [1], np.array([1 + 2j], np.complex64)),
    (TensorProto.UINT2, b"\xe4", [4], np.array([0, 1, 2, 3], ml_dtypes.uint2)),
    (TensorProto.INT2, b"\xe4", [4], np.array([0, 1, -2, -1], ml_dtypes.int2)),
    (TensorProto.INT64, b"", [0, 3], np.zeros((0, 3), np.int64)),
]


@pytest.mark.parametrize(("code", "raw", "dims", "expected"), RAW)
def test_raw_data_of_every_kind(code: int, raw: bytes, dims: list[int], expected: np.ndarray) -> None:
    got = read(tensor(code, dims, raw_data=raw))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.astype(expected.dtype), expected)


TYPED = [
    (TensorProto.FLOAT16, {"int32_data": [0x3E00]}, np.array([1.5], np.float16)),
    (TensorProto.BFLOAT16, {"int32_data": [0x3F80]}, np.array([1], ml_dtypes.bfloat16)),
    (TensorProto.FLOAT8E4M3FN, {"int32_data": [0x38]}, np.array([1], ml_dtypes.float8_e4m3fn)),
    (TensorProto.INT8, {"int32_data": [-3]}, np.array([-3], np.int8)),
    (TensorProto.UINT16, {"int32_data": [65535]}, np.array([65535], np.uint16)),
    (TensorProto.BOOL, {"int32_data": [1]}, np.array([True])),
    (TensorProto.INT4, {"int32_data": [0x0F]}, np.array([-1], ml_dtypes.int4)),
    (TensorProto.INT64, {"int64_data": [-(2**62)]}, np.array([-(2**62)], np.int64)),
    (TensorProto.UINT32, {"uint64_data": [2**32 - 1]}, np.array([2**32 - 1], np.uint32)),
    (TensorProto.UINT64, {"uint64_data": [2**64 - 1]}, np.array([2**64 - 1], np.uint64)),
    (TensorProto.COMPLEX128, {"double_data": [1.0, 2.0]}, np.array([1 + 2j])),
    (TensorProto.STRING, {"string_data": ["é".encode()]}, np.array(["é"], object)),
]


@pytest.mark.parametrize(("code", "fields", "expected"), TYPED)
def test_typed_fields_of_every_kind(code: int, fields: dict[str, object], expected: np.ndarray) -> None:
    got = read(tensor(code, [1], **fields))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


REFUSED = [
    (tensor(TensorProto.FLOAT, [3], raw_data=b"1234"), "needs 12 bytes of data, got 4"),
    (tensor(TensorProto.FLOAT, [3]), "needs 3 entries in float_data, got 0"),
    (tensor(TensorProto.FLOAT, [-1], raw_data=b""), r"dimensions must be in 0..2\*\*40"),
    (tensor(TensorProto.FLOAT, [2**40, 2**40], raw_data=b""), r"at most 2\*\*31 elements"),
    (tensor(TensorProto.STRING, [1], raw_data=b"a"), "strings cannot be stored as raw data"),
    (tensor(TensorProto.STRING, [2], string_data=[b"a"]), "2 strings expected, got 1"),
    (tensor(0, [1], raw_data=b"a"), "no element type"),
    (tensor(99, [1], raw_data=b"a"), "unknown ONNX element type number 99"),
]


@pytest.mark.parametrize(("t", "message"), REFUSED)
def test_bad_tensors_are_refused(t: onnx.TensorProto, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        read(t)


# -- external data ---------------------------------------------------------------------------------------------------
def external(tmp_path: Path, location: str, **entries: str) -> Path:
    model = with_weight(np.ones(4, np.float32))
    t = model.graph.initializer[0]
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    t.external_data.add(key="location", value=location)
    for k, v in entries.items():
        t.external_data.add(key=k, value=v)
    path = tmp_path / "model" / "m.onnx"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read_in_place(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin", offset="8", length="16")
    (path.parent / "w.bin").write_bytes(bytes(8) + np.arange(4, dtype=np.float32).tobytes())
    graph = from_onnx(path)
    np.testing.assert_array_equal(graph.constants["w"].array, np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "a/../../w.bin", "", "..\\w.bin"])
def test_external_data_outside_the_directory_is_refused(tmp_path: Path, location: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    with pytest.raises(ModelError, match=r"inside the model's directory"):
        from_onnx(external(tmp_path, location))


def test_external_data_behind_a_link_out_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    path = external(tmp_path, "w.bin")
    (path.parent / "w.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match=r"leads out of the model's directory"):
        from_onnx(path)


def test_bad_external_data_is_refused(tmp_path: Path) -> None:
    path = external(tmp_path, "w.bin")
    with pytest.raises(ModelError, match=r"does not exist"):
        from_onnx(path)
    (path.parent / "w.bin").write_bytes(bytes(15))
    with pytest.raises(ModelError, match=r"needs 16 bytes, got 15"):
        from_onnx(path)
    with pytest.raises(ModelError, match=r"offset must be a number, got '-4'"):
        from_onnx(external(tmp_path, "w.bin", offset="-4"))
    with pytest.raises(ModelError, match=r"16 bytes of external data expected, got length 12"):
        from_onnx(external(tmp_path, "w.bin", length="12"))
    with pytest.raises(ModelError, match=r"give the model by path"):
        from_onnx(path.read_bytes())
