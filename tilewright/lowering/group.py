"""One fused group to one function: lower each node by its implementation, then give everything its canonical name.

Identical groups give identical text, whatever their values are called in the graph: parameters are ``p0, p1, ...`` then
constants ``c0, ...``, results ``o0, ...``, stages and loops are named after operators. Parameters and stages that the
results do not need are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilewright.core import dtypes
from tilewright.core.arith.expr import var
from tilewright.core.errors import InputError, InternalError, UnsupportedError
from tilewright.graph_ir.ir import Constant, Graph, Group, Node, TensorType, Value
from tilewright.lowering.context import (
    FunctionParts,
    KnownTensor,
    LowerContext,
    Names,
    PackedConstant,
    ScalarTensor,
    identifier,
)
from tilewright.lowering.formulas.elementwise import axis_names
from tilewright.lowering.implementations.base import Table, chosen
from tilewright.lowering.table import TABLE
from tilewright.machine.target import Target
from tilewright.tensor_ir.compute import Recurrence, Reduction, Tensor, Update, Val, build_func, compute, placeholder
from tilewright.tensor_ir.ir import Axis, Expr, Func, Load, loads, substitute_expr, walk_index
from tilewright.tensor_ir.loads import rename_in_expr, rename_in_index


@dataclass(frozen=True, slots=True, eq=False)
class LoweredGroup:
    """A function with what its parameters stand for.

    ``func.params`` are: ``inputs``, then ``constants``, then ``outputs``; inputs and outputs are names of graph values.
    ``func.dims`` are dimension symbols of the graph.
    """

    func: Func
    inputs: tuple[str, ...]
    constants: tuple[PackedConstant, ...]
    outputs: tuple[str, ...]


def can_lower(node: Node, table: Table = TABLE) -> bool:
    """True if there is an implementation of the operator (its attributes or types may still be refused)."""
    return node.domain in ("", "ai.onnx") and node.op in table


def lower_group(graph: Graph, group: Group, target: Target, clamps: bool = False, table: Table = TABLE) -> LoweredGroup:
    """The function of ``group``. Raises UnsupportedError naming the node and what is missing.

    ``clamps``: nothing else makes sure that indices are in range. ``table``: what can compute nodes, by operator.
    """
    parts, env, known, params = _operands(graph, group.nodes, group.inputs)
    for node in group.nodes:
        _lower_node(graph, node, target, parts, env, known, table, clamps)
    outputs = _separate_outputs(parts, env, group.outputs)
    return _finish(group.outputs, parts, params, outputs, _function_name(group.nodes))


def native_refusal(graph: Graph, node: Node, target: Target, table: Table = TABLE) -> str | None:
    """Why ``node`` cannot be native code in this graph; None if it can. Packs nothing and builds no function."""
    try:
        parts, env, known, _ = _operands(graph, (node,), tuple(i for i in node.inputs if i))
        _lower_node(graph, node, target, parts, env, known, table)
    except UnsupportedError as e:
        return str(e)
    return None


def _operands(
    graph: Graph, nodes: Sequence[Node], inputs: Sequence[str]
) -> tuple[FunctionParts, dict[str, Tensor], dict[str, Constant], dict[str, tuple[str, Tensor]]]:
    """A fresh function, its operands as tensors, the constant ones, and the parameters by name."""
    reserved: set[str] = set()
    for v in (graph.values[x] for n in nodes for x in (*n.inputs, *n.outputs) if x):
        if isinstance(v.type, TensorType) and v.type.shape is not None:
            reserved |= frozenset().union(*(d.free_vars() for d in v.type.shape))
        reserved |= frozenset().union(*(d.free_vars() for d in v.data or ()))
    parts = FunctionParts(Names(sorted(reserved)))
    env: dict[str, Tensor] = {}
    known: dict[str, Constant] = {}
    params: dict[str, tuple[str, Tensor]] = {}
    for name in dict.fromkeys((*inputs, *(i for n in nodes for i in n.inputs if i in graph.constants))):
        value = _require_tensor(graph, name, nodes[0])
        if name in graph.constants:
            known[name] = graph.constants[name]
            env[name] = _constant_tensor(parts, value, known[name])
        else:
            env[name] = placeholder(parts.names.unique(f"p{len(params)}"), value.shape, value.dtype)
            params[env[name].name] = name, env[name]
    return parts, env, known, params


def _function_name(nodes: Sequence[Node]) -> str:
    names = [n.op.lower() for n in nodes]
    return identifier("_".join(names if len(names) <= 4 else [*names[:2], f"{len(names) - 3}_more", names[-1]]))


def _require_tensor(graph: Graph, name: str, node: Node) -> Value:
    value = graph.values[name]
    where = f"node {node.name or node.outputs[0]!r} ({node.op})"
    if not isinstance(value.type, TensorType):
        raise UnsupportedError(f"{where}: value {name!r} has type {value.type}, native code needs a tensor")
    if value.type.shape is None:
        raise UnsupportedError(f"{where}: value {name!r} has unknown rank, native code needs a known one")
    if value.dtype.kind in "sc":
        raise UnsupportedError(f"{where}: value {name!r} has element type {value.dtype}, native code has none")
    return value


def _constant_tensor(parts: FunctionParts, value: Value, constant: Constant) -> Tensor:
    """A constant operand: a literal if it has one element, else a parameter."""
    if constant.size == 1 and value.dtype != dtypes.float8e8m0:
        item = constant.array.reshape(-1)[0]
        literal = {"f": float, "b": bool}.get(value.dtype.kind, int)(item)
        return ScalarTensor(f"literal_{value.name}", value.shape, value.dtype, literal)
    return parts.constant(value.name, f"{value.dtype}", value.shape, value.dtype, None, None)


def _lower_node(
    graph: Graph, node: Node, target: Target, parts: FunctionParts, env: dict[str, Tensor],
    known: Mapping[str, Constant], table: Table, clamps: bool = False,
) -> None:  # fmt: skip
    if not can_lower(node, table):
        raise UnsupportedError(f"node {node.name or node.outputs[0]!r} ({node.op}): no native implementation")
    for name in (*node.inputs, *node.outputs):
        if name:
            _require_tensor(graph, name, node)
    for name in node.inputs:
        if name and name not in env:
            value = graph.values[name]
            if value.data is None:
                raise InternalError(f"node {node.name!r} ({node.op}): group has no operand {name!r}")
            env[name] = KnownTensor(f"known_{name}", value.shape, value.dtype, value.data)
    context = LowerContext(
        node,
        target,
        tuple(graph.values[i] if i else None for i in node.inputs),
        tuple(known.get(i) for i in node.inputs),
        tuple(graph.values[o] if o else None for o in node.outputs),
        tuple(env[i] if i else None for i in node.inputs),
        parts,
        clamps,
    )
    results = chosen(table[node.op], context).lower(context)
    for name, tensor in zip(node.outputs, results, strict=False):
        if name:
            _require_as_inferred(context, graph.values[name], tensor)
            env[name] = context.stage(tensor)
    for name in node.outputs[len(results) :]:
        if name:
            raise context.unsupported(f"output {name!r} is not computed by native code")


def _require_as_inferred(c: LowerContext, value: Value, tensor: Tensor) -> None:
    """A kernel that writes more than inference thinks would write to foreign memory."""
    same = len(value.shape) == tensor.ndim and all(
        a == b or not (a.is_const and b.is_const) for a, b in zip(value.shape, tensor.shape, strict=True)
    )
    if not same or tensor.dtype != value.dtype:
        got = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
        error = InternalError if c.node.definition is None else InputError
        raise error(f"{c.where}: lowering: expected output {value.name!r} of type {value.type}, got {got}")


def _separate_outputs(parts: FunctionParts, env: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
    """A stage of its own for each result (a copy where two results, or a result and an operand, are one tensor), or a
    tensor that updates alone write."""
    seen: set[str] = set()
    updated = {t.target.name for t in _flat(parts.stages) if isinstance(t, Update)}
    out: list[Tensor] = []
    for name in names:
        t = env[name]
        if (t.body is None and t.name not in updated) or t.name in seen:
            source = t
            t = compute(parts.names.unique("copy"), t.shape, lambda *i, s=source: s[i], axis_names=axis_names(t.ndim))
            parts.stages.append(t)
        seen.add(t.name)
        out.append(t)
    return out


def _finish(
    output_names: Sequence[str], parts: FunctionParts, params: Mapping[str, tuple[str, Tensor]],
    outputs: Sequence[Tensor], func_name: str,
) -> LoweredGroup:  # fmt: skip
    needed = _needed(parts.stages, [t.name for t in outputs])
    renames = {t.name: parts.names.unique(f"o{k}") for k, t in enumerate(outputs)}
    stages = [kept for s in parts.stages if (kept := _keep(s, needed, renames)) is not None]
    results = {renames[t.name]: placeholder(renames[t.name], t.shape, t.dtype) for t in outputs if t.body is None}
    results |= {t.name: t for t in _flat(stages) if isinstance(t, Tensor)}
    inputs = [(value, t) for n, (value, t) in params.items() if n in needed]
    constants = [(p, t) for t, p in parts.constants.values() if t.name in needed]
    func = build_func(
        func_name,
        [t for _, t in inputs] + [t for _, t in constants],
        [results[renames[t.name]] for t in outputs],
        stages,
    )
    return LoweredGroup(func, tuple(v for v, _ in inputs), tuple(p for p, _ in constants), tuple(output_names))


def _flat(stages: Sequence[Tensor | Update | Recurrence]) -> list[Tensor | Update]:
    return [t for s in stages for t in (s.stages if isinstance(s, Recurrence) else (s,))]


def _keep(
    stage: Tensor | Update | Recurrence, needed: set[str], renames: Mapping[str, str]
) -> Tensor | Update | Recurrence | None:
    """The part of a stage that the results depend on, under its final names."""
    if isinstance(stage, Recurrence):
        kept = tuple(_renamed(t, renames) for t in stage.stages if t.name in needed)
        return Recurrence(stage.loops, kept) if kept else None
    return _renamed(stage, renames) if stage.name in needed else None


def _needed(stages: Sequence[Tensor | Update | Recurrence], roots: Sequence[str]) -> set[str]:
    """Names of the buffers and updates that ``roots`` depend on."""
    reads: dict[str, list[str]] = {}
    for t in _flat(stages):
        found = [x.buffer for x in loads(_body_expr(t))]
        if isinstance(t, Update):
            found += [x.buffer for i in t.indices for x in walk_index(i) if isinstance(x, Load)]
            reads.setdefault(t.target.name, []).append(t.name)
        reads[t.name] = found
    needed: set[str] = set()
    todo = list(roots)
    while todo:
        n = todo.pop()
        if n not in needed:
            needed.add(n)
            todo.extend(reads.get(n, ()))
    return needed


def _body_expr(t: Tensor | Update) -> Expr:
    if isinstance(t, Update):
        return t.value.expr
    body = t.body
    if body is None:
        raise UnsupportedError(f"{t.name}: a placeholder has no formula")
    return body.value.expr if isinstance(body, Reduction) else body.expr


def _renamed(t: Tensor | Update, renames: Mapping[str, str]) -> Tensor | Update:
    """``t`` under its final name, reading its operands under theirs."""
    if isinstance(t, Update):
        target = Tensor(renames.get(t.target.name, t.target.name), t.target.shape, t.target.dtype, (), None)
        place = tuple(rename_in_index(i, renames) for i in t.indices)
        return Update(t.name, target, t.axes, place, Val(rename_in_expr(t.value.expr, renames)))
    name = renames.get(t.name, t.name)
    e = rename_in_expr(_body_expr(t), renames)
    axes = t.axes
    if name != t.name:
        axes = tuple(Axis(f"{name}_{a.name.removeprefix(t.name + '_')}", a.extent, a.kind) for a in t.axes)
        e = substitute_expr(e, {a.name: var(b.name) for a, b in zip(t.axes, axes, strict=True)})
    body: Val | Reduction = Val(e)
    if isinstance(t.body, Reduction):
        body = Reduction(t.body.combiner, Val(e), t.body.axes, t.body.init)
    return Tensor(name, t.shape, t.dtype, axes, body)
