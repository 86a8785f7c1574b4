"""A model to be edited. Immutable underneath: an edit makes another frozen model, a failed one none.

Operators are those of the newest ONNX, as everywhere in the graph IR; files are written in the opset that they had.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tilewright.core.errors import InputError
from tilewright.core.options import require_flag, shown
from tilewright.edit.found import Found
from tilewright.edit.operands import Operand, dtype_of_number, is_value
from tilewright.edit.operations import cleanup, functions, merge, nodes, rename, rewiring, shapes
from tilewright.edit.operations.batch import free_batch
from tilewright.edit.operations.element_types import convert
from tilewright.edit.operations.lookup import node_text, require_node, require_one_of, require_value, with_values
from tilewright.edit.operations.settle import depth_first
from tilewright.edit.reading import GraphReading, NodeLike, ValueLike, listed, node_name, value_name
from tilewright.edit.views import NodeView, ValueView
from tilewright.graph_ir.ir import Constant, Node, TensorType, Value
from tilewright.graph_ir.names import NameSupply
from tilewright.graph_ir.passes.base import PassLog
from tilewright.graph_ir.pipeline import PassReport
from tilewright.graph_ir.rules.base import Rule
from tilewright.graph_ir.rules.users import apply_rules

Build: TypeAlias = "Callable[..., ValueView | Sequence[ValueView]]"
Dims: TypeAlias = "Sequence[int | str | None]"
TypeLike: TypeAlias = "tuple[object, Dims | None]"
Pairs: TypeAlias = "Mapping[str, str | Sequence[str]] | None"


class ModelGraph(GraphReading):
    """The graph of a model, to look at and to edit (docs/editing-graphs.md). Types and shapes are inferred after each
    edit.

    An edit raises InputError for a name that is not there, with the nearest names that are, and ModelError, with the
    name of the node, where types no longer fit. Then the graph is what it was before. ``batch`` makes one edit of
    several.

    >>> graph = tilewright.load_graph("model.onnx")
    >>> [node.name for node in graph.nodes]
    ['hidden', 'bias', 'relu', 'readout']
    >>> view = graph.add_output("r")
    >>> graph.set_attrs("relu", slope=0.5)
    Traceback (most recent call last):
        ...
    tilewright.core.errors.InputError: node 'relu' (Relu): expected attributes of Relu (none), got slope
    """

    # -- new nodes and values ------------------------------------------------------------------------------------
    def add_input(self, name: str, dtype: object = "float32", shape: Dims | None = ()) -> ValueView:
        """An input more. ``shape``: numbers, names of dimensions, None for a size of its own; None: of any rank."""
        with self.batch():
            value = self._typed(name, (dtype, shape), f"input '{name}'")
            self._model = nodes.add_input(self._model, value)
        return self._value(name)

    def add_constant(self, array: object, name: str = "constant") -> ValueView:
        """A constant more; whole numbers are int64, others float32 unless ``array`` is an array. ``name`` gets a number
        if it is taken."""
        found = self.names().fresh(name)
        constant = array if isinstance(array, Constant) else Constant(nodes.as_array(array, f"constant '{name}'"))
        self._set(nodes.add_constant(self._model, constant, found))
        return self._value(found)

    def add(
        self, op: str, *operands: Operand, outputs: int | str | Sequence[str] = 1, name: str | None = None,
        domain: str = "", types: TypeLike | Sequence[TypeLike] | None = None, **attrs: object,
    ) -> ValueView:  # fmt: skip
        """A node more; its first result. ``outputs``: how many results, or what they are called.

        An operand is a value, an array or numbers, which become a constant, or None for an absent one; a single number
        has the element type of the operand that it goes with. ``types``: of what a node of another domain gives,
        ``("float32", ["batch", 10])``, if it is known; calls of the model's functions need none.
        """
        return self.add_node(op, *operands, outputs=outputs, name=name, domain=domain, types=types, **attrs).output

    def add_node(
        self, op: str, *operands: Operand, outputs: int | str | Sequence[str] = 1, name: str | None = None,
        domain: str = "", types: TypeLike | Sequence[TypeLike] | None = None, **attrs: object,
    ) -> NodeView:  # fmt: skip
        """:meth:`add`, but the node is what is returned."""
        with self.batch():
            names = self.names()
            label = names.fresh(op) if name is None else name
            inputs = [self._operand(op, domain, operands, k, label) for k in range(len(operands))]
            if isinstance(outputs, int):
                outs = [names.fresh(f"{label}_out") for _ in range(outputs)]
            else:
                outs = [outputs] if isinstance(outputs, str) else list(outputs)
            made = {k: v.graph if isinstance(v, GraphReading) else v for k, v in attrs.items()}
            self._model = nodes.new_node(self._model, op, inputs, outs, label, domain, made)
            self._declare(self._model.graph.nodes[-1], types)
        return self._node(label)

    def define_function(self, name: str, domain: str, body: GraphReading) -> None:
        """A function of the model: nodes ``name`` of ``domain`` do what ``body`` does. Raises InputError if taken."""
        self._set(functions.define_function(self._model, name, domain, body.model))

    def names(self) -> NameSupply:
        """New names: ``names().fresh("scale")`` is one that nothing in the graph has."""
        return NameSupply(self.raw)

    # -- what nodes, constants and the interface are -------------------------------------------------------------
    def set_attrs(self, node: NodeLike, **attrs: object) -> None:
        """Set some attributes of a node; None drops one."""
        found = self._require(node, "set_attrs")
        self._set(nodes.set_attributes(self._model, found, attrs))

    def set_input(self, node: NodeLike, index: int, value: ValueLike | None) -> None:
        """The node reads ``value`` as its input number ``index``; None: nothing, as an absent operand."""
        found = "" if value is None else value_name(value)
        self._set(nodes.set_input(self._model, node_name(node), index, found))

    def set_constant(self, name: ValueLike, array: object) -> None:
        """Other elements for a constant, perhaps of another type and shape."""
        constant = array if isinstance(array, Constant) else Constant(nodes.as_array(array, "set_constant"))
        self._set(nodes.set_constant(self._model, value_name(name), constant))

    def set_outputs(self, *values: ValueLike) -> None:
        """The outputs of the model, in this order."""
        self._set(nodes.set_outputs(self._model, [value_name(v) for given in values for v in listed(given)]))

    def add_output(self, value: ValueLike, name: str | None = None) -> ValueView:
        """An output more, a value of the graph; with ``name``, the value is renamed."""
        with self.batch():
            found = require_value(self.raw, value_name(value), "add_output")
            if name is not None and name != found:
                self.rename({found: name})
                found = name
            self._model = nodes.set_outputs(self._model, [*self.raw.outputs, found])
        return self._value(found)

    def remove_output(self, value: ValueLike) -> None:
        """One output less; what only it needed stays until ``cleanup``."""
        name = require_one_of(value_name(value), self.raw.outputs, "an output", "remove_output")
        self._set(nodes.set_outputs(self._model, [o for o in self.raw.outputs if o != name]))

    def fix_input(self, name: ValueLike, array: object) -> None:
        """An input becomes a constant. Raises InputError if type or shape do not fit."""
        found = require_one_of(value_name(name), self.raw.inputs, "an input", "fix_input")
        t = self.graph.values[found].type
        plain = not isinstance(array, np.ndarray) and isinstance(t, TensorType)
        elements = np.asarray(array, t.dtype.numpy if plain else None)  # type: ignore[union-attr]  # plain says so
        self._set(nodes.input_to_constant(self._model, found, elements))

    def free_constant(self, name: ValueLike) -> None:
        """A constant becomes an input of its type and shape."""
        self._set(nodes.constant_to_input(self._model, value_name(name)))

    def set_overridable(self, names: Sequence[ValueLike]) -> None:
        """The constants that are inputs of the file as well; with an empty list, none are."""
        self._set(nodes.set_overridable(self._model, [value_name(n) for n in names]))

    def set_opset(self, version: int, domain: str = "") -> None:
        """The version of ONNX's operators, or of another domain's, that the file asks for. Saving raises
        UnsupportedError, with the node and the lowest opset that can, for what it cannot say."""
        self._set(merge.set_opset(self._model, domain, version))

    # -- who reads what ------------------------------------------------------------------------------------------
    def redirect(self, old: ValueLike, new: ValueLike, readers: NodeLike | Sequence[NodeLike] | None = None) -> None:
        """Who reads ``old`` reads ``new``: all nodes, but for those that make ``new`` of it, and outputs, which keep
        their names; or only the nodes in ``readers``."""
        nodes_ = None if readers is None else [self._require(r, "redirect").name for r in listed(readers)]
        self._set(rewiring.redirect(self._model, value_name(old), value_name(new), nodes_))

    def insert_after(self, value: ValueLike, op: str | Build, *operands: Operand, **attrs: object) -> ValueView:
        """``op(value, *operands)`` for all who read ``value``. An output keeps its name. ``op``: an operator, or a
        function of the value that adds what comes behind it."""
        name = require_value(self.raw, value_name(value), "insert_after")
        with self.batch():
            new = self._made(op, (self._value(name),), operands, attrs)
            was_output = name in self.raw.outputs
            self._model = rewiring.redirect(self._model, name, new.name)
        return self._value(name if was_output else new.name)

    def insert_before(
        self, node: NodeLike, op: str | Build, *operands: Operand, index: int = 0, **attrs: object
    ) -> ValueView:
        """``op(value, *operands)`` in place of input number ``index`` of a node, which others go on to read."""
        found = self._require(node, "insert_before")
        if not 0 <= index < len(found.inputs) or not found.inputs[index]:
            raise InputError(f"insert_before {node_text(found)}: expected the number of an input, got {index}")
        with self.batch():
            new = self._made(op, (self._value(found.inputs[index]),), operands, attrs)
            self._model = nodes.set_input(self._model, found.name, index, new.name)
        return new

    def insert_between(
        self, first: ValueLike | NodeView, second: NodeLike, op: str | Build, *operands: Operand, **attrs: object
    ) -> ValueView:
        """``op(value, *operands)`` for node ``second`` alone, where it reads ``first``, a value or a node's result."""
        reader = self._require(second, "insert_between")
        name = self._result_read(first, reader)
        with self.batch():
            new = self._made(op, (self._value(name),), operands, attrs)
            self._model = rewiring.redirect(self._model, name, new.name, [reader.name])
        return new

    def replace(
        self, what: NodeLike | Found | Sequence[ValueLike], by: str | Build | ValueView, *operands: Operand,
        **attrs: object,
    ) -> ValueView:  # fmt: skip
        """Something else for the results of a node, of a place that ``match`` found, or for a list of values.

        ``by``: an operator, of ``operands`` (default: those of the node); a value; or a function, which is given the
        node's inputs, the place or the list, and gives a value for each result. What was needed for the old results
        only is removed; the new ones have their names.
        """
        old, given, label = self._replaced(what)
        before = {n.name for n in self.raw.nodes}
        with self.batch():
            if isinstance(by, ValueView):
                new: list[ValueView] = [by]
            elif isinstance(by, str):
                made = self.add_node(by, *(operands or given), outputs=len(old), **attrs)  # type: ignore[arg-type]
                new = [v for v in made.outputs if v is not None]
            else:
                made_by = by(*given)
                new = [made_by] if isinstance(made_by, ValueView) else list(made_by)
            if len(new) != len(old):
                raise InputError(f"replace: expected {len(old)} values ({', '.join(old)}), got {len(new)}")
            pairs = {o: v.name for o, v in zip(old, new, strict=True)}
            added = [v.name for v in new if v.producer is not None and v.producer.name not in before]
            self._model = rewiring.replaced(self._model, pairs)
            self._keep_names({o: n for o, n in pairs.items() if n in added}, label)
        return self._value(old[0] if old[0] in self.values else new[0].name)

    def remove(self, *what: NodeLike | Sequence[NodeLike], through: int | None = None, reconnect: bool = True) -> None:
        """Remove nodes; who read a result reads input number ``through`` of the node (default: its only one that is no
        constant). Not ``reconnect``: only nodes whose results nothing reads. Constants that only they read go too."""
        found = [self._require(n, "remove") for given in what for n in listed(given)]
        self._set(rewiring.without(self._model, found, through, reconnect))

    # -- names ---------------------------------------------------------------------------------------------------
    def rename(self, values: Mapping[str, str]) -> None:
        """Other names for values, inputs and outputs and those of subgraphs among them: old to new. Two may change
        places."""
        self._set_renamed(rename.renamed(self._model, values, {}))

    def rename_nodes(self, names: Mapping[str, str]) -> None:
        """Other names for nodes: old to new."""
        self._set_renamed(rename.renamed(self._model, {}, names))

    def rename_dim(self, old: str, new: str) -> None:
        """Another name for a dimension of the inputs, wherever it occurs."""
        self._set_renamed(rename.rename_dim(self._model, old, new))

    def rename_graph(self, name: str) -> None:
        """Another name for the graph."""
        self._set(self._model.with_graph(self.raw.replace(name=name)))

    # -- shapes and types ----------------------------------------------------------------------------------------
    def set_shape(self, name: ValueLike, shape: Sequence[int | str | None]) -> None:
        """Another shape for an input, or for the result of a foreign node: numbers, names of dimensions, None for a
        size of its own. Shapes behind it follow."""
        self._set(shapes.set_shape(self._model, value_name(name), shape))

    def set_dim(self, name: str, size: int | str) -> None:
        """A number, or another dimension, for a dimension of the inputs, wherever it occurs."""
        self._set(shapes.set_dim(self._model, name, size))

    def free_batch(self, name: str = "batch", inputs: Sequence[ValueLike] | None = None) -> None:
        """A model of one batch size becomes one of any: axis 0 of ``inputs`` (default: all) is the dimension ``name``.

        Shapes that Reshape and Expand have as constants follow, and operands that are there once are repeated for all:
        a token in front of the others, the first state of a recurrent layer. Raises InputError for a node that takes
        the batch to be a number in another way, and for an output that would not follow.
        """
        given = list(self.raw.inputs) if inputs is None else [value_name(i) for i in inputs]
        for i in given:
            require_one_of(i, self.raw.inputs, "an input", "free_batch")
        self._set(free_batch(self.model, name, given))

    def set_type(self, name: ValueLike, dtype: object, shape: Sequence[int | str | None] | None = None) -> None:
        """What an input is, or a foreign node gives; ``shape`` None: of any rank."""
        found = require_value(self.raw, value_name(name), "set_type")
        with self.batch():
            value = self._typed(found, (dtype, shape), f"set_type '{found}'")
            self._model = shapes.set_type(self._model, value)

    def convert(
        self, to: object, source: object = "float32", interface: bool = False,
        skip: str | Sequence[str] | Callable[[NodeView], bool] = (),
    ) -> None:  # fmt: skip
        """Weights and values of element type ``source`` become ``to``, with Casts where an operator does not take it.

        Inputs and outputs stay as they are, behind Casts, unless ``interface``. ``skip``: operators or names of nodes,
        or a function, of what stays in ``source``. Nodes with subgraphs and foreign nodes stay. Elements out of range
        of ``to`` become its largest.
        """
        names = self._skipped(skip)
        old, new = nodes.as_dtype(source, "convert: source"), nodes.as_dtype(to, "convert: to")
        self._set(convert(self.model, old, new, interface, names))

    def set_input_type(self, name: ValueLike, dtype: object) -> None:
        """Another element type for an input, with a Cast behind it: the graph computes what it did."""
        found = require_one_of(value_name(name), self.raw.inputs, "an input", "set_input_type")
        with self.batch():
            old = self.graph.values[found]
            new = nodes.as_dtype(dtype, f"set_input_type '{found}'")
            if old.dtype != new:
                self._model = shapes.set_type(self._model, Value(found, TensorType(new, old.shape)))
                cast = self.add("Cast", found, to=old.dtype)
                self._model = rewiring.redirect(self._model, found, cast.name)

    def set_output_type(self, name: ValueLike, dtype: object) -> None:
        """Another element type for an output, by a Cast before it."""
        found = require_one_of(value_name(name), self.raw.outputs, "an output", "set_output_type")
        new = nodes.as_dtype(dtype, f"set_output_type '{found}'")
        if self.graph.values[found].dtype != new:
            self.insert_after(found, "Cast", to=new)

    # -- other models --------------------------------------------------------------------------------------------
    def append(self, other: GraphReading, connections: Pairs = None, prefix: str = "second_") -> None:
        """``other`` behind this graph, as post-processing: outputs of this one to the inputs of ``other`` that they
        are (default: one to one in order). See :func:`merge_graphs`."""
        self._set(merge.merge(self.model, other.model, connections, prefix, ()))

    def prepend(self, other: GraphReading, connections: Pairs = None, prefix: str = "first_") -> None:
        """``other`` before this graph, as pre-processing: outputs of ``other`` to the inputs of this one that they are
        (default: one to one in order). Names of ``other`` that this graph has too get ``prefix``; those of inputs that
        are connected are free."""
        self._set(merge.merge(other.model, self.model, connections, prefix, (), of_first=True))

    # -- whole graphs --------------------------------------------------------------------------------------------
    def cleanup(self, unused_inputs: bool = False) -> None:
        """Remove nodes and constants that no output needs, and with ``unused_inputs`` such inputs."""
        self._set(cleanup.cleaned(self._model, require_flag("unused_inputs", unused_inputs)))

    def fold(self) -> PassLog:
        """What depends on constants only, and sizes that are known, become constants, where that takes less than a
        megabyte more; what was done, and what was refused and why."""
        model, log = cleanup.folded(self.model)
        self._set(model)
        return log

    def share(self) -> PassLog:
        """Each computation, and each small constant, once."""
        model, log = cleanup.shared(self.model)
        self._set(model)
        return log

    def sort(self) -> None:
        """Nodes so that each stands as near as can be behind what it reads. Every edit keeps them in some order."""
        self._set(self.model.with_graph(self.graph.replace(nodes=depth_first(self.graph))))

    def apply_rules(self, rules: Sequence[Rule]) -> PassReport:
        """Rewrite by rules of your own until none fits; what fired, and what was refused. See :mod:`tilewright.rules`.

        Raises RuleError, with its name, for a rule that does not end.
        """
        graph, report = apply_rules(self.graph, rules)
        self._set(nodes.declared_domains(self._model.with_graph(graph)))
        return report

    # -- inside --------------------------------------------------------------------------------------------------
    def _require(self, node: NodeLike, who: str) -> Node:
        return require_node(self.raw, node_name(node), who)

    def _typed(self, name: str, type_: object, who: str) -> Value:
        """A value of a type that the user gives; names of dimensions are noted."""
        if not isinstance(type_, tuple) or len(type_) != 2:
            raise InputError(f"{who}: expected an element type and a shape, got {shown(type_)}")
        dtype = nodes.as_dtype(type_[0], who)
        if type_[1] is None:
            return Value(name, TensorType(dtype, None))
        self._model, shape = shapes.shape_of(self._model, name, type_[1], who)
        return Value(name, TensorType(dtype, shape))

    def _declare(self, node: Node, types: object) -> None:
        if types is not None:
            given = [types] if isinstance(types, tuple) else list(types)  # type: ignore[call-overload]
            outs = [o for o in node.outputs if o]
            if not node.domain or len(given) != len(outs):
                raise InputError(f"add {node_text(node)}: expected types of {len(outs)} results of a node of another "
                                 f"domain, got {len(given)}")  # fmt: skip
            values = [self._typed(o, t, f"add {node_text(node)}") for o, t in zip(outs, given, strict=True)]
            self._model = with_values(self._model, values)
        elif node.domain and functions.has_function(self._model, node):
            self._model = with_values(self._model, functions.results_of_call(self.model, node))

    def _operand(self, op: str, domain: str, operands: Sequence[Operand], k: int, label: str) -> str:
        x = operands[k]
        if x is None or is_value(x):
            return "" if x is None else value_name(x)
        array = nodes.as_array(x, f"node '{label}' ({op}): operand {k}")
        if isinstance(x, int | float):
            array = array.astype(dtype_of_number(self.graph, op, domain, operands, k) or array.dtype)
        return self.add_constant(array, f"{label}_operand_{k}").name

    def _made(
        self, op: str | Build, given: tuple[ValueView, ...], operands: Sequence[Operand], attrs: Mapping[str, object]
    ) -> ValueView:
        made = self.add(op, *given, *operands, **attrs) if isinstance(op, str) else op(*given)  # type: ignore[arg-type]
        if not isinstance(made, ValueView):
            raise InputError(f"insert: expected a value, got {shown(made)}")
        return made

    def _result_read(self, first: ValueLike | NodeView, reader: Node) -> str:
        if isinstance(first, NodeView):
            read = [o for o in first.node.outputs if o in reader.inputs]
            if len(read) != 1:
                raise InputError(f"insert_between: expected one result of '{first.name}' that '{reader.name}' reads, "
                                 f"got {read or 'none'}")  # fmt: skip
            return read[0]
        name = require_value(self.raw, value_name(first), "insert_between")
        if name not in reader.inputs:
            known = ", ".join(reader.inputs)
            raise InputError(f"insert_between: expected an input of {node_text(reader)} ({known}), got '{name}'")
        return name

    def _replaced(self, what: object) -> tuple[list[str], tuple[object, ...], str]:
        """The results to replace, what a function is given, and the name of the node that goes."""
        if isinstance(what, Found):
            node, given = what.root.node, (what,)
        elif isinstance(what, str | NodeView):
            node = self._require(what, "replace")
            given = tuple(self._value(i) if i else None for i in node.inputs)  # type: ignore[assignment]
        else:
            old = [require_value(self.raw, value_name(v), "replace") for v in listed(what)]
            return old, tuple(self._value(v) for v in old), ""
        read = [o for o in node.outputs if o and (o in self.raw.outputs or self.readers_of(o))]
        return read or [o for o in node.outputs if o][:1], given, node.name

    def _keep_names(self, pairs: Mapping[str, str], label: str) -> None:
        """New results have the names of old ones that are gone, and what makes the first that of the old node."""
        gone = {n: o for o, n in pairs.items() if o not in self.values and n in self.values}
        makers = {}
        for o, n in [*pairs.items()][:1]:
            maker = self.producer_of(n if n in gone else o)
            if maker is not None and label and label not in self.nodes:
                makers = {maker.name: label}
        self._model = rename.renamed(self._model, gone, makers)

    def _skipped(self, skip: object) -> frozenset[str]:
        if callable(skip):
            return frozenset(n.name for n in self.nodes if skip(n))
        wanted = listed(skip)
        for w in wanted:
            require_one_of(w, {*(n.name for n in self.raw.nodes), *(n.op for n in self.raw.nodes)},
                           "an operator or the name of a node", "convert: skip")  # fmt: skip
        return frozenset(n.name for n in self.raw.nodes if n.name in wanted or n.op in wanted)
