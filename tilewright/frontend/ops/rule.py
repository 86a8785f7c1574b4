"""What a converter is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


def contrib(required: Sequence[int], convert: Converter, makes: Sequence[str]) -> tuple[Rule, ...]:
    """The rule of an operator of onnxruntime's, which has no schema here: ``required`` inputs must be given."""

    def checked(call: Call, build: GraphBuilder) -> None:
        absent = [i for i in required if not call.input(i)]
        if absent:
            call.error(f"an input {absent[0]}", "none")
        if not any(call.outputs):
            call.error("an output", "none")
        convert(call, build)

    return (Rule(1, None, checked, tuple(makes)),)
