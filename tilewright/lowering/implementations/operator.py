"""An operator of a user's own: what it is, what it means and how it is computed, as one value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import as_whole, require_mapping, shown
from tilewright.graph_ir.ir import TensorType
from tilewright.graph_ir.kinds import PatternKind
from tilewright.graph_ir.ops.base import Definition, InferContext, Inferred, InferRule, OpDef
from tilewright.graph_ir.user_operators import Operators, is_qualified, qualified
from tilewright.lowering.context import Lower, LowerContext
from tilewright.lowering.implementations.base import Implementation
from tilewright.tensor_ir.compute import Tensor

Infer: TypeAlias = "Callable[[InferContext], Inferred | TensorType | Sequence[Inferred | TensorType]]"
Reference: TypeAlias = Callable[..., Any]
Formula: TypeAlias = "Callable[[LowerContext], Tensor | Sequence[Tensor]]"
Count: TypeAlias = "int | tuple[int, int | None]"

_KINDS = (
    PatternKind.INJECTIVE, PatternKind.BROADCAST, PatternKind.REDUCTION, PatternKind.OUT_FUSABLE, PatternKind.OPAQUE,
)  # fmt: skip
_OURS = ("", "ai.onnx")
_SAID = ("name", "kind", "infer", "min_inputs", "max_inputs", "min_outputs", "max_outputs", "own", "evaluate")
_TRAITS = tuple(f.name for f in fields(OpDef) if f.name not in _SAID)


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator ``name`` of the domain ``domain``, for ``compile(operators=[...])`` and ``tune``.

    ``domain``, ``name``: those of its nodes in a model. ``infer(ctx)``: the type of each result, from those of the
    operands (:mod:`tilewright.operators` has helpers). ``reference(*arrays, **attributes)``: what it means in numpy, a
    result or a tuple of them; an absent operand is None. ``lower(ctx)``: the formula, a tensor for each result; None:
    the operator runs in Python by its reference. ``inputs``, ``outputs``: how many, a number or the least and the most
    (None: any number).

    ``kind``: how elements of the result depend on the operands, which fusion goes by, and which must be true:
    ``BROADCAST`` may be joined with what is before and behind it, ``OPAQUE`` with little. ``traits``: more fields of
    :class:`tilewright.graph_ir.ops.base.OpDef`, as ``{"commutative": True}``.

    Raises InputError for what is none of these.

    >>> from tilewright.operators import Operator, PatternKind, elementwise, same
    >>> cube = Operator(
    ...     "com.example", "Cube", infer=same, reference=lambda x: x**3, kind=PatternKind.BROADCAST,
    ...     lower=lambda c: elementwise(c, lambda x: x * x * x),
    ... )
    >>> from onnx import TensorProto, helper
    >>> x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy")
    >>> graph = helper.make_graph([helper.make_node("Cube", ["x"], ["y"], domain="com.example")], "g", [x], [y])
    >>> opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.example", 1)]
    >>> import tilewright
    >>> model = tilewright.compile(helper.make_model(graph, opset_imports=opsets, ir_version=9), operators=[cube])
    >>> import numpy as np
    >>> model.run({"x": np.array([1, 2, 3], np.float32)})["y"]
    array([ 1.,  8., 27.], dtype=float32)
    """

    domain: str
    name: str
    infer: Infer
    reference: Reference
    lower: Formula | None = None
    kind: PatternKind = PatternKind.OPAQUE
    inputs: Count = 1
    outputs: Count = 1
    traits: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    definition: OpDef = field(init=False, repr=False)
    implementations: tuple[Implementation, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        who = f"operator {self.domain}::{self.name}"
        for part, given in (("domain", self.domain), ("name", self.name)):
            if not isinstance(given, str) or not given or is_qualified(given):
                raise InputError(f"{who}: {part}: expected a name, got {shown(given)}")
        if self.domain in _OURS:
            raise InputError(f"{who}: domain: expected one of your own, got that of ONNX's operators")
        for part, function in (("infer", self.infer), ("reference", self.reference), ("lower", self.lower)):
            if not callable(function) and not (part == "lower" and function is None):
                raise InputError(f"{who}: {part}: expected a function, got {shown(function)}")
        if self.kind not in _KINDS:
            names = ", ".join(f"PatternKind.{k.name}" for k in _KINDS)
            raise InputError(f"{who}: kind: expected one of {names}, got {shown(self.kind)}")
        traits: dict[str, Any] = dict(require_mapping(f"{who}: traits", self.traits))
        if unknown := sorted(traits.keys() - {*_TRAITS}):
            raise InputError(f"{who}: traits: expected some of {', '.join(_TRAITS)}, got {unknown[0]!r}")
        kind = PatternKind.HOST if self.lower is None else self.kind
        traits.setdefault("host", None if self.lower is not None else "it has no formula")
        counts = (*_count(f"{who}: inputs", self.inputs), *_count(f"{who}: outputs", self.outputs))
        definition = OpDef(
            self.qualified, kind, _inferring(who, self.infer), *counts, own=True,
            evaluate=_evaluating(who, self.reference), **traits,
        )  # fmt: skip
        object.__setattr__(self, "definition", definition)
        ways = () if self.lower is None else (Implementation(self.qualified, "only", _lowering(self.lower), _no_cost),)
        object.__setattr__(self, "implementations", ways)

    @property
    def qualified(self) -> str:
        """``domain::name``, under which passes and ``explain`` know it."""
        return qualified(self.domain, self.name)


def require_operators(given: object) -> tuple[Operator, ...]:
    """``given`` as operators of different names. Raises InputError."""
    listed = (given,) if isinstance(given, Operator) else given
    if not isinstance(listed, Iterable) or isinstance(listed, str):
        raise InputError(f"operators: expected a list of Operator values, got {shown(given)}")
    out: dict[str, Operator] = {}
    for o in listed:
        if not isinstance(o, Operator):
            raise InputError(f"operators: expected an Operator, got {shown(o)}")
        if o.qualified in out:
            raise InputError(f"operators: expected one {o.qualified}, got two")
        out[o.qualified] = o
    return tuple(out.values())


def definitions(operators: Sequence[Operator]) -> Operators:
    """What the graph IR needs to know of them."""
    return {o.qualified: o.definition for o in operators}


def _count(who: str, given: object) -> tuple[int, int | None]:
    if isinstance(given, tuple) and len(given) == 2:
        least, most = as_whole(given[0]), as_whole(given[1])
        if least is not None and least >= 0 and (given[1] is None or (most is not None and most >= least)):
            return least, most
    elif (number := as_whole(given)) is not None and number >= 0:
        return number, number
    raise InputError(f"{who}: expected a number, or the least and the most, got {shown(given)}")


def _inferring(who: str, infer: Infer) -> InferRule:
    def inferred(ctx: InferContext) -> tuple[Inferred, ...]:
        found = infer(ctx)
        out = tuple(found) if isinstance(found, tuple | list) else (found,)
        for t in out:
            if not isinstance(t, Inferred | TensorType):
                raise InputError(f"{who}: infer: {ctx.who}: expected a type for each result, got {shown(t)}")
        return tuple(Inferred(t) if isinstance(t, TensorType) else t for t in out)

    return inferred


def _evaluating(who: str, reference: Reference) -> Definition:
    def evaluate(attrs: Mapping[str, object], inputs: Sequence[object], n_outputs: int) -> list[object]:
        found = reference(*inputs, **attrs)
        out = [np.asarray(x) for x in found] if isinstance(found, tuple | list) else [np.asarray(found)]
        if len(out) < n_outputs or any(x.dtype == object for x in out):
            got = f"{len(out)} of types {', '.join(str(x.dtype) for x in out)}"
            raise ValueError(f"{who}: reference: expected {n_outputs} arrays, got {got}")
        return [*out[:n_outputs]]

    return evaluate


def _lowering(lower: Formula) -> Lower:
    def lowered(c: LowerContext) -> tuple[Tensor, ...]:
        found = lower(c)
        return (found,) if isinstance(found, Tensor) else tuple(found)

    return lowered


def _no_cost(facts: object) -> float:
    return 0.0
