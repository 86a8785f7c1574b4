"""Layers chosen under a budget of error: which, why, what is verified, and what is refused. Times are made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import tilewright
from tilewright.cli import main
from tilewright.core.errors import InputError
from tilewright.quantization.accuracy.budget import CHOSEN, FLOAT32, INTEGERS, Clocks, Seconds, held_back, layer_seconds
from tilewright.quantization.accuracy.compare import compare_models
from tilewright.quantization.layers import Layer, find_layers
from tilewright.quantization.onnx_editor import OnnxEditor
from tilewright.quantization.operators import LAYERS
from tilewright.quantization.options import QuantizeOptions
from tilewright.quantization.quantize import Quantized, quantize_model
from tilewright.tests.quantization.models import Feed, model_of, normal, residual, run, samples

NAMES = ("p0", "p1", "p2", "p3")


def products() -> onnx.ModelProto:
    """Products one after the other with a Tanh between, each off by about as much."""
    nodes, x = [], "x"
    for k, name in enumerate(NAMES):
        nodes.append(helper.make_node("MatMul", [x, f"w{k}"], [f"y{k}"], name))
        x = f"y{k}"
        if k + 1 < len(NAMES):
            nodes.append(helper.make_node("Tanh", [x], [f"t{k}"], f"tanh{k}"))
            x = f"t{k}"
    weights = {f"w{k}": normal(k, 32, 32) / 6 for k in range(len(NAMES))}
    return model_of(nodes, {"x": (16, 32)}, [x], weights)


def clocks(gains: Mapping[str, float], **whole: float) -> Clocks:
    """Layers take 1 on integers; models take what is said of them, 1 by default."""

    def layers(
        original: onnx.ModelProto, quantized: onnx.ModelProto, found: Sequence[Layer], feed: Feed, threads: int | None
    ) -> dict[str, Seconds]:
        return {x.name: (1.0 + gains[x.name], 1.0) for x in found}

    def models(given: Mapping[str, onnx.ModelProto], feed: Feed, threads: int | None) -> dict[str, float]:
        return {name: whole.get(name.replace(" ", "_"), 1.0) for name in given}

    return Clocks(layers, models)


def budgeted(budget: float, found: Clocks, model: onnx.ModelProto | None = None, **more: object) -> Quantized:
    model = products() if model is None else model
    o = QuantizeOptions(budget=budget, runtime="tilewright", threads=1, **more)  # type: ignore[arg-type]
    return quantize_model(model, samples(model, 8), o, clocks=found)


def errors(model: onnx.ModelProto, quantized: onnx.ModelProto) -> float:
    rows = compare_models(model, quantized, samples(model, 8), 1)
    return max(d.noise.relative for d in rows if d.runtime == "tilewright")


EVEN = dict.fromkeys(NAMES, 1.0)


# -- which layers ----------------------------------------------------------------------------------------------------
def test_all_layers_where_the_budget_allows_it() -> None:
    done = budgeted(0.5, clocks(EVEN))
    assert (done.layers, done.skipped) == (NAMES, ())
    assert done.budgeted is not None
    assert all(r.why == "" for r in done.budgeted.rows)


@pytest.mark.parametrize("share", [0.5, 0.7, 0.9])
def test_the_result_is_within_the_budget(share: float) -> None:
    model = products()
    budget = share * errors(model, tilewright.quantize(model, samples(model, 8), runtime="tilewright"))
    done = budgeted(budget, clocks(EVEN))
    assert 0 < len(done.layers) < len(NAMES)
    assert errors(model, done.model) <= budget
    assert done.budgeted is not None
    assert done.budgeted.held_back is not None
    assert max(done.budgeted.error, done.budgeted.held_back) <= budget


@pytest.mark.parametrize("worthless", NAMES[1:])
def test_what_gains_least_for_its_error_goes_first(worthless: str) -> None:
    model = products()
    whole = errors(model, tilewright.quantize(model, samples(model, 8), runtime="tilewright", skip="p0"))
    done = budgeted(0.95 * whole, clocks({**EVEN, worthless: 0.01}), skip="p0")
    assert done.skipped == (worthless,)
    assert done.budgeted is not None
    (why,) = {r.why for r in done.budgeted.rows if r.why}
    assert why == "more error for its time than others"


def test_what_fits_in_after_one_that_does_not_is_quantized() -> None:
    """The second goes first, but without the first, which is off by much more, there is room for it."""
    model = products()
    whole = errors(model, tilewright.quantize(model, samples(model, 8), runtime="tilewright"))
    done = budgeted(0.9 * whole, clocks({**EVEN, "p1": 0.01}))
    assert done.skipped == ("p0",)


def test_a_layer_that_is_beyond_the_budget_alone() -> None:
    model = residual()
    rows = quantize_model(model, samples(model, 8), QuantizeOptions(runtime="tilewright"), sensitivity=True).sensitivity
    worst, second = sorted(rows, key=lambda r: -r.noise.relative)[:2]
    budget = (worst.noise.relative + second.noise.relative) / 2
    done = budgeted(budget, clocks(dict.fromkeys(("conv1", "conv2", "fc"), 1.0)), model)
    assert done.budgeted is not None
    reasons = {r.layer.name: r.why for r in done.budgeted.rows}
    assert reasons[worst.layer.name] == "alone beyond the budget"


@pytest.mark.parametrize(("fewer", "wanted"), [(0.5, ("p0", "p2", "p3")), (2.0, NAMES)])
def test_slower_layers_stay_where_that_is_faster(fewer: float, wanted: tuple[str, ...]) -> None:
    done = budgeted(0.5, clocks({**EVEN, "p1": -0.5}, without_slower_layers=fewer))
    assert done.layers == wanted
    assert done.budgeted is not None
    assert done.budgeted.seconds == {FLOAT32: 1.0, INTEGERS: 1.0, CHOSEN: min(fewer, 1.0)}
    assert {r.why for r in done.budgeted.rows if r.why} <= {"not faster on integers"}


def test_biases_are_corrected_in_what_is_verified() -> None:
    model = residual()
    gains = dict.fromkeys(("conv1", "conv2", "fc"), 1.0)
    done = budgeted(0.5, clocks(gains), model, bias_correction=True)
    plain = tilewright.quantize(model, held_back(samples(model, 8))[0], bias_correction=True, runtime="tilewright")
    for name, y in run(done.model, samples(model, 8)[0]).items():
        np.testing.assert_array_equal(y, run(plain, samples(model, 8)[0])[name])


def test_samples_that_are_held_back_count() -> None:
    """They saturate what the others found as ranges."""
    model = products()
    few = [{"x": f["x"] * (40 if k == 3 else 1)} for k, f in enumerate(samples(model, 4))]
    o = QuantizeOptions(budget=0.05, runtime="tilewright", threads=1)
    done = quantize_model(model, few, o, clocks=clocks(EVEN))
    assert "p0" in done.skipped
    assert done.budgeted is not None
    assert done.budgeted.held_back is not None
    assert done.budgeted.held_back <= 0.05
    calm = quantize_model(model, samples(model, 4), o, clocks=clocks(EVEN))
    assert "p0" not in calm.skipped


def test_which_samples_are_held_back() -> None:
    feeds: list[Feed] = [{"x": np.full(1, k, np.float32)} for k in range(9)]
    assert [[int(f["x"][0]) for f in part] for part in held_back(feeds)] == [[0, 1, 2, 4, 5, 6, 8], [3, 7]]
    assert [len(part) for part in held_back(feeds[:2])] == [1, 1]
    assert [len(part) for part in held_back(feeds[:1])] == [1, 0]


# -- times -----------------------------------------------------------------------------------------------------------
def test_every_layer_has_times() -> None:
    for model, unnamed in ((residual(), False), (residual(), True)):
        for node in model.graph.node if unnamed else ():
            node.name = ""
        quantized = tilewright.quantize(model, samples(model), runtime="tilewright")
        layers = find_layers(OnnxEditor(model), LAYERS)
        found = layer_seconds(model, quantized, layers, samples(model)[0], 1)
        assert found.keys() == {x.name for x in layers}
        assert all(s > 0 for pair in found.values() for s in pair)


# -- what is refused -------------------------------------------------------------------------------------------------
def test_a_budget_that_no_layer_meets() -> None:
    with pytest.raises(InputError, match=r"budget: expected at least the error of one layer on integers, got 1e-06; "
                       r"'p\d' alone is off by .*: nothing is left to quantize, the model stays float32"):  # fmt: skip
        budgeted(1e-6, clocks(EVEN))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": -1}, "budget: expected a finite number of at least 0, got -1"),
        ({"budget": 0.1, "skip_worse_than": 30}, "budget: expected without skip_worse_than"),
        ({"budget": 0.1, "weight_only": "int8"}, "weight_only: expected without budget"),
    ],
)
def test_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        QuantizeOptions(**options)  # type: ignore[arg-type]


# -- the command -----------------------------------------------------------------------------------------------------
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = products()
    onnx.save(model, str(tmp_path / "m.onnx"))
    np.savez(tmp_path / "x.npz", x=np.concatenate([f["x"] for f in samples(model, 5)]))
    out = tmp_path / "m.int8.onnx"
    words = ["quantize", str(tmp_path / "m.onnx"), "--calibration", str(tmp_path / "x.npz"), "--threads", "1"]
    whole = errors(model, tilewright.quantize(model, samples(model, 5), runtime="tilewright"))
    assert main([*words, "-o", str(out), "--budget", f"{0.8 * whole}"]) == 0
    text = capsys.readouterr().out
    assert "layer in float32" in text
    assert "on samples held back; " in text
    assert " of 4 layers stay in float32" in text
    assert "all on integers" in text
    assert "skipped as worse than" not in text
    onnx.checker.check_model(onnx.load(str(out)))
    other = tmp_path / "none.onnx"
    assert main([*words, "-o", str(other), "--budget", "1e-6"]) == 2
    assert "the model stays float32" in capsys.readouterr().err
    assert not other.exists()
