"""The error types. One type per party at fault, so that a caller can tell them apart.

Every message says who, what was expected, what came, and where: ``split(i): factor must be >= 1, got 0``.
"""

_LONGEST_LINE = 2000
_LEFT_OUT = " ... "


class TilewrightError(Exception):
    """Base class of every error raised on purpose by this package.

    >>> try:
    ...     tilewright.compile("model.onnx", opt_level="extreme")
    ... except tilewright.TilewrightError as e:
    ...     print(f"{type(e).__name__}: {e}")
    InputError: opt_level: expected one of none, basic, extended, all, got 'extreme'; did you mean 'extended'?
    """


def one_line(text: str) -> str:
    """``text`` on one line: escapes for characters that do not print, as names in a model may have; its middle is left
    out where it is very long."""
    text = _shortened(text)
    if text.isprintable():
        return text
    return _shortened("".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text))


def _shortened(text: str) -> str:
    half = (_LONGEST_LINE - len(_LEFT_OUT)) // 2
    return text if len(text) <= _LONGEST_LINE else text[:half] + _LEFT_OUT + text[-half:]


class OneLineError(TilewrightError):
    """An error whose message is one line, whatever names and values it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class ModelError(OneLineError):
    """The user's model is malformed or inconsistent (names the node and what was expected).

    >>> tilewright.compile(b"no model")
    Traceback (most recent call last):
        ...
    tilewright.core.errors.ModelError: model is not an ONNX model: model file: unknown wire type 6 at byte 0
    """


class UnsupportedError(TilewrightError):
    """The model is valid but needs something this build lacks; the message lists all of it.

    >>> graph = tilewright.load_graph("model.onnx")
    >>> view = graph.replace("relu", "Sparkle", domain="com.acme")
    >>> tilewright.compile(graph.to_onnx())
    Traceback (most recent call last):
        ...
    tilewright.core.errors.UnsupportedError: not supported (1 finding):
      com.acme.Sparkle (version 1) on float32: unknown operator or domain; 1 node: relu
    """


class InputError(OneLineError):
    """The arrays fed to a compiled model have wrong names, shapes or element types.

    >>> model = tilewright.compile("model.onnx")
    >>> model.run({"x": np.ones((4, 31), np.float32)})
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: input 'x' axis 1: expected 32, got 31
    """


class BroadcastError(InputError):
    """Sizes that this code takes to be equal differ, and one is 1: only code that repeats elements can go on."""


class ResourceError(OneLineError):
    """The machine lacks the memory that a build or a run needs; the message says for what.

    >>> tilewright.compile("model.onnx").run({"x": np.broadcast_to(np.float32(1), (1 << 40, 32))})
    Traceback (most recent call last):
        ...
    tilewright.core.errors.ResourceError: input 'x': out of memory for a contiguous copy: ...
    """


class ScheduleError(TilewrightError):
    """A schedule primitive was refused: its precondition does not hold.

    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> a = placeholder("A", (20,), dtypes.float32)
    >>> s = tilewright.Schedule(build_func("double", [a], [compute("B", (20,), lambda i: a[i] + a[i])]))
    >>> s.split("B_i", (4, 4))
    Traceback (most recent call last):
        ...
    tilewright.core.errors.ScheduleError: split(B_i): factors (4, 4) do not cover the extent 20; ...
    """


class RuleError(OneLineError):
    """A rewrite rule of the user's does not end, or gives what no rule may give; the message has its name.

    >>> from tilewright.rules import P, Rule
    >>> again = Rule("again", "Relu(x) --> Relu(x)", P("Relu", "x"), lambda m: m.op("Relu", m["x"]))
    >>> tilewright.compile("model.onnx", rules=[again])
    Traceback (most recent call last):
        ...
    tilewright.core.errors.RuleError: rule 'again' does not come to an end: it is the last of ...
    """


class TargetError(TilewrightError):
    """A target string or CPU cannot be used.

    >>> tilewright.compile("model.onnx", target="llvm -mcpu=znver99")
    Traceback (most recent call last):
        ...
    tilewright.core.errors.TargetError: target 'llvm -mcpu=znver99': LLVM knows no CPU 'znver99' ...
    """


class MeasurementError(TilewrightError):
    """A kernel could not be timed: it crashed, hung, or computed something else; the message says which.

    >>> from tilewright.core import dtypes
    >>> from tilewright.tensor_ir.compute import build_func, compute, placeholder
    >>> a = placeholder("A", (20,), dtypes.float32)
    >>> s = tilewright.Schedule(build_func("double", [a], [compute("B", (20,), lambda i: a[i] + a[i])]))
    >>> s.time(timeout_s=1e-3)
    Traceback (most recent call last):
        ...
    tilewright.core.errors.MeasurementError: time(double): compile_timeout: the worker gave no answer in 0.001 s
    """


class CoverageError(TilewrightError):
    """Less of the model's run time is tuned than the build requires; the message holds the table of kernels.

    >>> tilewright.compile("model.onnx", database=tilewright.MemoryDatabase(), require_tuned=0.5)
    Traceback (most recent call last):
        ...
    tilewright.core.errors.CoverageError: require_tuned: expected 50 % of the run time in tuned kernels, got 0.0 %
    ...
    """


class ParseError(TilewrightError):
    """The text form of an IR, trace or expression does not parse."""


class VerifyError(TilewrightError):
    """An IR invariant is broken. Always a bug of the stage that produced the IR."""


class MismatchError(TilewrightError):
    """A rewritten model gives other results than the original; the message names the output, by how much, and the
    rewrite that is to blame.

    >>> issubclass(tilewright.MismatchError, tilewright.TilewrightError)
    True
    """


class InternalError(TilewrightError):
    """A state that this package must never reach; please report it with the dump."""
