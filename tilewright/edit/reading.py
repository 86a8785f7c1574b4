"""A model's graph as one looks at it, runs it and writes it; :mod:`tilewright.edit.model_graph` changes it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import onnx

from tilewright.core.errors import InputError
from tilewright.core.options import shown
from tilewright.edit.found import Found, find_pattern
from tilewright.edit.operations.cut import extract
from tilewright.edit.operations.lookup import defined, require_node, require_one_of, require_value
from tilewright.edit.operations.run import run, run_node
from tilewright.edit.operations.settle import settled
from tilewright.edit.operations.shapes import dims_of
from tilewright.edit.views import NodeView, ValueView, Views, name_fits
from tilewright.frontend.keep import OnnxModel
from tilewright.graph_ir.graph_table import graph_html
from tilewright.graph_ir.ir import Graph, Node, node_reads
from tilewright.graph_ir.rules.base import Either, P
from tilewright.graph_ir.text import print_graph
from tilewright.graph_ir.verifier import verify_graph
from tilewright.writer import save_onnx, to_onnx

ValueLike: TypeAlias = "ValueView | str"
NodeLike: TypeAlias = "NodeView | str"


class GraphReading:
    """A handle on a frozen model: an edit puts another one in its place, or none if it fails."""

    def __init__(self, model: OnnxModel) -> None:
        self._model = model
        self._settled: Graph | None = model.graph
        self._since = model.graph
        self._index: _Index | None = None
        self._depth = 0

    # -- the model as it is --------------------------------------------------------------------------------------
    @property
    def model(self) -> OnnxModel:
        """The graph with what its file says beside it, types inferred. Raises ModelError where they do not fit."""
        if self._settled is not self._model.graph:
            self._model = settled(self._model, self._since)
            self._settled = self._since = self._model.graph
        return self._model

    @property
    def graph(self) -> Graph:
        """The graph IR: frozen, so that it stays what it is whatever is edited later."""
        return self.model.graph

    @property
    def raw(self) -> Graph:
        """The graph before types are inferred, within a ``batch``."""
        return self._model.graph

    def copy(self) -> Self:
        """A handle of its own on the same model; this one's edits do not show in it. Costs nothing."""
        return type(self)(self.model)

    def __str__(self) -> str:
        """The text of the graph IR."""
        return print_graph(self.graph)

    def __repr__(self) -> str:
        g = self.raw
        counts = f"{len(g.nodes)} nodes, {len(g.inputs)} inputs, {len(g.outputs)} outputs"
        return f"<{type(self).__name__} '{g.name}': {counts}>"

    def _repr_html_(self) -> str:
        return graph_html(self.raw)

    # -- views ---------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The name of the graph."""
        return self.raw.name

    @property
    def opset(self) -> int:
        """The version of ONNX's operators in which the model is written, if that can say it."""
        return self._model.opset

    @property
    def inputs(self) -> Views[ValueView]:
        """The inputs in order: by name, by number, or one after the other."""
        return self._values(self.raw.inputs, "an input")

    @property
    def outputs(self) -> Views[ValueView]:
        """The outputs in order, as :attr:`inputs`."""
        return self._values(self.raw.outputs, "an output")

    @property
    def constants(self) -> Views[ValueView]:
        """The constants, as :attr:`inputs`; ``.array`` of one has its elements."""
        return self._values(self.raw.constants, "the name of a constant")

    @property
    def values(self) -> Views[ValueView]:
        """Inputs, constants and results of nodes."""
        return Views(tuple(defined(self.raw)), self._value, lambda k: require_value(self.raw, k, "values"))

    @property
    def nodes(self) -> Views[NodeView]:
        """The nodes, each behind those that make what it reads: by name, by number, or one after the other."""
        names = tuple(n.name for n in self.raw.nodes)
        return Views(names, self._node, lambda k: require_node(self.raw, k, "nodes"))

    @property
    def dims(self) -> tuple[str, ...]:
        """What the dimensions of the inputs are called."""
        return tuple(dims_of(self._model))

    @property
    def overridable(self) -> frozenset[str]:
        """Constants that are inputs of the file as well: its caller may replace them."""
        return self._model.overridable

    def _value(self, name: str) -> ValueView:
        return ValueView(self, name)

    def _node(self, name: str) -> NodeView:
        return NodeView(self, name)

    def _values(self, names: Iterable[str], what: str) -> Views[ValueView]:
        known = tuple(names)
        return Views(known, self._value, lambda k: require_one_of(k, known, what, self.raw.name))

    # -- finding -------------------------------------------------------------------------------------------------
    def find(
        self, op: str | Sequence[str] | None = None, name: str | None = None, domain: str | None = None,
        where: Callable[[NodeView], bool] | None = None,
    ) -> list[NodeView]:  # fmt: skip
        """Nodes by operator (or one of several), by name (``*`` stands for any text), by domain, by a function."""
        ops = None if op is None else (op,) if isinstance(op, str) else tuple(op)
        fits = (
            n for n in self.raw.nodes
            if (ops is None or n.op in ops) and name_fits(n.name, name) and (domain is None or n.domain == domain)
        )  # fmt: skip
        views = (self._node(n.name) for n in fits)
        return [v for v in views if where is None or where(v)]

    def find_values(self, name: str | None = None, where: Callable[[ValueView], bool] | None = None) -> list[ValueView]:
        """Values by name (``*`` stands for any text), by a function."""
        return [v for v in self.values if name_fits(v.name, name) and (where is None or where(v))]

    def match(self, pattern: P | Either) -> list[Found]:
        """Where a pattern of :mod:`tilewright.rules` is in the graph, in the order of its roots."""
        return find_pattern(self, pattern, self.graph)

    def producer_of(self, value: str) -> Node | None:
        """The node that makes a value; None for an input or a constant."""
        return self._indexed().producers.get(value)

    def readers_of(self, value: str) -> list[Node]:
        """The nodes that read a value, those whose subgraphs read it among them."""
        return self._indexed().readers.get(value, [])

    def _indexed(self) -> _Index:
        if self._index is None or self._index.graph is not self.raw:
            self._index = _Index(self.raw)
        return self._index

    # -- running and writing -------------------------------------------------------------------------------------
    def run(
        self, feed: Mapping[str, object], outputs: ValueLike | Sequence[ValueLike] | None = None
    ) -> dict[str, np.ndarray]:
        """Values for the values in ``feed``, by the interpreter: slow, and right.

        ``feed`` may have values anywhere in the graph, and ``outputs`` may ask for any: then only what lies in between
        is computed. Raises InputError for what does not fit or is missing, by name; UnsupportedError for a foreign
        node that nobody knows.
        """
        wanted = None if outputs is None else [value_name(v) for v in listed(outputs)]
        return run(self.model, feed, wanted)  # type: ignore[return-value]  # sequences are lists

    def run_node(self, node: NodeLike, *arrays: object) -> list[np.ndarray]:
        """Results of one node for its inputs that are no constants."""
        model = self.model
        return run_node(model, require_node(model.graph, node_name(node), "run_node"), arrays)  # type: ignore[return-value]

    def extract(self, inputs: Sequence[ValueLike] | None, outputs: ValueLike | Sequence[ValueLike]) -> Self:
        """A new handle on the part that computes ``outputs`` from ``inputs``, values anywhere in the graph; None: from
        those inputs of the model that it takes. Raises InputError for a cut that leaves inputs undefined, by name."""
        given = None if inputs is None else [value_name(v) for v in listed(inputs)]
        return type(self)(settled(extract(self.model, given, [value_name(v) for v in listed(outputs)])))

    def to_onnx(self, opset: int | None = None, value_infos: bool = True) -> onnx.ModelProto:
        """The model as a message; see :func:`tilewright.writer.to_onnx`."""
        verify_graph(self.graph, foreign=True)
        return to_onnx(self.model, opset, value_infos)

    def save(self, path: str | Path, opset: int | None = None, external_data: bool | None = None) -> None:
        """Write the model; above 2 GB with its weights in a file beside it. See :func:`tilewright.writer.save_onnx`."""
        verify_graph(self.graph, foreign=True)
        save_onnx(self.model, path, opset, external_data)

    # -- for edits -----------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def batch(self) -> Iterator[Self]:
        """Several edits as one: types are inferred when one asks for them or all are done, so that what is between may
        not fit. If anything is raised the graph is as it was before."""
        before = self._model, self._settled, self._since
        with contextlib.ExitStack() as undo:
            undo.callback(self._restore, before)
            self._depth += 1
            undo.callback(self._leave)
            yield self
            if self._depth == 1:
                _ = self.model
            undo.pop_all()
            self._leave()

    def _restore(self, state: tuple[OnnxModel, Graph | None, Graph]) -> None:
        self._model, self._settled, self._since = state

    def _leave(self) -> None:
        self._depth -= 1

    def _set(self, model: OnnxModel) -> None:
        """Put another model in place; outside of a batch it must fit."""
        with self.batch():
            self._model = model

    def _set_renamed(self, model: OnnxModel) -> None:
        """Put the same model under other names in place: its types hold if they did."""
        holds = self._settled is self._model.graph
        with self.batch():
            self._model = model
            if holds:
                self._settled = self._since = model.graph


class _Index:
    """Who gives and who reads the values of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.readers: dict[str, list[Node]] = {}
        for n in graph.nodes:
            for i in dict.fromkeys(node_reads(n)):
                self.readers.setdefault(i, []).append(n)


def value_name(value: ValueLike | NodeView) -> str:
    """The name of a value, given as such or as a view."""
    if isinstance(value, NodeView):
        return value.output.name
    return value.name if isinstance(value, ValueView) else value


def node_name(node: NodeLike) -> str:
    """The name of a node, given as such or as a view."""
    if not isinstance(node, NodeView | str):
        raise InputError(f"expected a node or its name, got {shown(node)}")
    return node.name if isinstance(node, NodeView) else node


def listed(given: Any) -> list[Any]:
    """Several of what may be given alone."""
    alone = isinstance(given, str | ValueView | NodeView) or not isinstance(given, Iterable)
    return [given] if alone else list(given)
