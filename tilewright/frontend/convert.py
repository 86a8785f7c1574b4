"""ONNX graphs to graph IR: scopes, constants, nodes through the converter table, functions expanded in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress

import numpy as np
import onnx

from tilewright.core.errors import ModelError, UnsupportedError
from tilewright.frontend.attributes import (
    AttrEnv,
    BoundAttr,
    bind_attributes,
    check_attributes,
    is_without_form,
    make_proto,
    read_attribute,
)
from tilewright.frontend.build import Call, GraphBuilder, ImportState
from tilewright.frontend.dims import Dims, read_type
from tilewright.frontend.model_file.source import Source
from tilewright.frontend.model_file.tensors import read_sparse, read_tensor
from tilewright.frontend.report import old_form
from tilewright.frontend.schemas import (
    NEWEST_OPSET,
    FunctionKey,
    Signature,
    function_body,
    function_key,
    normal_domain,
    require_types,
    signature,
)
from tilewright.frontend.scope import Scope, in_order
from tilewright.frontend.table import find_rule
from tilewright.graph_ir.ir import Attribute, Constant, Graph, Node, TensorType, Type, Value
from tilewright.graph_ir.user_operators import NO_OPERATORS, Operators, qualified

MAX_DEPTH = 32

Native = Callable[[str], bool]
Opsets = Mapping[str, int]


def opset_versions(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Version by domain."""
    return {normal_domain(o.domain): o.version for o in imports}


class GraphConverter:
    """Converts one model. ``native``: which operators of the newest opset the graph may contain. ``keeps``: others, and
    calls of functions, stay as they are as foreign nodes, with the types that the file declares for their results.
    ``operators``: of the user's own."""

    def __init__(
        self, source: Source, native: Native, dims: Dims, shapes: Mapping[str, Sequence[int | str]],
        keeps: bool = False, operators: Operators = NO_OPERATORS,
    ) -> None:  # fmt: skip
        self._source = source
        self._native = native
        self._dims = dims
        self._shapes = shapes
        self._keeps = keeps
        self._operators = operators
        self._state = ImportState()
        self._functions = {function_key(f.domain, f.name, f.overload): f for f in source.model.functions}
        self._active: list[FunctionKey] = []
        self._depth = 0
        self.notes: dict[str, onnx.NodeProto] = {}
        """With ``keeps``: by the name of a node, what its message says that the graph does not."""

    def convert(self) -> Graph:
        """The model's graph; only inputs, constants and what they make certain have types."""
        proto = self._source.model.graph
        names = self._state.value_names
        names.update(i.name for i in proto.input)
        names.update(t.name for t in proto.initializer)
        names.update(o for n in proto.node for o in n.output if o)
        return self._graph(proto, None, opset_versions(self._source.model.opset_import), {})

    # -- graphs --------------------------------------------------------------------------------------------------
    def _graph(self, proto: onnx.GraphProto, parent: Scope | None, opsets: Opsets, env: AttrEnv) -> Graph:
        label = f"graph {proto.name!r}"
        self._enter(label)
        is_main = parent is None
        scope = Scope(parent, label)
        build = GraphBuilder(self._state, self._expand_emitted)
        self._constants(proto, scope, build, is_main)
        inputs = tuple(
            self._input(i, scope, build, is_main) for i in proto.input if not self._is_initializer(i.name, scope, build)
        )
        self._nodes(proto.node, scope, build, opsets, env)
        outputs = []
        for o in proto.output:
            name = scope.find(o.name)
            if name is None:
                raise ModelError(f"{label}: expected a definition of output {o.name!r}, got none")
            outputs.append(name)
        if len(set(outputs)) != len(outputs) and is_main:
            raise ModelError(f"{label}: expected different outputs, got {outputs[:10]}")
        self._depth -= 1
        values = {**self._declared(proto, scope), **build.values} if self._keeps else build.values
        return Graph(proto.name or "graph", inputs, tuple(outputs), tuple(build.nodes), values, build.constants)

    def _declared(self, proto: onnx.GraphProto, scope: Scope) -> dict[str, Value]:
        """What the file says of the types of values that are not inputs."""
        out = {}
        for v in (*proto.value_info, *proto.output):
            name = scope.names.get(v.name)
            if name is not None:
                with suppress(ModelError, UnsupportedError):
                    out[name] = Value(name, read_type(v.type, v.name, self._dims))
        return out

    def _enter(self, label: str) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ModelError(f"{label}: subgraphs and functions are nested deeper than {MAX_DEPTH}")

    def _constants(self, proto: onnx.GraphProto, scope: Scope, build: GraphBuilder, is_main: bool) -> None:
        for t in proto.initializer:
            if not t.name:
                raise ModelError(f"{scope.label}: an initializer has no name")
            build.define_constant(
                self._define(t.name, scope, is_main), read_tensor(self._source, t, f"initializer {t.name!r}")
            )
        for s in proto.sparse_initializer:
            name = self._define(s.values.name, scope, False)
            build.define_constant(name, read_sparse(self._source, s, f"initializer {s.values.name!r}"))

    def _is_initializer(self, name: str, scope: Scope, build: GraphBuilder) -> bool:
        """True for an input with a value: it is a constant, as nearly every such model means it."""
        return scope.names.get(name, "") in build.constants

    def _input(self, proto: onnx.ValueInfoProto, scope: Scope, build: GraphBuilder, is_main: bool) -> str:
        if not proto.name:
            raise ModelError(f"{scope.label}: an input has no name")
        name = self._define(proto.name, scope, is_main)
        if not is_main:
            t = self._subgraph_input_type(proto)
        else:
            t = read_type(proto.type, proto.name, self._dims, self._shapes.get(proto.name))
        if t is not None:
            build.define_value(Value(name, t))
        return name

    def _subgraph_input_type(self, proto: onnx.ValueInfoProto) -> Type | None:
        """What a subgraph declares of its input: only the element type counts, the node around it gives the shape."""
        if proto.type.WhichOneof("value") != "tensor_type" or not proto.type.tensor_type.elem_type:
            return None
        t = read_type(proto.type, proto.name, Dims())
        return TensorType(t.dtype, None) if isinstance(t, TensorType) else None

    def _define(self, name: str, scope: Scope, keep: bool) -> str:
        """Make ``name`` known in a scope under a unique name, which is the same if ``keep``."""
        unique = name if keep else self._state.value_name(name)
        scope.define(name, unique)
        return unique

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _nodes(
        self, nodes: Sequence[onnx.NodeProto], scope: Scope, build: GraphBuilder, opsets: Opsets, env: AttrEnv,
        prefix: str = "",
    ) -> None:  # fmt: skip
        is_main = scope.parent is None and not prefix
        for node in in_order(nodes, scope.label):
            hint = prefix + (node.name or node.op_type)
            build.begin(hint)
            who = f"node '{hint}' ({node.op_type})"
            inputs = []
            for i in node.input:
                found = scope.find(i) if i else ""
                if found is None:
                    raise ModelError(f"{who}: expected a definition of input {i!r}, got none")
                inputs.append(found)
            bound = bind_attributes(node, scope, env, who)
            outputs = [self._output(o, scope, is_main, prefix) if o else "" for o in node.output]
            before = len(build.nodes)
            self._node(node, who, hint, tuple(inputs), tuple(outputs), bound, build, opsets)
            if self._keeps:
                self._note(node, {o for o in outputs if o}, build.nodes[before:])

    def _note(self, node: onnx.NodeProto, outputs: Set[str], made: Sequence[Node]) -> None:
        """Keep what the message says beside operator, operands and attributes, with the node that stands for it."""
        stands = next((n for n in made if not outputs.isdisjoint(n.outputs)), None)
        if stands is None:
            return
        note = onnx.NodeProto(doc_string=node.doc_string, overload=node.overload)
        note.metadata_props.extend(node.metadata_props)
        if stands.domain:
            note.attribute.extend(a for a in node.attribute if is_without_form(a))
        if note.ByteSize():
            self.notes[stands.name] = note

    def _output(self, name: str, scope: Scope, is_main: bool, prefix: str) -> str:
        if is_main:
            scope.define(name, name)
            return name
        if scope.names.get(name, "").startswith("\0"):  # a function's output: the caller has named it
            unique = scope.names[name][1:]
            scope.names[name] = unique
            return unique
        unique = self._state.value_name(prefix + name)
        scope.define(name, unique)
        return unique

    def _node(
        self, node: onnx.NodeProto, who: str, hint: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        bound: dict[str, BoundAttr], build: GraphBuilder, opsets: Opsets,
    ) -> None:  # fmt: skip
        domain, op = normal_domain(node.domain), node.op_type
        own = self._operators.get(qualified(domain, op))
        if own is not None:
            build.emit_own(own, Call(own.name, "", 1, hint, inputs, outputs, self._read(bound, who, opsets)))
            return
        key = function_key(domain, op, node.overload)
        if self._keeps and (domain or key in self._functions or self._is_unknown(op, opsets.get(domain, 1))):
            attrs = self._read({k: b for k, b in bound.items() if not is_without_form(b.proto)}, who, opsets)
            build.emit_foreign(Call(op, domain, opsets.get(domain, 1), hint, inputs, outputs, attrs))
            return
        if key in self._functions:
            self._call_function(key, who, hint, inputs, outputs, bound, build)
            return
        version = opsets.get(domain)
        if version is None:
            raise ModelError(f"{who}: expected an opset import for domain {domain or 'ai.onnx'!r}, got none")
        sig = signature(op, domain, version)
        if sig is not None:
            _check_arity(sig, len(inputs), len(outputs), who)
            check_attributes(sig, bound, who)
            require_types(sig, [build.dtype(i) if i else None for i in inputs], who)
        if domain == "" and op == "Constant":
            build.define_constant(outputs[0], self._constant_node(bound, who))
            return
        rule = find_rule(op, domain, version)
        if rule is None and not (domain == "" and self._native(op)):
            if sig is None:
                raise UnsupportedError(f"{who}: no operator {op} in domain {domain or 'ai.onnx'} version {version}")
            if not self._call_standard(sig, version, node, hint, inputs, outputs, bound, build, opsets):
                raise UnsupportedError(f"{who}: {op} {version} is not supported for these types")
            return
        call = Call(op, domain, version, hint, inputs, outputs, self._read(bound, who, opsets))
        if rule is not None:
            rule.convert(call, build)
        else:
            build.emit_to(op, inputs, outputs, call.attrs)

    def _is_unknown(self, op: str, version: int) -> bool:
        """True for an operator of ONNX's that others are made of instead, a form that nothing here reads, and what the
        standard does not have: plugins are often written like that."""
        if find_rule(op, "", version) is None and old_form(op, version):
            return True
        if self._native(op) or op == "Constant":
            return False
        sig = signature(op, "", NEWEST_OPSET)
        if sig is None:
            return signature(op, "", version) is None and find_rule(op, "", version) is None
        return not sig.deprecated

    def _read(self, bound: Mapping[str, BoundAttr], who: str, opsets: Opsets) -> dict[str, Attribute]:
        def subgraph(proto: onnx.GraphProto, b: BoundAttr) -> Graph:
            return self._graph(proto, b.scope, opsets, b.env)

        read = {k: read_attribute(self._source, k, b, who, subgraph) for k, b in bound.items()}
        return {k: v for k, v in read.items() if v is not None}

    def _constant_node(self, bound: Mapping[str, BoundAttr], who: str) -> np.ndarray:
        """The array of a Constant node, in any of its attribute forms."""
        if len(bound) != 1:
            raise ModelError(f"{who}: expected one attribute with the value, got {sorted(bound)}")
        (name,) = bound
        value = self._read(bound, who, {})[name]
        array: np.ndarray
        match name, value:
            case "value" | "sparse_value", Constant(array=array):
                return array
            case "value_int" | "value_ints", _:
                array = np.array(value, np.int64)
            case "value_float" | "value_floats", _:
                array = np.array(value, np.float32)
            case _:
                array = np.array(value, object)
        array.flags.writeable = False
        return array

    # -- functions -----------------------------------------------------------------------------------------------
    def _call_function(
        self, key: FunctionKey, who: str, hint: str, inputs: tuple[str, ...], outputs: tuple[str, ...],
        bound: dict[str, BoundAttr], build: GraphBuilder,
    ) -> None:  # fmt: skip
        """Expand a function of the model where it is called."""
        f = self._functions[key]
        if key in self._active:
            raise ModelError(f"{who}: function {f.name!r} calls itself")
        scope = Scope(None, f"function {f.name!r}")
        env = {a.name: BoundAttr(a, scope, {}) for a in f.attribute_proto}
        unknown = sorted(bound.keys() - env.keys() - set(f.attribute))
        missing = sorted(set(f.attribute) - bound.keys())
        if unknown or missing:
            raise ModelError(f"{who}: function {f.name!r} expected attributes {sorted({*f.attribute, *env})}, "
                             f"got {sorted(bound)}")  # fmt: skip
        self._active.append(key)
        self._body(f, scope, opset_versions(f.opset_import), env | bound, who, hint, inputs, outputs, build)
        self._active.pop()

    def _call_standard(
        self, sig: Signature, version: int, node: onnx.NodeProto, hint: str, inputs: tuple[str, ...],
        outputs: tuple[str, ...], bound: Mapping[str, BoundAttr], build: GraphBuilder, opsets: Opsets,
    ) -> bool:  # fmt: skip
        """Expand an operator that the standard defines as a function; False if it does not (for these types)."""
        if not sig.has_body:
            return False
        resolved = onnx.NodeProto(op_type=node.op_type, domain=node.domain, input=node.input, output=node.output)
        for k, b in bound.items():
            resolved.attribute.add().CopyFrom(b.proto)
            resolved.attribute[-1].name = k
        who = f"node '{hint}' ({sig.op})"
        try:
            body = function_body(sig, version, resolved, [build.type(i) if i else None for i in inputs])
        except (ValueError, RuntimeError) as e:
            raise ModelError(f"{who}: {' '.join(str(e).split())}") from e
        if body is None:
            return False
        scope = Scope(None, f"function {sig.op!r}")
        env = {a.name: BoundAttr(a, scope, {}) for a in body.attribute_proto} | dict(bound)
        versions = {**opsets, sig.domain: version, **opset_versions(body.opset_import)}
        self._body(body, scope, versions, env, who, hint, inputs, outputs, build)
        return True

    def _expand_emitted(self, build: GraphBuilder, call: Call) -> bool:
        """For a node that a converter adds: expand it if it is not native. False to keep it."""
        if self._native(call.op):
            return False
        sig = signature(call.op, "", NEWEST_OPSET)
        if sig is None:
            return False
        node = make_proto(call.op, call.attrs, len(call.inputs), len(call.outputs))
        bound = bind_attributes(node, Scope(None, call.name), {}, call.name)
        opsets = {"": NEWEST_OPSET}
        if not self._call_standard(sig, NEWEST_OPSET, node, call.name, call.inputs, call.outputs, bound, build, opsets):
            raise UnsupportedError(f"node '{call.name}' ({call.op}): {call.op} {sig.since} is not supported")
        return True

    def _body(
        self, f: onnx.FunctionProto, scope: Scope, opsets: Opsets, env: AttrEnv, who: str, hint: str,
        inputs: tuple[str, ...], outputs: tuple[str, ...], build: GraphBuilder,
    ) -> None:  # fmt: skip
        """The nodes of a function body, reading the caller's inputs and defining the caller's outputs."""
        self._enter(who)
        if len(inputs) > len(f.input) or len(outputs) > len(f.output):
            raise ModelError(f"{who}: function {f.name!r} expected at most {len(f.input)} inputs and {len(f.output)} "
                             f"outputs, got {len(inputs)} and {len(outputs)}")  # fmt: skip
        for k, formal in enumerate(f.input):
            scope.define(formal, inputs[k] if k < len(inputs) else "")
        wanted = {formal: outputs[k] for k, formal in enumerate(f.output) if k < len(outputs) and outputs[k]}
        for formal, name in wanted.items():
            if formal not in scope.names:
                scope.names[formal] = "\0" + name
        self._nodes(f.node, scope, build, opsets, env, f"{hint}/")
        build.begin(hint)
        for k, formal in enumerate(f.output[: len(outputs)]):
            inner = scope.names.get(formal, "\0")
            if outputs[k] and inner.startswith("\0"):
                raise ModelError(f"{who}: function {f.name!r} expected a definition of output {formal!r}, got none")
            if outputs[k] and inner != outputs[k]:
                build.emit_to("Identity", (inner,), (outputs[k],), {})
        self._depth -= 1


def _check_arity(sig: Signature, inputs: int, outputs: int, who: str) -> None:
    for what, least, most, got in (
        ("inputs", sig.min_inputs, sig.max_inputs, inputs),
        ("outputs", sig.min_outputs, sig.max_outputs, outputs),
    ):
        if not least <= got <= most:
            wanted = str(least) if least == most else f"at least {least}" if most > 1000 else f"{least} to {most}"
            raise ModelError(f"{who}: expected {wanted} {what}, got {got}")
