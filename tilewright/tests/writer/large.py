"""``python -m tilewright.tests.writer.large FOLDER``: a model above 2 GB read and written, with the memory it took."""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tilewright.frontend.keep import read_model
from tilewright.graph_ir.builder import GraphBuilder
from tilewright.writer import save_onnx

WIDTH = 4096
LAYERS = 36


def make(path: Path) -> None:
    """A model with LAYERS weights of 64 MB."""
    rng = np.random.default_rng(0)
    b = GraphBuilder("large")
    x = b.input("x", "float32", ("n", WIDTH))
    for _ in range(LAYERS):
        x = b.op("Relu", b.op("MatMul", x, rng.standard_normal((WIDTH, WIDTH), np.float32)))
    save_onnx(b.build(x), path)


def copy(path: Path, to: Path) -> int:
    """Read and write; the most memory of the process, in bytes."""
    save_onnx(read_model(path), to)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 1 if it took 2.5 times the size of the file, or another file came out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--copy", action="store_true", help="the part that is measured, in a process of its own")
    args = parser.parse_args(argv)
    first, second = args.folder / "first.onnx", args.folder / "second.onnx"
    if args.copy:
        print(copy(first, second))
        return 0
    make(first)
    command = [sys.executable, "-m", "tilewright.tests.writer.large", str(args.folder), "--copy"]
    most = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    datas = [p.with_name(p.name + ".data") for p in (first, second)]
    size = sum(p.stat().st_size for p in (first, datas[0]))
    same = datas[0].stat().st_size == datas[1].stat().st_size and _same(*datas)
    print(f"{size / 1e9:.2f} GB, at most {most / 1e9:.2f} GB of memory, {most / size:.2f} times the file; same: {same}")
    return int(most >= 2.5 * size or not same)


def _same(a: Path, b: Path) -> bool:
    with a.open("rb") as f, b.open("rb") as g:
        while block := f.read(1 << 24):
            if block != g.read(1 << 24):
                return False
    return True


if __name__ == "__main__":
    sys.exit(main())
