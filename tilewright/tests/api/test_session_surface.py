"""What scripts written for onnxruntime call: values, bindings, options, metadata, traces, copies."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.api.session_options import CONFIG_ENTRIES, EFFECTS
from tilewright.core.errors import InputError, ResourceError, UnsupportedError
from tilewright.tests.api.models import perceptron, perceptron_by_hand, saved

X = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def session() -> tilewright.InferenceSession:
    return tilewright.InferenceSession(perceptron())


@pytest.fixture(scope="module")
def wanted(session: tilewright.InferenceSession) -> np.ndarray:
    (y,) = session.run(None, {"x": X})
    np.testing.assert_allclose(y, perceptron_by_hand(perceptron(), X), rtol=1e-4, atol=1e-5)
    return y


def test_no_names_are_all_outputs(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(session.run([], {"x": X})[0], wanted)
    with pytest.raises(InputError, match="output_names: expected outputs among y, got 'z'"):
        session.run(["z"], {"x": X})


class _Foreign:
    """A tensor of another library: nothing but DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)  # type: ignore[arg-type]

    def __dlpack_device__(self) -> object:
        return self._array.__dlpack_device__()


def test_values_go_in_and_out(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    value = tilewright.OrtValue.ortvalue_from_numpy(X)
    assert value.numpy() is X
    (out,) = session.run_with_ort_values(["y"], {"x": value})
    np.testing.assert_array_equal(out.numpy(), wanted)
    assert (out.shape(), out.data_type(), out.device_name()) == ([3, 10], "tensor(float)", "cpu")
    assert (out.element_type(), out.tensor_size_in_bytes(), out.is_tensor()) == (TensorProto.FLOAT, 120, True)
    np.testing.assert_array_equal(session.run(None, {"x": value})[0], wanted)
    np.testing.assert_array_equal(session.run(None, {"x": _Foreign(X)})[0], wanted)
    np.testing.assert_array_equal(np.from_dlpack(out), wanted)
    shared = tilewright.OrtValue.from_dlpack(_Foreign(X))
    assert shared.data_ptr() == X.ctypes.data


def test_values_of_other_types() -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    value = tilewright.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert (value.data_type(), value.numpy().astype(float).tolist()) == ("tensor(bfloat16)", [1.0, 2.0])
    empty = tilewright.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int64, "cpu", 0)
    empty.update_inplace(np.arange(6).reshape(2, 3))
    assert empty.numpy().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tilewright.OrtValue([np.zeros(1, np.int64)]).data_type() == "seq(tensor(int64))"
    with pytest.raises(InputError, match=r"update_inplace: expected int64\[2, 3\], got int64\[3\]"):
        empty.update_inplace(np.zeros(3, np.int64))
    with pytest.raises(InputError, match="expected the device 'cpu', got 'cuda'"):
        tilewright.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    with pytest.raises(InputError, match="expected elements of 2 bytes for bfloat16, got float32"):
        tilewright.OrtValue.ortvalue_from_numpy_with_onnx_type(X, TensorProto.BFLOAT16)
    with pytest.raises(InputError, match="expected an element type of ONNX, got datetime64"):
        tilewright.OrtValue(np.zeros(1, "datetime64[s]"))


def test_binding_to_values(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    binding = session.io_binding()
    y = tilewright.OrtValue.ortvalue_from_shape_and_type([3, 10], np.float32)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", y)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), wanted)
    assert binding.copy_outputs_to_cpu()[0] is y.numpy()
    assert binding.get_outputs()[0].data_ptr() == y.data_ptr()


def test_binding_to_addresses(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    x, y = X.copy(), np.zeros((3, 10), np.float32)
    binding = session.io_binding()
    binding.bind_input("x", "cpu", 0, np.float32, x.shape, x.ctypes.data)
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y, wanted)
    x[:] = 0  # what is bound is read at each run
    session.run_with_iobinding(binding)
    assert not np.array_equal(y, wanted)


def test_binding_without_memory(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", tilewright.OrtValue.ortvalue_from_numpy(X))
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], wanted)
    binding.clear_binding_outputs()
    session.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu() == []


def test_what_bindings_refuse(session: tilewright.InferenceSession) -> None:
    binding = session.io_binding()
    with pytest.raises(InputError, match=r"input: expected one of 'x', got 'X'; did you mean 'x'\?"):
        binding.bind_cpu_input("X", X)
    with pytest.raises(InputError, match="output: expected one of 'y', got 'x'"):
        binding.bind_output("x")
    with pytest.raises(InputError, match=r"bind_output\('y'\): expected element_type and shape with buffer_ptr"):
        binding.bind_output("y", buffer_ptr=X.ctypes.data)
    with pytest.raises(InputError, match="missing 'x'"):
        session.run_with_iobinding(binding)
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output("y", tilewright.OrtValue.ortvalue_from_shape_and_type([4, 10], np.float32))
    with pytest.raises(InputError, match="'y'"):
        session.run_with_iobinding(binding)


def test_a_run_in_another_thread(session: tilewright.InferenceSession, wanted: np.ndarray) -> None:
    done, got = threading.Event(), []

    def completed(results: list[object], data: object, error: str) -> None:
        got.append((results, data, error))
        done.set()

    session.run_async(None, {"x": X}, completed, "mine")
    assert done.wait(60)
    ((results, data, error),) = got
    assert (data, error) == ("mine", "")
    np.testing.assert_array_equal(results[0], wanted)  # type: ignore[arg-type]
    done.clear()
    session.run_async(None, {"z": X}, completed, None)
    assert done.wait(60)
    assert "unknown 'z'" in got[1][2]


def test_whatever_error_a_run_ends_with_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session, done, got = tilewright.InferenceSession(perceptron()), threading.Event(), []

    def fails(*given: object, **named: object) -> object:
        raise ResourceError("out of memory")

    def completed(results: list[object], data: object, error: str) -> None:
        got.append((results, error))
        done.set()

    monkeypatch.setattr(session.model, "run", fails)
    session.run_async(None, {"x": X}, completed, None)
    assert done.wait(60)
    assert got == [([], "out of memory")]


def test_a_terminated_run_does_not_begin(session: tilewright.InferenceSession) -> None:
    options = tilewright.RunOptions()
    options.log_severity_level = 3
    session.run(None, {"x": X}, options)
    options.terminate = True
    with pytest.raises(InputError, match="terminate=True"):
        session.run(None, {"x": X}, options)


def test_metadata(tmp_path: Path) -> None:
    proto = perceptron()
    proto.producer_name, proto.domain, proto.model_version, proto.doc_string = "me", "org.example", 7, "a net"
    proto.graph.doc_string = "a graph"
    helper.set_model_props(proto, {"labels": "cat,dog"})
    meta = tilewright.InferenceSession(saved(proto, tmp_path)).get_modelmeta()
    assert meta == tilewright.ModelMetadata(
        "me", proto.graph.name, "a graph", "org.example", "a net", 7, {"labels": "cat,dog"}
    )


def test_a_trace(tmp_path: Path) -> None:
    options = tilewright.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    session = tilewright.InferenceSession(perceptron(), options)
    session.run(None, {"x": X})
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    assert {e["ph"] for e in events} == {"X"}
    assert [e["name"] for e in events if e["cat"] == "Session"] == ["session_initialization", "model_run", "model_run"]
    nodes = [e for e in events if e["cat"] == "Node"]
    assert [e["name"] for e in nodes] == ["hidden, bias, relu", "readout"] * 2
    runs = [e for e in events if e["name"] == "model_run"]
    for e, run in zip(nodes, [runs[0], runs[0], runs[1], runs[1]], strict=True):
        assert run["ts"] <= e["ts"]
        assert e["ts"] + e["dur"] <= run["ts"] + run["dur"]
    assert all(e["dur"] > 0 for e in nodes)
    assert session.get_profiling_start_time_ns() > 0
    with pytest.raises(InputError, match="end_profiling: expected a session whose options have enable_profiling"):
        tilewright.InferenceSession(perceptron()).end_profiling()


@pytest.mark.parametrize("as_path", [True, False])
def test_copies(as_path: bool, tmp_path: Path, wanted: np.ndarray) -> None:
    source = saved(perceptron(), tmp_path) if as_path else perceptron()
    options = tilewright.SessionOptions(intra_op_num_threads=1)
    session = tilewright.InferenceSession(source, options)
    for again in (pickle.loads(pickle.dumps(session)), copy.deepcopy(session)):
        assert again.get_session_options().intra_op_num_threads == 1
        np.testing.assert_array_equal(again.run(None, {"x": X})[0], wanted)


def test_options_without_a_counterpart_are_accepted() -> None:
    options = tilewright.SessionOptions()
    options.execution_mode = tilewright.ExecutionMode.ORT_PARALLEL
    options.execution_order = tilewright.ExecutionOrder.PRIORITY_BASED
    options.graph_optimization_level = tilewright.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.inter_op_num_threads = 3
    options.enable_cpu_mem_arena = options.enable_mem_pattern = options.enable_mem_reuse = False
    options.use_deterministic_compute = True
    assert options.level() == "extended"
    session = tilewright.InferenceSession(perceptron(), options, ["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == tilewright.get_available_providers() == ["CPUExecutionProvider"]
    assert session.get_provider_options() == {"CPUExecutionProvider": {}}
    assert session.get_overridable_initializers() == []
    with pytest.raises(AttributeError):
        options.no_such_option = 1  # type: ignore[attr-defined]


def test_config_entries_are_kept_and_told(caplog: pytest.LogCaptureFixture) -> None:
    options = tilewright.SessionOptions()
    with caplog.at_level(logging.INFO, "tilewright"):
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.intra_op.alow_spinning", "0")
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert "TILEWRIGHT_SPIN_MS" in caplog.messages[0]
    assert "did you mean 'session.intra_op.allow_spinning'" in caplog.messages[1]
    with pytest.raises(InputError, match="get_session_config_entry: expected one of"):
        options.get_session_config_entry("session.other")
    with pytest.raises(InputError, match="expected text as value, got 1"):
        options.add_session_config_entry("session.other", 1)  # type: ignore[arg-type]


def test_what_is_refused() -> None:
    options = tilewright.SessionOptions()
    with pytest.raises(UnsupportedError, match="register_custom_ops_library"):
        options.register_custom_ops_library("libops.so")
    with pytest.raises(UnsupportedError, match="expected a dimension by its name"):
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 1)


def test_disabled_optimizers_are_passes() -> None:
    session = tilewright.InferenceSession(perceptron(), disabled_optimizers=["fuse"])
    assert len(session.model.plan.steps) > len(tilewright.InferenceSession(perceptron()).model.plan.steps)
    with pytest.raises(InputError, match="the name of a pass or rule, got 'Fuse'"):
        tilewright.InferenceSession(perceptron(), disabled_optimizers=["Fuse"])


def test_types_are_spelled_as_onnx_does() -> None:
    graph = helper.make_graph(
        [helper.make_node("SequenceConstruct", ["a", "a"], ["s"]), helper.make_node("Cast", ["a"], ["d"], to=11)], "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT16, [2])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT16, [2]),
         helper.make_tensor_value_info("d", TensorProto.DOUBLE, [2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.checker.check_model(model)
    session = tilewright.InferenceSession(model)
    assert [(a.type, a.shape) for a in session.get_inputs()] == [("tensor(float16)", [2])]
    assert [a.type for a in session.get_outputs()] == ["seq(tensor(float16))", "tensor(double)"]


def test_every_option_says_what_it_does() -> None:
    options = set(tilewright.SessionOptions.__dataclass_fields__)
    ours = {"free_dimensions", "out_of_range", "config_entries"}
    methods = {"add_free_dimension_override_by_name", "add_session_config_entry"}
    assert set(EFFECTS) == options - ours | methods
    followed = {"session.intra_op_thread_affinities", "session.set_denormal_as_zero", "PERFORMANCE_HINT", "NUM_STREAMS"}
    assert {key for key, text in CONFIG_ENTRIES.items() if not text.startswith("none: ")} == followed


def test_loggers() -> None:
    logger = logging.getLogger("tilewright")
    before = logger.level
    try:
        tilewright.set_default_logger_severity(3)
        assert logger.level == logging.ERROR
        tilewright.InferenceSession(perceptron(), tilewright.SessionOptions(log_severity_level=0))
        assert logger.level == logging.DEBUG
        with pytest.raises(InputError, match="severity: expected a whole number"):
            tilewright.set_default_logger_severity("high")  # type: ignore[arg-type]
    finally:
        logger.setLevel(before)


def test_facts_of_the_process() -> None:
    assert tilewright.get_device() == "CPU"
    assert tilewright.get_all_providers() == ["CPUExecutionProvider"]
    assert tilewright.get_version_string() == tilewright.__version__
