"""ONNX Runtime's functions about the process, for scripts that call them."""

from __future__ import annotations

import logging
from importlib.metadata import version

from tilewright.api.session_options import LOGGER
from tilewright.core.options import require_whole

PROVIDER = "CPUExecutionProvider"
_SEVERITIES = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)


def get_available_providers() -> list[str]:
    """The names of the execution providers: there is one, the CPU.

    >>> tilewright.get_available_providers()
    ['CPUExecutionProvider']
    """
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """The same as :func:`get_available_providers`.

    >>> tilewright.get_all_providers()
    ['CPUExecutionProvider']
    """
    return [PROVIDER]


def get_device() -> str:
    """The kind of device that models run on: ``CPU``.

    >>> tilewright.get_device()
    'CPU'
    """
    return "CPU"


def get_version_string() -> str:
    """The version of tilewright.

    >>> tilewright.get_version_string() == tilewright.__version__
    True
    """
    return version("tilewright")


def set_default_logger_severity(severity: int) -> None:
    """What the logger ``tilewright`` lets through: from 0 (everything) to 4 (fatal errors). Raises InputError.

    >>> tilewright.set_default_logger_severity(2)
    """
    LOGGER.setLevel(level_of(severity))


def set_default_logger_verbosity(verbosity: int) -> None:
    """Without effect: there is one level of messages for debugging.

    >>> tilewright.set_default_logger_verbosity(0)
    """
    require_whole("verbosity", verbosity, 0)


def level_of(severity: int) -> int:
    """The level of Python's logging for a severity of ONNX Runtime's. Raises InputError."""
    number = require_whole("severity", severity, 0)
    return _SEVERITIES[min(number, len(_SEVERITIES) - 1)]


def disable_telemetry_events() -> None:
    """Without effect: nothing is sent anywhere.

    >>> tilewright.disable_telemetry_events()
    """


def enable_telemetry_events() -> None:
    """Without effect: nothing is sent anywhere.

    >>> tilewright.enable_telemetry_events()
    """
