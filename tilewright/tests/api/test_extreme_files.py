"""Small files that ask for absurd amounts: each is refused at once, in one line, by one of the package's errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tilewright.core.errors import InputError, ModelError, ResourceError, TilewrightError, UnsupportedError
from tilewright.runtime.host_ops.host_step import HostStepError
from tilewright.tests.frontend.models import model_of

node = helper.make_node
Float = np.float32


def _compile(model: onnx.ModelProto | Path | str) -> tilewright.CompiledModel:
    return tilewright.compile(model, progress=False, threads=1)


def _refused(model: onnx.ModelProto | Path | str, error: type[TilewrightError], match: str) -> None:
    with pytest.raises(error, match=match) as e:
        _compile(model)
    assert "\n" not in str(e.value)


def _image(*nodes: onnx.NodeProto, opset: int = 21, **constants: np.ndarray) -> onnx.ModelProto:
    return model_of(list(nodes), {"x": [1, 1, 4, 4]}, ["y"], opset, constants=constants)


def _resized(*scales: float, **attributes: object) -> onnx.ModelProto:
    return _image(node("Resize", ["x", "", "s"], ["y"], **attributes), s=np.array(scales, Float))


def _made(*nodes: onnx.NodeProto, **constants: np.ndarray) -> onnx.ModelProto:
    """``y`` is ``x`` and the largest element of ``k``, which the nodes make of constants."""
    last = [node("ReduceMax", ["k"], ["most"], keepdims=0), node("Add", ["x", "most"], ["y"])]
    return model_of([*nodes, *last], {"x": [1]}, ["y"], constants=constants)


# -- files ---------------------------------------------------------------------------------------------------------
def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    _refused(tmp_path / "pipe.onnx", ModelError, "pipe.onnx: expected a regular file")


def test_a_name_that_is_too_long_for_the_system() -> None:
    _refused("x" * 5000, ModelError, r"cannot read x.*: File name too long")


@pytest.mark.parametrize(
    ("location", "match"),
    [
        ("w" * 300, "initializer 'w': external data 'w+' cannot be resolved: File name too long"),
        ("d/" * 4000, "external data .* cannot be resolved: File name too long"),
        ("pipe", "file 'pipe' does not exist, or is no regular file"),
        ("a\nb", r"file 'a\\nb' does not exist"),
    ],
)
def test_locations_of_external_data(tmp_path: Path, location: str, match: str) -> None:
    model = model_of([node("Add", ["x", "w"], ["y"])], {"x": [2]}, ["y"], constants={"w": np.ones(2, Float)})
    (tensor,) = model.graph.initializer
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=location)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    _refused(tmp_path / "m.onnx", ModelError, match)


# -- numbers that become sizes -------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("scale", "match"),
    [
        (1e30, r"scales that give sizes up to 274877906944, got 1\.0.*e\+30"),
        (float("nan"), r"finite scales > 0, got \[1\.0, 1\.0, nan, 2\.0\]"),
        (float("inf"), r"finite scales > 0, got \[1\.0, 1\.0, inf, 2\.0\]"),
        (-1.0, "finite scales > 0"),
    ],
)
def test_scales_of_resize(mode: str, scale: float, match: str) -> None:
    _refused(_resized(1, 1, scale, 2, mode=mode), ModelError, rf"node 'Resize' \(Resize\): expected {match}")


def test_tables_of_a_resize_are_limited() -> None:
    _refused(_resized(1, 1, 1e7, 1, mode="linear"), ResourceError, "positions and weights of at most 268435456 bytes")
    sizes = _image(node("Resize", ["x", "", "", "s"], ["y"]), s=np.array([1, 1, 2**40, 2**40]))
    _refused(sizes, ResourceError, "a result of at most 274877906944 elements")


def test_a_long_resize_is_quick_and_right() -> None:
    (y,) = _compile(_resized(1, 1, 1, 25000, mode="linear")).run(None, {"x": np.ones((1, 1, 4, 4), Float)})
    assert y.shape == (1, 1, 4, 100000)
    assert (y == 1).all()


def test_scales_that_only_the_run_knows() -> None:
    nodes = [node("Resize", ["x", "", "s"], ["y"], mode="nearest")]
    model = _compile(model_of(nodes, {"x": [1, 1, 4, 4], "s": [4]}, ["y"]))
    x = np.ones((1, 1, 4, 4), Float)
    for scale in (np.nan, np.inf, 1e30, -2):
        with pytest.raises(HostStepError, match=r"node 'Resize' \(Resize\): expected scales that give sizes"):
            model.run({"x": x, "s": np.array([1, 1, scale, 1], Float)})
    assert model.run({"x": x, "s": np.array([1, 1, 2, 1], Float)})["y"].shape == (1, 1, 8, 4)


@pytest.mark.parametrize(
    ("numbers", "match"),
    [
        ((0, 1e30, 1), "start, limit and delta for at most 274877906944 elements"),
        ((0, 5, 1e-40), "start, limit and delta for at most 274877906944 elements"),
        ((0, float("nan"), 1), r"finite start, limit and delta, got \[0\.0, nan, 1\.0\]"),
        ((0, float("inf"), 1), "finite start, limit and delta"),
        ((0, 5, 0), "a delta other than 0"),
    ],
)
def test_numbers_of_range(numbers: tuple[float, ...], match: str) -> None:
    constants = {n: np.array(v, Float) for n, v in zip("abc", numbers, strict=True)}
    _refused(_made(node("Range", ["a", "b", "c"], ["k"]), **constants), ModelError, f"Range.*expected {match}")


def test_numbers_of_range_that_only_the_run_knows() -> None:
    model = _compile(model_of([node("Range", ["a", "b", "c"], ["y"])], {"a": [], "b": [], "c": []}, ["y"]))

    def run(*numbers: float) -> np.ndarray:
        return model.run({n: np.array(v, Float) for n, v in zip("abc", numbers, strict=True)})["y"]

    for numbers, match in (
        ((0, 1e30, 1), r"sizes of 0 to 2\*\*62"), ((0, np.nan, 1), "finite start, limit and delta"),
        ((0, 5, 0), "a delta other than 0"),
    ):  # fmt: skip
        with pytest.raises(HostStepError, match=rf"node 'Range' \(Range\): expected {match}"):
            run(*numbers)
    assert run(0, 3, 1).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "constants"),
    [
        (lambda: node("ConstantOfShape", ["s"], ["k"]), {"s": np.array([10**8, 10**7])}),
        (lambda: node("OneHot", ["i", "d", "v"], ["k"]),
         {"i": np.array([1]), "d": np.array(2**40), "v": np.array([0, 1], Float)}),
        (lambda: node("HannWindow", ["s"], ["k"]), {"s": np.array(2**62)}),
        (lambda: node("Tile", ["c", "s"], ["k"]), {"c": np.ones(1, Float), "s": np.array([2**40])}),
        (lambda: node("Expand", ["c", "s"], ["k"]), {"c": np.ones(1, Float), "s": np.array([2**40])}),
        (lambda: node("Pad", ["c", "s"], ["k"]), {"c": np.ones(1, Float), "s": np.array([2**40, 0])}),
        (lambda: node("RandomNormal", [], ["k"], shape=[2**40]), {}),
    ],
)  # fmt: skip
def test_results_that_no_machine_holds(make: Callable[[], onnx.NodeProto], constants: dict[str, np.ndarray]) -> None:
    _refused(_made(make(), **constants), ResourceError, "expected a result of at most 274877906944 elements")


@pytest.mark.parametrize(
    "window",
    [
        node("MaxPool", ["x"], ["y"], kernel_shape=[2**31, 2**31], pads=[2**31] * 4),
        node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[2**40] * 4),
        node("Conv", ["x", "w"], ["y"], pads=[2**40] * 4),
        node("ConvTranspose", ["x", "w"], ["y"], strides=[2**20, 2**20]),
    ],
)
def test_attributes_of_windows(window: onnx.NodeProto) -> None:
    _refused(_image(window, w=np.ones((1, 1, 3, 3), Float)), ResourceError, "at most 274877906944 elements")


def test_a_normalization_over_more_channels_than_there_are() -> None:
    (y,) = _compile(_image(node("LRN", ["x"], ["y"], size=2**40, alpha=1.0, bias=0.25, beta=0.5))).run(
        None, {"x": np.ones((1, 1, 4, 4), Float)}
    )
    np.testing.assert_allclose(y, 2)


def test_what_fits_no_memory_is_refused_by_the_run() -> None:
    nodes = [node("Expand", ["x", "s"], ["k"]), node("CumSum", ["k", "axis"], ["y"])]
    sizes = helper.make_tensor_value_info("s", TensorProto.INT64, [1])
    unknown = model_of(nodes, {"x": [1]}, ["y"], constants={"axis": np.array(0)})
    unknown.graph.input.append(sizes)
    model = _compile(unknown)
    x = np.ones(1, Float)
    with pytest.raises(ResourceError, match=r"need 1125899906842624 bytes, expected at most the memory of \d+ bytes"):
        model.run({"x": x, "s": np.array([2**48])})
    assert model.run({"x": x, "s": np.array([3])})["y"].tolist() == [1, 2, 3]
    fixed = _compile(model_of([node("Expand", ["x", "s"], ["k"]), *nodes[1:]], {"x": [1]}, ["y"],
                              constants={"axis": np.array(0), "s": np.array([2**38])}))  # fmt: skip
    with pytest.raises(ResourceError, match=r"g: intermediate values and outputs need \d+ bytes"):
        fixed.run({"x": x})


# -- many, and deep ------------------------------------------------------------------------------------------------
def test_more_dimensions_than_tensors_have() -> None:
    plain = [node("Neg", ["x"], ["y"])]
    for rank in (33, 65, 5000):
        _refused(model_of(plain, {"x": [1] * rank}, ["y"]), UnsupportedError, f"at most 32 dimensions, got {rank}")
        reshape = [node("Reshape", ["x", "s"], ["y"])]
        of_constant = model_of(reshape, {"x": [1]}, ["y"], constants={"s": np.ones(rank, np.int64)})
        _refused(of_constant, UnsupportedError, rf"Reshape\): expected at most 32 dimensions, got {rank}")
        deep = model_of([node("Add", ["x", "c"], ["y"])], {"x": [1]}, ["y"], constants={"c": np.ones(1, Float)})
        deep.graph.initializer[0].dims[:] = [1] * rank
        _refused(deep, UnsupportedError, f"initializer 'c': expected at most 32 dimensions, got {rank}")
    (y,) = _compile(model_of(plain, {"x": [1] * 31 + [2]}, ["y"])).run(None, {"x": np.ones([1] * 31 + [2], Float)})
    assert y.shape == (1,) * 31 + (2,)


def test_functions_that_double_at_thirty_levels() -> None:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
    functions = []
    for k in range(30):
        op, domain = ("Neg", "") if k == 0 else (f"f{k - 1}", "d")
        calls = [node(op, ["a"], ["b"], domain=domain), node(op, ["b"], ["c"], domain=domain)]
        functions.append(helper.make_function("d", f"f{k}", ["a"], ["c"], calls, opsets))
    call = [node("f29", ["x"], ["y"], domain="d")]
    model = model_of(call, {"x": [4]}, ["y"], 18, functions=functions, domains={"d": 1})
    _refused(model, ModelError, "expands to more than 200000 nodes, to 1073741824")


def test_a_split_into_more_parts_than_it_names() -> None:
    x = np.arange(8, dtype=Float)
    model = _compile(model_of([node("Split", ["x"], ["y", "z"], num_outputs=2**40)], {"x": [8]}, ["y", "z"]))
    assert [v.tolist() for v in model.run(None, {"x": x})] == [[0], [1]]


# -- names ---------------------------------------------------------------------------------------------------------
def test_names_of_several_lines_give_messages_of_one() -> None:
    shape = {"s": np.array([7])}
    reshape = model_of([node("Reshape", ["x", "s"], ["y"], "two\nlines")], {"x": [3]}, ["y"], constants=shape)
    _refused(reshape, ModelError, r"node 'two\\nlines' \(Reshape\): expected a shape for 3 elements")
    with pytest.raises(UnsupportedError, match=r"\n  No\\nsuch \(version 21\).*: two\\nlines$") as e:
        _compile(model_of([node("No\nsuch", ["x"], ["y"], "two\nlines")], {"x": [3]}, ["y"]))
    assert len(str(e.value).splitlines()) == 2
    model = _compile(model_of([node("Neg", ["two\nlines"], ["y"])], {"two\nlines": ["n", 3]}, ["y"]))
    with pytest.raises(InputError, match=r"two\\nlines: float32\[n, 3\], got shape \[2, 3, 4\]"):
        model.run({"two\nlines": np.ones((2, 3, 4), Float)})
    assert model.run({"two\nlines": np.ones((2, 3), Float)})["y"].shape == (2, 3)


def test_a_message_does_not_repeat_very_long_names() -> None:
    with pytest.raises(ModelError) as e:
        _compile(model_of([node("Reshape", ["x", "s"], ["y"], "n" * 10**6)], {"x": [3]}, ["y"],
                          constants={"s": np.array([7])}))  # fmt: skip
    assert len(str(e.value)) < 2100
    assert str(e.value).endswith("expected a shape for 3 elements, got ['7']")


def test_coefficients_that_are_no_numbers_are_compiled_without_a_warning() -> None:
    """Warnings are errors in the tests."""
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="cubic", cubic_coeff_a=float("inf"))
    resize = model_of([node], {"x": [1, 1, 4]}, ["y"], 21, constants={"s": np.array([1, 1, 1.5], np.float32)})
    one, below = np.ones(2, np.float32), np.array([-1, 1], np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "s", "s", "s", "v"], ["y"]),
    ]
    constants = {"w": np.ones((2, 1, 1), np.float32), "s": one, "v": below}
    folded = model_of(nodes, {"x": [1, 1, 4]}, ["y"], 21, constants=constants)
    x = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    assert not np.isfinite(tilewright.compile(resize, progress=False).run({"x": x})["y"]).all()
    y = tilewright.compile(folded, progress=False).run({"x": x})["y"]
    assert np.isnan(y[0, 0]).all()
    assert np.isfinite(y[0, 1]).all()
