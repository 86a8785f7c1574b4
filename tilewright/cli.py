"""The command line. Finds the command, loads its module and nothing else, turns errors into one line.

Exit status: 0 done, 1 a check failed (``verify``, ``demo``, ``simplify``, ``db verify``, ``--require-tuned``), models
differ (``graph diff``) or kernels became slower (``db diff``), 2 the model, the inputs or the arguments are wrong, 130
interrupted.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import NoReturn

from tilewright import __version__
from tilewright.core.errors import CoverageError, TilewrightError
from tilewright.core.io.messages import shown_messages
from tilewright.core.suggestions import did_you_mean

INTERRUPTED = 130
"""The exit status after Ctrl-C, as shells have it."""

COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("tilewright.commands.run", "run a model once, on given or seeded random inputs"),
    "compile": ("tilewright.commands.builds.compile", "build a model, fill the object cache, and say what was built"),
    "build": ("tilewright.commands.build", "write an artifact that runs without Python: a library or a package"),
    "inspect": (
        "tilewright.commands.inspect",
        "print any stage of the pipeline, or what an artifact says of itself, as text",
    ),
    "graph": (
        "tilewright.commands.graph.command",
        "work on models as graphs: what differs in two, what is in one, parts, names, shapes, two as one",
    ),
    "bench": ("tilewright.commands.bench", "time a model, interleaved with onnxruntime if that is installed"),
    "verify": ("tilewright.commands.verify", "compare every layer with the interpreter and with onnxruntime"),
    "profile": ("tilewright.commands.profile", "time every kernel against the machine's measured peaks"),
    "tune": ("tilewright.commands.tune", "tune a model's kernels and keep the records in a log"),
    "simplify": ("tilewright.commands.models.simplify", "make a model of fewer nodes that gives the same results"),
    "quantize": ("tilewright.commands.models.quantize", "make a model of integers from one of float32"),
    "worker": ("tilewright.commands.worker", "measure candidates here for a tuning on another machine"),
    "db": ("tilewright.commands.db.command", "show, compare, verify, merge, prune and explain tuning logs"),
    "report": ("tilewright.commands.report", "what a tuning log says, as one HTML page"),
    "explain": ("tilewright.commands.explain", "what the build did, what it refused, and why"),
    "coverage": ("tilewright.commands.builds.coverage", "which kernels of a model a tuning log covers, and why not"),
    "doctor": ("tilewright.commands.doctor", "the CPU, caches, threads and why, measured peaks, versions"),
    "completion": ("tilewright.commands.shell.completion", "print a script that teaches a shell these commands"),
    "demo": ("tilewright.commands.demo", "compile, tune, verify and time a network of the onnx package"),
}
"""Command name -> its module (``add_arguments``, ``run``) and one line of help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] not in COMMANDS:
        _overview().parse_args(words or ["--help"])
    run, parser = load_command(words[0])
    return _guarded(run, parser.parse_args(words[1:]))


def load_command(name: str) -> tuple[Callable[[argparse.Namespace], int], argparse.ArgumentParser]:
    """What runs a command, and the parser of its arguments. Loads the command's module."""
    home, text = COMMANDS[name]
    module = import_module(home)
    parser = Parser(prog=f"tilewright {name}", description=text)
    module.add_arguments(parser)
    _add_message_options(parser)
    return module.run, parser


def _add_message_options(parser: argparse.ArgumentParser) -> None:
    """What is said on standard error, for every command and each of its actions."""
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for inner in dict.fromkeys(p for a in actions for p in a.choices.values()):
        _add_message_options(inner)
    if not actions:
        group = parser.add_argument_group("messages")
        group.add_argument("-q", "--quiet", action="store_true", help="errors alone: no warnings, no progress")
        group.add_argument("-v", "--verbose", action="count", default=0, help="what is done; twice: in which steps")


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; for unknown words with the nearest known ones."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}{self._near(message)}; see {self.prog} --help\n")

    def _near(self, message: str) -> str:
        if unknown := re.search(r"unrecognized arguments: (--[\w-]+)", message):
            return did_you_mean(unknown[1], [o for a in self._actions for o in a.option_strings if o.startswith("--")])
        if choice := re.search(r"invalid choice: '?([\w-]+)'? \(choose from (.*)\)", message):
            return did_you_mean(choice[1], re.findall(r"[\w-]+", choice[2]))
        return ""


def _overview() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items())
    parser = Parser(
        prog="tilewright",
        description="ONNX models to tuned CPU machine code.",
        epilog=f"commands (each has --help):\n{rows}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tilewright {__version__}")
    parser.add_argument("command", type=_command, metavar="COMMAND")
    return parser


def _command(word: str) -> str:
    raise argparse.ArgumentTypeError(f"expected a command, got {word!r}{did_you_mean(word, COMMANDS)}")


def _guarded(command: Callable[[argparse.Namespace], int], args: argparse.Namespace) -> int:
    try:
        with shown_messages(args.quiet, args.verbose):
            return command(args)
    except BrokenPipeError:  # the reader of our output (head, less) has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("tilewright: interrupted", file=sys.stderr)
        return INTERRUPTED
    except CoverageError as e:
        print(f"tilewright: {type(e).__name__}: {e}", file=sys.stderr)
        return 1
    except TilewrightError as e:
        print(f"tilewright: {type(e).__name__}: {e}", file=sys.stderr)
        return 2
    except OSError as e:
        print(f"tilewright: {e.strerror or e}: {e.filename or ''}".rstrip(": "), file=sys.stderr)
        return 2
