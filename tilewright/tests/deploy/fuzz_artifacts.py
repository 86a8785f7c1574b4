"""Artifacts that were cut, changed or made longer: each is refused in a sentence, or gives what it gave before.

    python -m tilewright.tests.deploy.fuzz_artifacts --count 2000

Each is loaded and run in a process that has the rest to do after it: one that dies is a failure of its artifact.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import tilewright
from tilewright.deploy.loader import Artifact, ArtifactError
from tilewright.tests.api.models import perceptron

X = np.linspace(-1, 1, 5 * 32, dtype=np.float32).reshape(5, 32)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One change of a file."""
    kind = rng.choice(("bit", "byte", "cut", "longer", "zeros", "moved"))
    at = rng.choice((rng.randrange(len(data)), rng.randrange(min(len(data), 512)), len(data) - 1 - rng.randrange(128)))
    if kind == "cut":
        return data[:at]
    if kind == "longer":
        return data[:at] + rng.randbytes(rng.randrange(1, 100)) + data[at:]
    out = bytearray(data)
    if kind == "bit":
        out[at] ^= 1 << rng.randrange(8)
    elif kind == "byte":
        out[at] = rng.randrange(256)
    elif kind == "zeros":
        out[at : at + 4096] = bytes(len(out[at : at + 4096]))
    else:
        other = rng.randrange(len(data))
        out[at : at + 64] = out[other : other + len(out[at : at + 64])]
    return bytes(out)


def outcome(path: Path, expected: bytes) -> str:
    """``refused``, ``same`` or what is wrong."""
    try:
        artifact = Artifact(path)
        got = artifact.run({"x": X})["y"].tobytes()
        artifact.close()
    except ArtifactError as e:
        return "refused" if str(e) else "no message"
    except Exception as e:  # noqa: BLE001 - whatever else comes is the finding
        return f"{type(e).__name__}: {e}"
    return "same" if got == expected else "another result"


def _worker(folder: Path, seeds: list[int], expected: bytes, pipe: multiprocessing.connection.Connection) -> None:
    originals = [p.read_bytes() for p in sorted(folder.glob("model*"))]
    for seed in seeds:
        rng = random.Random(seed)
        pipe.send(("start", seed))
        path = folder / f"mutant{seed}"
        path.write_bytes(mutated(rng.choice(originals), rng))
        pipe.send(("done", outcome(path, expected)))
        path.unlink()


def fuzz(count: int, first: int = 0) -> dict[str, list[int]]:
    """Seeds by outcome."""
    found: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = tilewright.compile(perceptron(), threads=2, progress=False)
        model.export(folder / "model.so")
        tilewright.export_package(folder / "model.twa", [model])
        expected = model.run({"x": X})["y"].tobytes()
        left = list(range(first, first + count))
        while left:
            for seed, result in _run(folder, left, expected):
                found.setdefault(result, []).append(seed)
            left = left[sum(map(len, found.values())) - (count - len(left)) :]
    return found


def _run(folder: Path, seeds: list[int], expected: bytes) -> Iterator[tuple[int, str]]:
    """The outcomes of seeds until the process is done or dies."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=_worker, args=(folder, seeds, expected, theirs))
    process.start()
    theirs.close()
    current = None
    try:
        while True:
            kind, value = ours.recv()
            if kind == "start":
                current = value
            elif current is not None:
                yield current, value
                current = None
    except EOFError:
        process.join()
        if current is not None:
            yield current, f"the process died with {process.exitcode}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    found = fuzz(args.count, args.seed)
    for result, seeds in sorted(found.items()):
        print(f"{len(seeds):6} {result}" + ("" if result in ("refused", "same") else f": seeds {seeds[:10]}"))
    return 0 if found.keys() <= {"refused", "same"} else 1


if __name__ == "__main__":
    sys.exit(main())
