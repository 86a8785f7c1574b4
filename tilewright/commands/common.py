"""What the commands share: build options, inputs (from a file, or seeded random ones), times."""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, get_args

import numpy as np

from tilewright.autotune.records.database import Database, open_database
from tilewright.compile import compile  # noqa: A004 - the name that users of compilers know
from tilewright.core.arith.expr import IntExpr
from tilewright.core.dtypes import DType
from tilewright.core.errors import InputError
from tilewright.core.index_ranges import OUT_OF_RANGE
from tilewright.core.plan import Plan
from tilewright.core.random_arrays import random_array
from tilewright.graph_ir.ir import Graph
from tilewright.lowering.precision.choose_precision import Precision
from tilewright.options import Broadcasting, BuildKeywords, Denormals
from tilewright.runtime.model import CompiledModel

Sizes = Mapping[str, Sequence[int] | int]


class SizeRange(NamedTuple):
    """The least and the greatest size of a dimension."""

    low: int
    high: int


# -- actions -------------------------------------------------------------------------------------------------------
Actions = Mapping[str, tuple[ModuleType, str]]
"""Of a command that has several: name -> its module (``add_arguments``, ``run``) and one line of help."""


def add_actions(parser: argparse.ArgumentParser, actions: Actions) -> None:
    """The arguments of each action."""
    parsers = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, text) in actions.items():
        module.add_arguments(parsers.add_parser(name, help=text, description=text))


def run_action(args: argparse.Namespace, actions: Actions) -> int:
    """The exit status of the action that was asked for."""
    status: int = actions[args.action][0].run(args)
    return status


# -- options -------------------------------------------------------------------------------------------------------
def natural(text: str, least: int = 0) -> int:
    """The type of an option that is 0 or more: a seed."""
    if not text.isascii() or not text.isdigit() or len(text) > 18 or int(text) < least:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least {least}, got {text!r}")
    return int(text)


def count(text: str) -> int:
    """The type of an option that counts."""
    return natural(text, 1)


def amount(text: str) -> float:
    """The type of an option that measures: seconds, a tolerance."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a finite number of at least 0, got {text!r}")
    return number


def percent(text: str) -> float:
    """The type of an option that is a share, in percent; the share."""
    if (number := amount(text)) > 100:
        raise argparse.ArgumentTypeError(f"expected a number of percent, 0 to 100, got {text!r}")
    return number / 100


def add_build_options(parser: argparse.ArgumentParser, several_targets: bool = False) -> None:
    """The options of a build that every command has. ``several_targets``: a list of them, empty by default."""
    group = parser.add_argument_group("build")
    group.add_argument(
        "--target", action="append" if several_targets else "store",
        help='a CPU, like "llvm -mcpu=znver4" (default: this machine)' + "; several of them" * several_targets,
    )  # fmt: skip
    group.add_argument(
        "--opt-level", choices=("none", "basic", "extended", "all"), default="all",
        help="which graph passes run (default: all)",
    )  # fmt: skip
    group.add_argument(
        "--precision", choices=get_args(Precision), default="fp32",
        help="bf16: products that are faster so take operands rounded to bfloat16, bf16x3: to two such numbers each; "
        "auto: as a log says (default: fp32)",
    )  # fmt: skip
    group.add_argument("--threads", type=count, help="threads of a run (default: what the machine allows; see doctor)")
    group.add_argument("--disable-pass", action="append", default=[], metavar="NAME", help="a graph pass or rule")
    group.add_argument("--enable-pass", action="append", default=[], metavar="NAME", help="an optional pass or rule")
    group.add_argument(
        "--out-of-range", choices=OUT_OF_RANGE, default="error", help="what indices outside their range lead to"
    )
    group.add_argument(
        "--implementation", action="append", type=_pin, default=[], metavar="NODE=NAME",
        help="what computes a node (explain lists both)",
    )  # fmt: skip
    group.add_argument("--no-cache", action="store_true", help="neither read nor write the object cache")


def add_model_options(parser: argparse.ArgumentParser, several_targets: bool = False) -> None:
    """Those of a build that uses what tuning found, and of its versions."""
    add_build_options(parser, several_targets)
    parser.add_argument(
        "--broadcasting", choices=get_args(Broadcasting), default="lazy",
        help="the version of the model for sizes of 1 where others were expected (default: built when needed)",
    )  # fmt: skip
    parser.add_argument(
        "--denormals", choices=get_args(Denormals), default="keep",
        help="flush: kernels take numbers that are nearly zero for zero, much faster on some CPUs (default: keep)",
    )  # fmt: skip
    parser.add_argument(
        "--save-optimized", metavar="OUT.onnx", help="write the model as it is after the passes of --opt-level, as ONNX"
    )
    parser.add_argument(
        "--log", "--database", "--tuning-records", dest="records", metavar="FILE",
        help="a tuning log to build with (default: untuned)",
    )  # fmt: skip
    parser.add_argument(
        "--require-tuned", type=percent, metavar="PERCENT",
        help="exit status 1 where less of the run time is in kernels with a record of their own",
    )  # fmt: skip


def records_of(args: argparse.Namespace) -> Database | None:
    """The log that :func:`add_model_options` reads."""
    return None if args.records is None else open_database(args.records)


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Where the inputs come from."""
    group = parser.add_argument_group("inputs")
    group.add_argument("--inputs", metavar="X.npz", help="arrays under the names of the inputs (default: random)")
    group.add_argument("--seed", type=natural, default=0, help="of the random inputs")
    add_shape_options(group)


def add_sample_options(parser: argparse.ArgumentParser, what: str) -> None:
    """Files of samples."""
    parser.add_argument(
        "--calibration", nargs="+", default=[], metavar="X.npz",
        help=f"{what}: arrays under the names of the inputs, several samples along axis 0",
    )  # fmt: skip


def add_shape_options(parser: argparse.ArgumentParser | argparse._ArgumentGroup) -> None:
    """Sizes of symbolic dimensions: of the inputs, and with --specialize of the build."""
    parser.add_argument(
        "--shapes", type=parse_shapes, default={}, metavar="batch=1,x=1x3x8x8,h=8..64",
        help="sizes of symbolic dimensions, or shapes, of the inputs that are fed; the build is for all sizes, or for "
        "a range that is given, of which the inputs have the greatest size",
    )  # fmt: skip
    parser.add_argument("--specialize", action="store_true", help="compile for exactly the sizes in --shapes")


def add_fixed_shapes(parser: argparse.ArgumentParser) -> None:
    """Sizes that a command compiles for."""
    parser.add_argument(
        "--shapes", type=parse_shapes, default={}, metavar="batch=1,x=1x3x8x8,h=8..64",
        help="sizes or ranges of symbolic dimensions, or shapes of inputs, to compile for (default: all sizes)",
    )  # fmt: skip
    parser.set_defaults(specialize=True)


def parse_shapes(text: str) -> Sizes:
    """``batch=1,seq=8..64,image=1x3x224x224``: sizes and ranges by dimension name, shapes by input name."""
    out: dict[str, Sequence[int] | int] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.rpartition("=")
        low, dots, high = value.partition("..")
        if equals and name and dots and low.isdigit() and high.isdigit():
            if int(low) > int(high):
                raise argparse.ArgumentTypeError(f"expected the least size and then the greatest one, got {part!r}")
            out[name] = SizeRange(int(low), int(high))
            continue
        dims = value.split("x")
        if not equals or not name or not all(d.isdigit() for d in dims):
            raise argparse.ArgumentTypeError(f"expected name=4, name=8..64 or name=1x3x224x224, got {part!r}")
        out[name] = int(value) if len(dims) == 1 else tuple(map(int, dims))
    return out


def _pin(text: str) -> tuple[str, str]:
    node, equals, name = text.rpartition("=")
    if not equals or not node or not name:
        raise argparse.ArgumentTypeError(f"expected a node's name, =, and the name of an implementation, got {text!r}")
    return node, name


def build_keywords(args: argparse.Namespace) -> BuildKeywords:
    """The options of a build that :func:`add_build_options` reads."""
    return {
        "target": args.target,
        "opt_level": args.opt_level,
        "threads": args.threads,
        "input_shapes": _compiled_for(args) or None,
        "disabled_pass": args.disable_pass,
        "enabled_pass": args.enable_pass,
        "cache": not args.no_cache,
        "out_of_range": args.out_of_range,
        "implementations": dict(args.implementation) or None,
        "precision": args.precision,
    }


def _compiled_for(args: argparse.Namespace) -> Sizes:
    """What of --shapes the build knows: all of it, or the ranges alone."""
    if getattr(args, "specialize", False):
        return args.shapes  # type: ignore[no-any-return]
    return {k: v for k, v in args.shapes.items() if isinstance(v, SizeRange)}


def fed_sizes(sizes: Sizes) -> dict[str, Sequence[int] | int]:
    """Sizes and shapes of inputs that are made up: of a range the greatest size."""
    return {k: v.high if isinstance(v, SizeRange) else v for k, v in sizes.items()}


def compile_with(
    args: argparse.Namespace, model: Any = None, stop_after: Any = None, broadcasting: Broadcasting | None = None
) -> Any:
    """The model built as the options say; a Graph, LoweredModel, ... with ``stop_after``."""
    built = compile(
        args.model if model is None else model,
        stop_after=stop_after,
        broadcasting=getattr(args, "broadcasting", "lazy") if broadcasting is None else broadcasting,
        database=getattr(args, "records", None),
        save_optimized=getattr(args, "save_optimized", None),
        denormals=getattr(args, "denormals", "keep"),
        require_tuned=getattr(args, "require_tuned", None),
        progress=False if args.quiet else None,
        **build_keywords(args),
    )
    if isinstance(built, CompiledModel):
        _require_dimensions(args.shapes if hasattr(args, "shapes") else {}, built)
    return built


def _require_dimensions(sizes: Sizes, model: CompiledModel) -> None:
    """Raises InputError for a range under the name of an input, which would be taken for a shape."""
    for name, size in sizes.items():
        if isinstance(size, SizeRange) and name not in model.ranges and name in model.plan.inputs:
            low, high = size
            raise InputError(f"--shapes: {name!r} is an input: expected a shape like {low}x{high}, got {low}..{high}")


# -- inputs --------------------------------------------------------------------------------------------------------
def feed_for_model(args: argparse.Namespace, model: CompiledModel) -> dict[str, np.ndarray]:
    """The inputs of a compiled model as the options say."""
    return _feed(args, _plan_inputs(model.plan))


def feed_for_graph(args: argparse.Namespace, graph: Graph) -> dict[str, np.ndarray]:
    """The inputs of a graph as the options say."""
    return _feed(args, {n: (graph.values[n].dtype, graph.values[n].shape) for n in graph.inputs})


def _plan_inputs(plan: Plan) -> dict[str, tuple[DType, tuple[IntExpr, ...]]]:
    return {n: (plan.slots[n].dtype, plan.slots[n].shape or ()) for n in plan.inputs}


def _feed(args: argparse.Namespace, inputs: Mapping[str, tuple[DType, tuple[IntExpr, ...]]]) -> dict[str, np.ndarray]:
    return read_arrays(args.inputs) if args.inputs else random_feed(inputs, args.shapes, args.seed)


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file. Raises InputError for another kind of file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {k: arrays[k] for k in arrays.files}
    except (ValueError, AttributeError, TypeError, zipfile.BadZipFile) as e:
        raise InputError(f"{path}: expected an .npz file of arrays: {e}") from e


def random_feed(
    inputs: Mapping[str, tuple[DType, tuple[IntExpr, ...]]], sizes: Sizes, seed: int
) -> dict[str, np.ndarray]:
    """Seeded random inputs (:func:`random_array`).

    Raises InputError when a symbolic dimension has no size.
    """
    env = _environment(inputs, sizes)
    rng = np.random.default_rng(seed)
    return {n: random_array(rng, dtype, tuple(d.evaluate(env) for d in shape)) for n, (dtype, shape) in inputs.items()}


def _environment(inputs: Mapping[str, tuple[DType, tuple[IntExpr, ...]]], sizes: Sizes) -> dict[str, int]:
    sizes = fed_sizes(sizes)
    env = {k: v for k, v in sizes.items() if isinstance(v, int)}
    for name, given in sizes.items():
        if isinstance(given, int) or name not in inputs:
            continue
        dtype, shape = inputs[name]
        if len(shape) != len(given):
            raise InputError(f"--shapes: input {name!r} has {len(shape)} dimensions, got {len(given)}")
        if any(d.is_const and d != n for d, n in zip(shape, given, strict=True)):
            declared = f"{dtype}[{', '.join(map(str, shape))}]"
            raise InputError(f"--shapes: input {name!r}: expected {declared}, got {'x'.join(map(str, given))}")
        env |= {str(d): n for d, n in zip(shape, given, strict=True) if not d.is_const}
    needed = sorted({s for _, shape in inputs.values() for d in shape for s in d.free_vars()})
    missing = [s for s in needed if s not in env]
    if missing:
        example = ",".join(f"{s}=1" for s in missing)
        raise InputError(f"symbolic dimensions {', '.join(missing)} need sizes: give --shapes {example} or --inputs")
    return env


# -- output --------------------------------------------------------------------------------------------------------
def milliseconds(seconds: float) -> str:
    """``12.3`` with three or four digits that mean something."""
    ms = seconds * 1e3
    return f"{ms:.1f}" if ms >= 100 else f"{ms:.2f}" if ms >= 1 else f"{ms:.4f}"
