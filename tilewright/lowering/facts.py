"""What is known of a node before anything is lowered: attributes, types and constants, and the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from tilewright.core.arith.expr import const
from tilewright.core.errors import UnsupportedError
from tilewright.graph_ir.ir import Attribute, Constant, Node, Shape, Value
from tilewright.graph_ir.symbols import value_with
from tilewright.machine.target import Target

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class NodeFacts:
    """One node. ``constants``: what constant inputs stand for. ``input_values``, ``output_values``: None where absent.
    ``memo``: what was found out about the node, by key. ``sizes``: what symbols count for in estimates."""

    node: Node
    target: Target
    input_values: tuple[Value | None, ...]
    constants: tuple[Constant | None, ...]
    output_values: tuple[Value | None, ...]
    memo: dict[str, Any] = field(default_factory=dict, kw_only=True)
    sizes: Mapping[str, int] = field(default_factory=dict, kw_only=True)

    @property
    def priced(self) -> NodeFacts:
        """The node as costs are estimated: symbols that have a size in :attr:`sizes` are that number."""
        return self.once("priced", self._priced) if self.sizes else self

    def _priced(self) -> NodeFacts:
        known = {s: const(n) for s, n in self.sizes.items()}
        inputs, outputs = (
            tuple(None if v is None else value_with(v, known) for v in values)
            for values in (self.input_values, self.output_values)
        )
        return NodeFacts(self.node, self.target, inputs, self.constants, outputs)

    def once(self, key: str, find: Callable[[], T]) -> T:
        """What ``find`` gives, found once."""
        if key not in self.memo:
            self.memo[key] = find()
        found: T = self.memo[key]
        return found

    # -- operands ----------------------------------------------------------------------------------------------------
    def has_input(self, i: int) -> bool:
        """True if the node names input ``i``."""
        return i < len(self.input_values) and self.input_values[i] is not None

    def constant(self, i: int) -> Constant | None:
        """What input ``i`` stands for; None where it is absent, or no constant."""
        return self.constants[i] if i < len(self.constants) else None

    def input_shape(self, i: int) -> Shape:
        """The shape of input ``i``, which must be present."""
        v = self.input_values[i] if self.has_input(i) else None
        if v is None:
            raise self.unsupported(f"input {i} is absent, expected a tensor")
        return v.shape

    def output(self, i: int = 0) -> Value:
        """Output ``i``, which the node must name."""
        v = self.output_values[i] if i < len(self.output_values) else None
        if v is None:
            raise self.unsupported(f"output {i} is absent")
        return v

    def has_output(self, i: int) -> bool:
        return i < len(self.output_values) and self.output_values[i] is not None

    # -- messages ----------------------------------------------------------------------------------------------------
    @property
    def where(self) -> str:
        """The node as messages show it."""
        return f"node {self.node.name or self.node.outputs[0]!r} ({self.node.op})"

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for something this build lacks."""
        return UnsupportedError(f"{self.where}: {what}")

    # -- attributes --------------------------------------------------------------------------------------------------
    def attr(self, key: str, default: Attribute = None) -> Attribute:
        return self.node.attr(key, default)

    def attr_int(self, key: str, default: int) -> int:
        v = self.node.attr(key)
        return default if v is None else int(v)  # type: ignore[arg-type]

    def attr_float(self, key: str, default: float) -> float:
        """A float attribute; like one of a file, the standard's default is a float32."""
        v = self.node.attr(key)
        return float(np.float32(default)) if v is None else float(v)  # type: ignore[arg-type]

    def attr_str(self, key: str, default: str) -> str:
        v = self.node.attr(key)
        return default if v is None else str(v)

    def attr_ints(self, key: str) -> tuple[int, ...] | None:
        v = self.node.attr(key)
        return None if v is None else tuple(int(x) for x in v)  # type: ignore[union-attr]
