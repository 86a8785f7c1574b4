"""Functions of a model: those of its file that are still called, and operators or groups that are kept as functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field

import onnx

from tilewright.core.errors import UnsupportedError
from tilewright.frontend.schemas import FunctionKey, function_key, normal_domain, signature
from tilewright.graph_ir.ir import Graph, Node, node_reads

DOMAIN = "tilewright"
"""Of functions that stand for operators of our own and for groups."""


def called(model: onnx.ModelProto) -> list[onnx.FunctionProto]:
    """The functions that the graph calls, and those that they call."""
    functions = {function_key(f.domain, f.name, f.overload): f for f in model.functions}
    found: set[FunctionKey] = set()
    waiting = [*_calls(model.graph.node, functions.keys())]
    while waiting:
        key = waiting.pop()
        if key not in found:
            found.add(key)
            waiting.extend(_calls(functions[key].node, functions.keys()))
    return [f for key, f in functions.items() if key in found]


def _calls(nodes: Iterable[onnx.NodeProto], keys: Set[FunctionKey]) -> Iterator[FunctionKey]:
    for n in nodes:
        key = function_key(n.domain, n.op_type, n.overload)
        if key in keys:
            yield key
        for a in n.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                yield from _calls(a.g.node, keys)


def require_opset_of(functions: Iterable[onnx.FunctionProto], opset: int) -> None:
    """Raises UnsupportedError where an operator in a function of the file is another one in ``opset``."""
    for f in functions:
        theirs = next((o.version for o in f.opset_import if not normal_domain(o.domain)), opset)
        for n in f.node:
            if theirs == opset or normal_domain(n.domain):
                continue
            a, b = signature(n.op_type, "", theirs), signature(n.op_type, "", opset)
            if a is not None and (b is None or a.since != b.since):
                raise UnsupportedError(
                    f"function '{f.name}': opset {opset} cannot say its {n.op_type}, which is that of opset {theirs}"
                )


@dataclass(slots=True)
class Kept:
    """Functions that were made, each once for nodes that say the same."""

    opset: int
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    _known: dict[bytes, str] = field(default_factory=dict)

    def call(
        self, hint: str, name: str, nodes: Sequence[onnx.NodeProto], constants: Sequence[onnx.TensorProto],
        outputs: Sequence[str],
    ) -> onnx.NodeProto:  # fmt: skip
        """A node ``name`` that calls the function whose body is ``nodes`` and ``constants``, for ``outputs``.

        What the nodes read and do not define are its inputs. Values of the body get names of its own.
        """
        names: dict[str, str] = {}
        body = onnx.FunctionProto(domain=DOMAIN)
        body.opset_import.add(domain="", version=self.opset)
        for t in constants:
            names[t.name] = f"c{len(names)}"
            constant = body.node.add(op_type="Constant", output=[names[t.name]])
            constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(t)
            constant.attribute[0].t.name = names[t.name]
        made = {o for n in nodes for o in n.output}
        inputs = [*dict.fromkeys(i for n in nodes for i in n.input if i and i not in made and i not in names)]
        names |= {i: f"x{k}" for k, i in enumerate(inputs)} | {o: f"y{k}" for k, o in enumerate(outputs)}
        for n in nodes:
            for o in n.output:
                if o:
                    names.setdefault(o, f"t{len(names)}")
            new = body.node.add()
            new.CopyFrom(n)
            new.name = ""
            new.input[:] = [names.get(i, i) for i in n.input]
            new.output[:] = [names.get(o, o) for o in n.output]
        body.input.extend(names[i] for i in inputs)
        body.output.extend(names[o] for o in outputs)
        op = self._named(hint, body)
        return onnx.NodeProto(op_type=op, domain=DOMAIN, name=name, input=inputs, output=outputs)

    def _named(self, hint: str, body: onnx.FunctionProto) -> str:
        content = hint.encode() + body.SerializeToString(deterministic=True)
        if content not in self._known:
            taken = {f.name for f in self.functions}
            name, k = hint, 0
            while name in taken:
                k += 1
                name = f"{hint}_{k}"
            self._known[content] = body.name = name
            self.functions.append(body)
        return self._known[content]


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that are written as one: a group of a fused graph, or a single node."""

    nodes: tuple[Node, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        made = {o for n in self.nodes for o in n.outputs}
        return tuple(dict.fromkeys(i for n in self.nodes for i in node_reads(n) if i not in made))


def units_of(graph: Graph) -> list[Unit]:
    """The nodes, those of a group together, each behind what makes its operands.

    A group that could not stand so, as a node between its own makes a shape that only it needs, is taken apart.
    """
    group_of = {n.name: g.name for g in graph.groups or () if len(g.nodes) > 1 for n in g.nodes if not n.subgraphs()}
    while True:
        units, stuck = _in_order(graph, group_of)
        if not stuck:
            return units
        group_of = {n: g for n, g in group_of.items() if g not in stuck}


def _in_order(graph: Graph, group_of: Mapping[str, str]) -> tuple[list[Unit], set[str]]:
    """Units in an order that runs, and the groups that have no place in one."""
    members: dict[str, list[Node]] = {}
    for n in graph.nodes:
        members.setdefault(group_of.get(n.name, f"\0{n.name}"), []).append(n)
    maker = {o: key for key, nodes in members.items() for n in nodes for o in n.outputs if o}
    units = {key: Unit(tuple(nodes)) for key, nodes in members.items()}
    needs = {key: {maker[i] for i in u.reads if i in maker} for key, u in units.items()}
    done: dict[str, Unit] = {}
    while len(done) < len(units):
        ready = [key for key in units if key not in done and needs[key] <= done.keys()]
        if not ready:
            return [], {key for key in units if key not in done} & set(group_of.values())
        done.update((key, units[key]) for key in ready)
    return [*done.values()], set()
