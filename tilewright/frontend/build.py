"""What a converter works with: the node being converted, and a builder that adds nodes and constants to a graph.

Names are unique over the whole import (a graph, its subgraphs, expanded functions). The builder knows what is cheap
to know while a graph is being built: constants, and element types as far as operator signatures decide them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.core.io.stored import Content
from tilewright.frontend.lookahead import Lookahead
from tilewright.frontend.schemas import NEWEST_OPSET, output_dtypes, signature
from tilewright.graph_ir.inference import constant_value
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, TensorType, Type, Value, make_attrs
from tilewright.graph_ir.ops.base import OpDef

# attributes that name an element type; 0 (and an absent attribute) means the default
ELEMENT_TYPE_ATTRS = frozenset(
    ("to", "dtype", "output_dtype", "output_datatype", "precision", "softmax_precision", "stash_type")
)
MAX_NODES = 200_000

_SUBGRAPH_OUTPUTS = {"If": ("then_branch", 0), "Loop": ("body", 1), "Scan": ("body", 0)}
_COUNTED_OUTPUTS = frozenset((*_SUBGRAPH_OUTPUTS, "Split"))
"""Operators whose number of outputs means something, also where nobody wants the last ones."""


@dataclass(frozen=True, slots=True)
class Call:
    """One ONNX node with its names resolved and its attributes read; an absent input or output is ""."""

    op: str
    domain: str
    version: int
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: Mapping[str, Attribute]

    def input(self, i: int) -> str:
        """Name of input ``i``, "" if absent."""
        return self.inputs[i] if i < len(self.inputs) else ""

    def output(self, i: int) -> str:
        """Name of output ``i``, "" if absent."""
        return self.outputs[i] if i < len(self.outputs) else ""

    def int_attr(self, key: str, default: int) -> int:
        v = self.attrs.get(key, default)
        return v if isinstance(v, int) else self.error(f"an integer attribute {key}", v)

    def float_attr(self, key: str, default: float) -> float:
        """A float attribute; like one of a file, the standard's default is a float32."""
        v = self.attrs.get(key, float(np.float32(default)))
        return float(v) if isinstance(v, int | float) else self.error(f"a number as attribute {key}", v)

    def str_attr(self, key: str, default: str) -> str:
        v = self.attrs.get(key, default)
        return v if isinstance(v, str) else self.error(f"a text attribute {key}", v)

    def ints_attr(self, key: str) -> tuple[int, ...] | None:
        v = self.attrs.get(key)
        if v is None:
            return None
        if not isinstance(v, tuple) or any(not isinstance(x, int) for x in v):
            self.error(f"integers as attribute {key}", v)
        return v  # type: ignore[return-value]

    def error(self, expected: str, got: object) -> NoReturn:
        raise ModelError(f"node '{self.name}' ({self.op}): expected {expected}, got {got}")

    def unsupported(self, what: str) -> UnsupportedError:
        """The error for ``what`` this node asks for and nothing here can do."""
        return UnsupportedError(f"node '{self.name}' ({self.op}): {what}")


@dataclass(slots=True)
class ImportState:
    """What all graphs of one import share."""

    value_names: set[str] = field(default_factory=set)
    node_names: set[str] = field(default_factory=set)
    dtypes: dict[str, DType] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    nodes: int = 0
    lookahead: Lookahead = field(init=False)
    _next: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lookahead = Lookahead(self.constants)

    def value_name(self, hint: str) -> str:
        """A value name that nothing else has, as near to ``hint`` as possible."""
        return self._unique(hint or "value", self.value_names)

    def node_name(self, hint: str) -> str:
        return self._unique(hint, self.node_names)

    def _unique(self, hint: str, taken: set[str]) -> str:
        name = hint
        if name in taken:
            n = self._next.get(hint, 0)
            while name in taken:
                n += 1
                name = f"{hint}_{n}"
            self._next[hint] = n
        taken.add(name)
        return name


class GraphBuilder:
    """Collects the nodes, constants and known types of one graph."""

    def __init__(self, state: ImportState, expand: Callable[[GraphBuilder, Call], bool]) -> None:
        self.state = state
        self.nodes: list[Node] = []
        self.values: dict[str, Value] = {}
        self.constants: dict[str, Constant] = {}
        self._expand = expand
        self._hint = ""

    def nested(self) -> GraphBuilder:
        """A builder for a subgraph, which may read this graph's values."""
        inner = GraphBuilder(self.state, self._expand)
        inner.begin(self._hint)
        return inner

    def body(self, name: str, inputs: Sequence[str], outputs: Sequence[str]) -> Graph:
        """What was built, as a subgraph."""
        return Graph(name, tuple(inputs), tuple(outputs), tuple(self.nodes), self.values, self.constants)

    # -- what is known -------------------------------------------------------------------------------------------
    def dtype(self, name: str) -> DType | None:
        """Element type of a value, if known."""
        found = self.state.dtypes.get(name)
        if found is None:
            t = self.state.lookahead.type(name)
            found = t.dtype if isinstance(t, TensorType) else None
        return found

    def type(self, name: str) -> Type | None:
        """Type of a value as far as the nodes before it tell; see :mod:`tilewright.frontend.lookahead`."""
        return self.state.lookahead.type(name)

    def rank(self, name: str) -> int | None:
        """Rank of a value, if known."""
        t = self.type(name)
        return len(t.shape) if isinstance(t, TensorType) and t.shape is not None else None

    def constant_value(self, name: str) -> np.ndarray | None:
        """The array of a value, if it is a constant."""
        c = self.state.constants.get(name)
        return None if c is None else c.array

    def fixed_size(self, name: str, axis: int) -> int | None:
        """One dim of a value, if it is known and the same in every call."""
        t = self.type(name)
        return t.shape[axis].value() if isinstance(t, TensorType) and t.shape is not None else None

    def producer(self, name: str) -> Node | None:
        """The node that computes a value, None for an operand of the graph."""
        return self.state.lookahead.producers.get(name)

    def is_empty_constant(self, name: str) -> bool:
        """True for a constant without elements: how old versions say that an input is absent."""
        c = self.state.constants.get(name)
        return c is not None and c.size == 0

    # -- building ------------------------------------------------------------------------------------------------
    def begin(self, hint: str) -> None:
        """Names made from here on are derived from ``hint``."""
        self._hint = hint

    def name(self, hint: str) -> str:
        """A fresh value name."""
        return self.state.value_name(f"{self._hint}_{hint}" if self._hint else hint)

    def define_constant(self, name: str, content: Content) -> None:
        """Make ``name`` a constant of this graph."""
        c = Constant(content)
        dtype = dtypes.from_numpy(c.dtype)
        self.constants[name] = c
        self.state.constants[name] = c
        self.state.dtypes[name] = dtype
        self.define_value(constant_value(name, c))

    def define_value(self, value: Value) -> None:
        """Record the type of an input or constant of this graph."""
        self.values[value.name] = value
        self.state.lookahead.values[value.name] = value

    def constant(self, array: np.ndarray, hint: str) -> str:
        """A fresh constant."""
        name = self.name(hint)
        self.define_constant(name, array)
        return name

    def ints(self, values: Sequence[int], hint: str) -> str:
        """A fresh constant: an int64 vector."""
        try:
            return self.constant(np.array(values, np.int64).reshape(-1), hint)
        except OverflowError as e:
            raise ModelError(f"node '{self._hint}': {hint} expected 64-bit integers, got {list(values)[:8]}") from e

    def scalar_like(self, value: float, like: str, hint: str) -> str:
        """A scalar of the element type of ``like``."""
        dtype = self.dtype(like)
        if dtype is not None and dtype.kind != "s":
            with np.errstate(over="ignore", invalid="ignore"):
                if dtype.kind in "iu":
                    info = np.iinfo(dtype.numpy) if dtype.bits >= 8 else None
                    value = float(np.nan_to_num(value))
                    clipped = int(value) if info is None else min(max(int(value), int(info.min)), int(info.max))
                    return self.constant(np.array(clipped).astype(dtype.numpy), hint)
                return self.constant(np.array(value, np.float64).astype(dtype.numpy), hint)
        plain = self.constant(np.array(value, np.float32), hint)
        return self.emit("CastLike", (plain, like), hint=f"{hint}_cast")

    def emit(self, op: str, inputs: Sequence[str], hint: str = "", **attrs: Attribute) -> str:
        """Add a node with one output and return that output's name."""
        out = self.name(hint or op.lower())
        self.emit_to(op, inputs, (out,), attrs)
        return out

    def emit_to(self, op: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Attribute]) -> None:
        """Add a node of the newest version that defines ``outputs``. Trailing absent ones are dropped, and inputs."""
        ins = list(inputs)
        while ins and not ins[-1]:
            ins.pop()
        outs = list(outputs)
        while op not in _COUNTED_OUTPUTS and len(outs) > 1 and not outs[-1]:
            outs.pop()
        call = Call(op, "", NEWEST_OPSET, self._hint or op, tuple(ins), tuple(outs), attrs)
        self.state.nodes += 1
        if self.state.nodes > MAX_NODES:
            raise ModelError(f"node '{call.name}' ({op}): the model expands to more than {MAX_NODES} nodes")
        if self._expand(self, call):
            return
        self._add(call)
        self._note_dtypes(call)

    def emit_foreign(self, call: Call) -> None:
        """Add a node that is kept as it is in the file."""
        self._add(replace(call, domain=call.domain or "ai.onnx"))

    def emit_own(self, definition: OpDef, call: Call) -> None:
        """Add a node of an operator that the user brought along."""
        self._add(call, definition)

    def _add(self, call: Call, definition: OpDef | None = None) -> None:
        name = self.state.node_name(call.name)
        node = Node(call.op, call.inputs, call.outputs, make_attrs(call.attrs), name, call.domain, definition)
        self.nodes.append(node)
        self.state.lookahead.producers.update((o, node) for o in call.outputs if o)

    def _note_dtypes(self, call: Call) -> None:
        found: list[DType | None] = []
        if call.op in _SUBGRAPH_OUTPUTS:
            key, skip = _SUBGRAPH_OUTPUTS[call.op]
            body = call.attrs.get(key)
            if isinstance(body, Graph):
                found = [self.dtype(o) for o in body.outputs[skip:]]
        else:
            sig = signature(call.op, "", NEWEST_OPSET)
            if sig is not None:
                found = output_dtypes(sig, [self.dtype(i) if i else None for i in call.inputs], len(call.outputs))
            explicit = next((v for k in ("to", "dtype", "output_dtype", "output_datatype")
                             if isinstance(v := call.attrs.get(k), DType)), None)  # fmt: skip
            if explicit is not None:
                found = [explicit, *found[1:]]
            elif call.op == "ConstantOfShape":
                value = call.attrs.get("value")
                found = [dtypes.from_numpy(value.dtype) if isinstance(value, Constant) else dtypes.float32]
            elif call.op == "DequantizeLinear":
                found = [self.dtype(call.input(1))]
        for name, dtype in zip(call.outputs, found, strict=False):
            if name and dtype is not None:
                self.state.dtypes[name] = dtype
