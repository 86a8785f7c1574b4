"""Models in an empty root file system: a C program, the artifact, and the C library; nothing else.

    python -m tilewright.tests.deploy.empty_root MODEL.onnx INPUTS.npz [INPUTS.npz ...]

compiles a model, exports it, runs it there for each file of inputs, and says whether the bytes are the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import tilewright
from tilewright.runtime.model import CompiledModel
from tilewright.tests.deploy.program import DRIVER, dtype_of


def _chroot() -> list[str]:
    """The words that change the root of a program, as far as this process may; none if it may not."""
    words = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "chroot"]
    places = [w if w.startswith("-") else shutil.which(w) for w in words]
    if sys.platform != "linux" or not all(map(shutil.which, ("ldd", "cc"))) or not all(places):
        return []
    own = [p for p in places if p is not None]
    done = subprocess.run([*own, "/", "/bin/true"], capture_output=True, check=False)
    return own if done.returncode == 0 else []


CHROOT = _chroot()
needs_chroot = pytest.mark.skipif(not CHROOT, reason="needs Linux, a C compiler and the right to change the root")


def run_in_empty_root(
    model: CompiledModel, feeds: Sequence[Mapping[str, object]], threads: int = 0
) -> Iterator[dict[str, np.ndarray]]:
    """The outputs of the artifact of a model for each feed. Raises RuntimeError with what the program says."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        model.export(root / "model.so")
        program = root / "driver"
        include = tilewright.get_include()
        subprocess.run(["cc", "-O1", "-w", f"-I{include}", DRIVER, "-o", program, "-ldl"], check=True)
        said = subprocess.run(["ldd", program, root / "model.so"], capture_output=True, text=True, check=True).stdout
        for library in sorted(set(re.findall(r"(/\S+) \(0x", said))):
            place = root / library.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copy(library, place)
        (root / "out").mkdir()
        yield from (_run(root, model, feed, threads) for feed in feeds)


def _run(root: Path, model: CompiledModel, feed: Mapping[str, object], threads: int) -> dict[str, np.ndarray]:
    words = []
    for k, spec in enumerate(model.inputs):
        x = np.asarray(feed[spec.name])
        (root / f"{k}.in").write_bytes(np.ascontiguousarray(x).tobytes())
        words.append(f"{x.dtype.name}:{'x'.join(map(str, x.shape))}:/{k}.in")
    command = [*CHROOT, str(root), "/driver", "/model.so", str(threads), "/out", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")
    out = {}
    for k, line in enumerate(done.stdout.splitlines()):
        facts, _, title = line.partition(" ")
        kind, _, shape = facts.partition(":")
        data = (root / "out" / f"{k}.bin").read_bytes()
        out[title] = np.frombuffer(data, dtype_of(kind)).reshape([int(n) for n in shape.split("x") if n])
    return out


def differing(model: CompiledModel, *feeds: Mapping[str, object], threads: int = 0) -> list[str]:
    """Outputs that are not the same bytes in Python and in the empty root, for some feed."""
    wrong: list[str] = []
    for feed, theirs in zip(feeds, run_in_empty_root(model, feeds, threads), strict=True):
        ours = model.run(feed)
        assert list(ours) == list(theirs)
        wrong += [n for n, a in ours.items() if (a.shape, a.tobytes()) != (theirs[n].shape, theirs[n].tobytes())]
    return wrong


def main() -> int:
    path, *files = sys.argv[1:]
    model = tilewright.compile(path, threads=2, progress=False)
    bad = False
    for file in files:
        arrays = dict(np.load(file))
        wrong = differing(model, {s.name: arrays[s.name] for s in model.inputs})
        bad |= bool(wrong)
        shapes = {s.name: arrays[s.name].shape for s in model.inputs[:3]}
        print(f"{Path(path).name} {shapes}: {'other bytes: ' + ', '.join(wrong) if wrong else 'the same bytes'}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
