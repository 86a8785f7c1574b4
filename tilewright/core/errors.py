"""The error types. One type per party at fault, so that a caller can tell them apart.

Every message says who, what was expected, what came, and where: ``split(i): factor must be >= 1, got 0``.
"""

_LONGEST_LINE = 2000
_LEFT_OUT = " ... "


class TilewrightError(Exception):
    """Base class of every error raised on purpose by this package."""


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
    """The user's model is malformed or inconsistent (names the node and what was expected)."""


class UnsupportedError(TilewrightError):
    """The model is valid but needs something this build lacks; the message lists all of it."""


class InputError(OneLineError):
    """The arrays fed to a compiled model have wrong names, shapes or element types."""


class BroadcastError(InputError):
    """Sizes that this code takes to be equal differ, and one is 1: only code that repeats elements can go on."""


class ResourceError(OneLineError):
    """The machine lacks the memory that a build or a run needs; the message says for what."""


class ScheduleError(TilewrightError):
    """A schedule primitive was refused: its precondition does not hold."""


class RuleError(OneLineError):
    """A rewrite rule of the user's does not end, or gives what no rule may give; the message has its name."""


class TargetError(TilewrightError):
    """A target string or CPU cannot be used."""


class MeasurementError(TilewrightError):
    """A kernel could not be timed: it crashed, hung, or computed something else; the message says which."""


class CoverageError(TilewrightError):
    """Less of the model's run time is tuned than the build requires; the message holds the table of kernels."""


class ParseError(TilewrightError):
    """The text form of an IR, trace or expression does not parse."""


class VerifyError(TilewrightError):
    """An IR invariant is broken. Always a bug of the stage that produced the IR."""


class MismatchError(TilewrightError):
    """A rewritten model gives other results than the original; the message names the output, by how much, and the
    rewrite that is to blame."""


class InternalError(TilewrightError):
    """A state that this package must never reach; please report it with the dump."""
