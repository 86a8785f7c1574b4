"""Arguments of primitives in the form that a trace can write down: plain text, whole numbers, flags and tuples of them.

A primitive's fields declare what it takes; :func:`plain_arguments` makes numpy's integers and lists what they stand for
and says what does not fit. So any primitive that could be made prints, and what prints parses.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.errors import ScheduleError
from tilewright.core.options import as_whole

_LIMIT = 1 << 63


class Unfit(Exception):
    """An argument that is not what a field takes; the message says both."""


@dataclass(frozen=True, slots=True)
class Field:
    """One argument of a primitive: a value of one of ``kinds``, or a tuple of such if ``is_tuple``."""

    name: str
    kinds: tuple[type, ...]
    is_tuple: bool

    def is_plain(self, given: object) -> bool:
        """True if ``given`` can stay as it is."""
        if self.is_tuple:
            return type(given) is tuple and all(map(self._is_plain, given))
        return self._is_plain(given)

    def plain(self, given: object) -> object:
        """``given`` in plain form. Raises Unfit."""
        try:
            if not self.is_tuple:
                return self._item(given)
            if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
                raise Unfit
            return tuple(map(self._item, given))
        except Unfit:
            expected = " or ".join(_WORDS[k][self.is_tuple] for k in self.kinds)
            raise Unfit(f"{self.name}: expected {expected}, got {given!r}") from None

    def _is_plain(self, given: object) -> bool:
        kind = type(given)
        if kind not in self.kinds:
            return False
        if kind is int:
            return -_LIMIT <= given < _LIMIT  # type: ignore[operator]  # it is one
        return kind is not str or given.isascii()  # type: ignore[attr-defined]  # likewise

    def _item(self, given: object) -> object:
        for kind in self.kinds:
            try:
                return _READERS[kind](given)
            except Unfit:
                continue
        raise Unfit


def plain_arguments(arguments: Any) -> dict[str, object]:
    """The fields of the dataclass instance ``arguments`` whose plain form is another, in that form. Raises Unfit."""
    changed: dict[str, object] = {}
    for field in _fields(type(arguments)):  # type: ignore[arg-type]  # a class is hashable
        given = getattr(arguments, field.name)
        if not field.is_plain(given):
            changed[field.name] = field.plain(given)
    return changed


def require_count(who: str, name: str, value: object) -> int:
    """The argument ``name``, a whole number of at least 1. Raises ScheduleError in the name of ``who``."""
    try:
        number = _whole_number(value)
    except Unfit:
        raise ScheduleError(f"{who}: {name}: expected a whole number, got {value!r}") from None
    if number < 1:
        raise ScheduleError(f"{who}: {name} must be >= 1, got {number}")
    return number


def _whole_number(value: object) -> int:
    number = as_whole(value)
    if number is None or not -_LIMIT <= number < _LIMIT:
        raise Unfit
    return number


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise Unfit
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: no file can hold it
        raise Unfit from None
    return value if type(value) is str else str(value)


def _flag(value: object) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise Unfit
    return bool(value)


def _nothing(value: object) -> None:
    if value is not None:
        raise Unfit


_READERS: dict[type, Callable[[object], object]] = {
    str: _text,
    int: _whole_number,
    bool: _flag,
    types.NoneType: _nothing,
}

_WORDS: dict[type, tuple[str, str]] = {
    str: ("text", "text"),
    int: ("a whole number", "whole numbers"),
    bool: ("True or False", "flags"),
    types.NoneType: ("None", "None"),
}
"""What a message calls one value and several."""


@functools.cache
def _fields(cls: type[Any]) -> tuple[Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(_field(f.name, hints[f.name]) for f in dataclasses.fields(cls))


def _field(name: str, hint: Any) -> Field:
    is_tuple = typing.get_origin(hint) is tuple
    item = typing.get_args(hint)[0] if is_tuple else hint
    if typing.get_origin(item) is typing.Literal:  # which of them is the primitive's own question
        item = str
    return Field(name, typing.get_args(item) or (item,), is_tuple)
