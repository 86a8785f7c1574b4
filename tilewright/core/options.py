"""Checks of options that users give: each names the option, what it expects and what came, and gives the plain value.

What stands for the plain value is taken as such: numpy's numbers and flags, one name where several are expected.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tilewright.core.errors import InputError, UnsupportedError
from tilewright.core.suggestions import did_you_mean

T = TypeVar("T")


def require_choice(option: str, value: T, choices: Iterable[T]) -> T:
    """``value``, one of ``choices``."""
    known = tuple(choices)
    if isinstance(value, str | None) and value in known:
        return value
    names = [str(c) for c in known if isinstance(c, str)]
    near = did_you_mean(value, names) if isinstance(value, str) else ""
    raise InputError(f"{option}: expected one of {', '.join(names)}, got {shown(value)}{near}")


def require_flag(option: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{option}: expected True or False, got {shown(value)}")
    return bool(value)


def as_whole(value: object) -> int | None:
    """``value`` as Python's int; None for what is not an integer: a fraction, a flag, text."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return None


def require_whole(option: str, value: object, least: int = 1) -> int:
    """A whole number of at least ``least``."""
    number = as_whole(value)
    if number is None or number < least:
        raise InputError(f"{option}: expected a whole number of at least {least}, got {shown(value)}")
    return number


def require_cpus(option: str, value: object) -> tuple[frozenset[int], ...]:
    """CPUs by their numbers, one or several for each thread, of those that this process may use. Raises
    UnsupportedError where the system cannot keep threads on a CPU."""
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise InputError(f"{option}: expected numbers of CPUs, or lists of them, got {shown(value)}")
    groups = [x if isinstance(x, Iterable) and not isinstance(x, str) else (x,) for x in value]
    cpus = tuple(frozenset(require_whole(option, n, 0) for n in group) for group in groups)
    if not all(cpus):
        raise InputError(f"{option}: expected a CPU at least for each thread, got {shown(value)}")
    if cpus and not hasattr(os, "sched_getaffinity"):
        raise UnsupportedError(f"{option}: this system does not keep threads on a CPU")
    if cpus and (others := frozenset().union(*cpus) - os.sched_getaffinity(0)):
        allowed = ", ".join(map(str, sorted(os.sched_getaffinity(0))))
        raise InputError(f"{option}: expected CPUs among {allowed}, got {min(others)}")
    return cpus


def require_number(option: str, value: object, least: float = 0.0, most: float = math.inf) -> float:
    """A finite number from ``least`` to ``most``."""
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        number = float(value)
        if math.isfinite(number) and least <= number <= most:
            return number
    bounds = f"of at least {least:g}" if most == math.inf else f"from {least:g} to {most:g}"
    raise InputError(f"{option}: expected a finite number {bounds}, got {shown(value)}")


def require_names(
    option: str, value: object, known: Iterable[str] | None = None, what: str = "names"
) -> tuple[str, ...]:
    """Names, of ``known`` ones if given; a single one need not stand in a list."""
    given = (value,) if isinstance(value, str) else value
    if isinstance(given, bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{option}: expected {what}, got {shown(value)}")
    names = tuple(given)
    choices = None if known is None else set(known)
    for name in names:
        if not isinstance(name, str) or (choices is not None and name not in choices):
            near = did_you_mean(name, choices) if isinstance(name, str) and choices is not None else ""
            raise InputError(f"{option}: expected {what}, got {shown(name)}{near}")
    return tuple(str(n) for n in names)


def require_calls(option: str, value: object) -> tuple[Callable[..., object], ...]:
    """Functions to call; a single one need not stand in a list."""
    given = (value,) if callable(value) else value
    if not isinstance(given, Iterable) or not all(map(callable, calls := tuple(given))):
        raise InputError(f"{option}: expected functions, got {shown(value)}")
    return calls


def require_mapping(option: str, value: object) -> Mapping[str, object]:
    """A mapping from names."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise InputError(f"{option}: expected a dict by name, got {shown(value)}")
    return value


def require_path(option: str, value: object) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise InputError(f"{option}: expected a path, got {shown(value)}")
    return Path(value)


def with_keywords(cls: type[T], who: str, options: T | None, more: Mapping[str, Any]) -> T:
    """``options``, a frozen dataclass ``cls``, by default as it is made, with ``more`` in their places."""
    if options is not None and not isinstance(options, cls):
        raise InputError(f"{who}: expected {cls.__name__}, got {type(options).__name__}")
    known = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    for name in more:
        if name not in known:
            near = did_you_mean(name, known)
            raise InputError(f"{who}: unknown option {name}; expected {', '.join(known)}{near}")
    return cls(**more) if options is None else dataclasses.replace(options, **more)  # type: ignore[type-var]


def shown(value: object) -> str:
    """``value`` for a message, in one line: text and numbers as they are, else the type with the start of the text."""
    if value is None or isinstance(value, str | int | float):
        return repr(value)[:80]
    text = " ".join(repr(value).split())
    return f"{type(value).__name__} {text[:60]}{'...' if len(text) > 60 else ''}"
