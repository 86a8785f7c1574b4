"""Changes to an ONNX model in place: who makes a value, who reads it, constants, new nodes beside others.

Nodes are known by their first result, which is unique. An editor is for one stage: :meth:`OnnxEditor.save` writes its
nodes and constants into the model, and its own facts are those from before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tilewright.core.errors import ModelError


def key_of(node: onnx.NodeProto) -> str:
    """The name of a node's first result."""
    return next((str(o) for o in node.output if o), "")


def attribute(node: onnx.NodeProto, name: str, default: float) -> float:
    """A number among a node's attributes."""
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else float(helper.get_attribute_value(found))


def inner_reads(node: onnx.NodeProto) -> Iterator[str]:
    """Names that the bodies of a node read, those of their own values among them."""
    for a in node.attribute:
        for graph in (*([a.g] if a.type == onnx.AttributeProto.GRAPH else []), *a.graphs):
            for inner in graph.node:
                yield from inner.input
                yield from inner_reads(inner)
            yield from (o.name for o in graph.output)


class OnnxEditor:
    """``constants``: initializers and results of Constant nodes, by name. ``readers``: nodes by what they read, each
    once. ``kept``: names that are results of the model or read by bodies of nodes, which read no other in their place.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes: list[onnx.NodeProto] = list(model.graph.node)
        self.inputs = {i.name for i in model.graph.input}
        self.constants: dict[str, onnx.TensorProto] = {
            i.name: i for i in model.graph.initializer if i.name not in self.inputs
        }
        self.producers: dict[str, onnx.NodeProto] = {}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        self.kept = {o.name for o in model.graph.output}
        for node in self.nodes:
            self.producers.update((o, node) for o in node.output if o)
            for name in dict.fromkeys(node.input):
                self.readers.setdefault(name, []).append(node)
            self.kept.update(inner_reads(node))
            if node.op_type == "Constant" and not node.domain and node.attribute[0].name == "value":
                self.constants[node.output[0]] = node.attribute[0].t
        self._names = self.inputs | set(self.producers) | {i.name for i in model.graph.initializer} | self.kept
        self._node_names = {n.name for n in self.nodes}
        self._before: dict[str, list[onnx.NodeProto]] = {}
        self._after: dict[str, list[onnx.NodeProto]] = {}
        self._start: list[onnx.NodeProto] = []

    # -- facts -----------------------------------------------------------------------------------------------------
    def array(self, name: str) -> np.ndarray:
        """A constant. Raises ModelError for one that is NaN or infinite somewhere."""
        found = np.asarray(numpy_helper.to_array(self.constants[name]))
        if found.dtype.kind == "f" and not np.isfinite(found).all():
            raise ModelError(f"constant {name!r}: expected finite numbers, got NaN or infinity")
        return found

    def is_weight(self, name: str) -> bool:
        """True for a constant of float32."""
        return name in self.constants and self.constants[name].data_type == onnx.TensorProto.FLOAT

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The node that alone reads a value; None if there are several, or something outside of the nodes."""
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.kept else None

    # -- changes ---------------------------------------------------------------------------------------------------
    def fresh(self, name: str) -> str:
        """A name of a value that is not taken."""
        wanted, n = name, 2
        while name in self._names:
            name, n = f"{wanted}_{n}", n + 1
        self._names.add(name)
        return name

    def add_constant(self, name: str, array: np.ndarray) -> str:
        """A new initializer; its name."""
        return self.add_tensor(name, numpy_helper.from_array(np.asarray(array, order="C")))

    def add_tensor(self, name: str, tensor: onnx.TensorProto) -> str:
        """A new initializer; its name."""
        tensor.name = self.fresh(name)
        self.constants[tensor.name] = tensor
        self.model.graph.initializer.append(tensor)
        return str(tensor.name)

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: int) -> onnx.NodeProto:
        """A node that stands nowhere yet, called after its result."""
        name, n = output, 2
        while name in self._node_names:
            name, n = f"{output}_{n}", n + 1
        self._node_names.add(name)
        node = helper.make_node(op, list(inputs), [output], name=name)
        node.attribute.extend(helper.make_attribute(k, v) for k, v in attributes.items())
        return node

    def insert_before(self, node: onnx.NodeProto, *new: onnx.NodeProto) -> None:
        """New nodes in front of one."""
        self._before.setdefault(key_of(node), []).extend(new)

    def insert_after(self, value: str, *new: onnx.NodeProto) -> None:
        """New nodes behind what makes a value; at the start for an input."""
        maker = self.producers.get(value)
        (self._start if maker is None else self._after.setdefault(key_of(maker), [])).extend(new)

    def remove(self, node: onnx.NodeProto) -> None:
        """One node less."""
        self.nodes = [n for n in self.nodes if n is not node]

    def save(self) -> None:
        """Write the nodes into the model, and drop the constants that nothing reads any more."""
        nodes = [*self._start]
        for node in self.nodes:
            key = key_of(node)
            nodes += [*self._before.get(key, ()), node, *self._after.get(key, ())]
        graph = self.model.graph
        read = {i for n in nodes for i in (*n.input, *inner_reads(n))} | {o.name for o in graph.output} | self.inputs
        idle = {n.output[0] for n in nodes if n.op_type == "Constant" and n.output[0] not in read}
        nodes = [n for n in nodes if n.output[0] not in idle]
        copies = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
        del graph.node[:]
        graph.node.extend(copies)
        for k in reversed(range(len(graph.initializer))):
            if graph.initializer[k].name not in read:
                del graph.initializer[k]
