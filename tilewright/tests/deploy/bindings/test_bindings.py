"""Each language runs models as Python does, bit for bit, says what is wrong, and has several models at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.runtime.model import CompiledModel
from tilewright.tests.api.models import convolution, perceptron
from tilewright.tests.deploy.bindings.languages import BINDINGS, LANGUAGES, Language, done
from tilewright.tests.deploy.exported import needs_compiler

pytestmark = [needs_compiler, pytest.mark.skipif(not BINDINGS.is_dir(), reason="needs the source tree")]

SAID = """\
input x float32 [batch, 32]
output y float32 [batch, 10]
input x float32 [1, 3, 32, 32]
output y float32 [1, 24]
shapes [7, 10]
error 2 input 'x' axis 1: expected 32, got 31
error 1 output 'y': expected memory for shape [5, 10], got one of shape [5, 9]
error 3
error 3 damaged.so: the library is damaged: its digest is not the one it was written with
"""


@dataclass(frozen=True, slots=True)
class Exported:
    """Two models, and the folder in which their libraries and inputs lie."""

    perceptron: CompiledModel
    convolution: CompiledModel
    folder: Path
    x: np.ndarray
    picture: np.ndarray


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    folder = tmp_path_factory.mktemp("exported")
    rng = np.random.default_rng(0)
    out = Exported(
        tilewright.compile(perceptron(), threads=2, progress=False),
        tilewright.compile(convolution(), threads=2, progress=False),
        folder,
        rng.standard_normal((5, 32)).astype(np.float32),
        rng.standard_normal((1, 3, 32, 32)).astype(np.float32),
    )
    out.perceptron.export(folder / "perceptron.so")
    out.convolution.export(folder / "model.so")
    whole = (folder / "perceptron.so").read_bytes()
    damaged = whole.replace(b'"target":', b'"tarmac":')  # which the system loads: only the digest says so
    assert damaged != whole
    (folder / "damaged.so").write_bytes(damaged)
    tilewright.export_loader(folder / "libtilewright.so")
    tilewright.export_package(folder / "perceptron.twa", [out.perceptron])
    (folder / "x.bin").write_bytes(out.x.tobytes())
    (folder / "picture.bin").write_bytes(out.picture.tobytes())
    return out


@pytest.fixture(scope="module", params=sorted(LANGUAGES))
def language(request: pytest.FixtureRequest) -> Language:
    found = LANGUAGES[request.param]
    if missing := found.missing():
        pytest.skip(f"{request.param}: {missing}")
    return found


def folder_with_models(exported: Exported, folder: Path) -> Path:
    for file in exported.folder.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


def test_results_and_errors(language: Language, exported: Exported, tmp_path: Path) -> None:
    command = language.build(language.check, folder_with_models(exported, tmp_path))
    said = done(
        [*command, "perceptron.so", "model.so", "x.bin", "picture.bin", "libtilewright.so", "perceptron.twa"], tmp_path
    )
    assert said == SAID
    y = exported.perceptron.run({"x": exported.x})["y"]
    scores = exported.convolution.run({"x": exported.picture})["y"]
    for name, expected in (("y", y), ("given", y), ("packed", y), ("scores", scores)):
        assert (tmp_path / f"{name}.bin").read_bytes() == expected.tobytes(), name


def top(said: str) -> tuple[list[int], list[float]]:
    rows = [line.split() for line in said.splitlines()]
    return [int(r[0]) for r in rows], [float(r[1]) for r in rows]


def test_the_example_classifies(language: Language, exported: Exported, tmp_path: Path) -> None:
    command = language.build(language.example, folder_with_models(exported, tmp_path))
    if language is not LANGUAGES["c"]:  # into which the model is linked
        command = [*command, "model.so"]
    height, width = 48, 40
    pixels = np.random.default_rng(1).integers(0, 256, (height, width, 3), dtype=np.uint8)
    (tmp_path / "picture.ppm").write_bytes(f"P6\n{width} {height}\n255\n".encode() + pixels.tobytes())
    rows, columns = np.arange(32) * height // 32, np.arange(32) * width // 32
    mean, deviation = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
    near = (pixels[rows][:, columns].astype(np.float32) / 255 - mean) / deviation
    for file, x in (("picture.bin", exported.picture), ("picture.ppm", near.transpose(2, 0, 1)[None])):
        scores = exported.convolution.run({"x": np.ascontiguousarray(x)})["y"][0]
        expected = np.argsort(-scores, kind="stable")[:5]
        classes, values = top(done([*command, file], tmp_path))
        assert classes == expected.tolist()
        np.testing.assert_allclose(values, scores[expected], atol=1e-4)
