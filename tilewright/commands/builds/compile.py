"""``compile MODEL``: build it, fill the object cache, and say what was built; ``-o``: write an artifact as well."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tilewright.commands.common import add_fixed_shapes, add_model_options, compile_with
from tilewright.commands.output.json_output import add_json_option, print_json
from tilewright.commands.output.results import of_coverage, of_model
from tilewright.core.console import bytes_text, table
from tilewright.deploy.pack import SUFFIX, export_package
from tilewright.runtime.coverage import Coverage
from tilewright.runtime.memory_report import MemoryReport
from tilewright.runtime.model import CompiledModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "What is built stays in the object cache, from which later builds of the same model take it. explain says "
        "more of the build, coverage more of the log."
    )
    parser.add_argument("model", help="an .onnx file")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="also write an artifact: model.so a library, model.twa a package"
    )
    add_json_option(parser)
    add_fixed_shapes(parser)
    add_model_options(parser)


def run(args: argparse.Namespace) -> int:
    start = time.perf_counter()
    model: CompiledModel = compile_with(args)
    seconds = time.perf_counter() - start
    written = _write(model, Path(args.output)) if args.output else []
    memory, coverage = model.memory(), model.coverage()
    found = _found(model, memory, coverage, seconds, written)
    if args.json:
        print_json("compile", {**of_model(args.model, model), **found})
    else:
        print(_text(model, memory, coverage, found))
    return 0


def _write(model: CompiledModel, path: Path) -> list[Path]:
    return [export_package(path, [model])] if path.suffix == SUFFIX else model.export(path)


def _found(
    model: CompiledModel, memory: MemoryReport, coverage: Coverage, seconds: float, written: list[Path]
) -> dict[str, Any]:
    build = model.account()
    return {
        "seconds": seconds,
        "target": build["target"],
        "values": {
            "inputs": [s.to_json() for s in model.inputs],
            "outputs": [s.to_json() for s in model.outputs],
        },
        "kernels": len(build["kernels"]),
        "cached_kernels": sum(k["cached"] for k in build["kernels"]),
        "code_bytes": sum(k["code_bytes"] for k in build["kernels"]),
        "host_operators": build["host_operators"],
        "memory": memory.to_json(),
        "coverage": of_coverage(coverage),
        "written": [{"path": str(p), "bytes": p.stat().st_size} for p in written],
    }


def _text(model: CompiledModel, memory: MemoryReport, coverage: Coverage, found: dict[str, Any]) -> str:
    host = found["host_operators"]
    rows = [
        *((f"input{'s' * (len(model.inputs) > 1)}" if i == 0 else "", str(s)) for i, s in enumerate(model.inputs)),
        *((f"output{'s' * (len(model.outputs) > 1)}" if i == 0 else "", str(s)) for i, s in enumerate(model.outputs)),
        ("target", found["target"].partition(" ")[0]),
        ("threads", str(model.threads)),
        ("kernels", f"{found['kernels']}, {found['cached_kernels']} from the object cache, "
                    f"{bytes_text(found['code_bytes'])} of code"),
        ("on the host", ", ".join(f"{h['operator']} ({h['node']})" for h in host) or "nothing"),
        ("weights", f"{bytes_text(memory.weights + memory.packed)}, {bytes_text(memory.packed)} of them rearranged"),
        ("arena", f"depends on {', '.join(memory.missing)}" if memory.arena is None else bytes_text(memory.arena)),
        ("tuned", f"{100 * coverage.tuned:.1f} % of the run time, {coverage.source}"),
        ("built in", f"{found['seconds']:.2f} s"),
    ]  # fmt: skip
    rows += [("written", f"{w['path']}: {w['bytes']:,} bytes") for w in found["written"]]
    return table(("", ""), rows).partition("\n")[2].partition("\n")[2]
