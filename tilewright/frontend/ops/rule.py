"""What a converter is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilewright.frontend.build import Call, GraphBuilder

Converter: TypeAlias = Callable[[Call, GraphBuilder], None]


@dataclass(frozen=True, slots=True)
class Rule:
    """For opset versions ``since`` to ``until`` (both included; None: to the newest) call ``convert``.

    ``makes``: the operators that it emits, which must be available for the rule to be of use.
    """

    since: int
    until: int | None
    convert: Converter
    makes: tuple[str, ...]


Family: TypeAlias = Mapping[str, tuple[Rule, ...]]


def rename(op: str, drop: tuple[str, ...] = ()) -> Converter:
    """A converter to an operator that takes the same inputs, without some attributes."""

    def convert(call: Call, build: GraphBuilder) -> None:
        build.emit_to(op, call.inputs, call.outputs, {k: v for k, v in call.attrs.items() if k not in drop})

    return convert
