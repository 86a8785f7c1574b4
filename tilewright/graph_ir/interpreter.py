"""The graph interpreter: evaluates a graph node by node with the reference semantics. Slow, obvious, the oracle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, MutableMapping, Sequence

import numpy as np

from tilewright import reference
from tilewright.core.errors import InputError, ModelError
from tilewright.core.index_ranges import OutOfRange, checked_operands
from tilewright.graph_ir.ir import Graph, Node, TensorType, node_reads
from tilewright.graph_ir.ops import op_def

_FAILURES = (ValueError, TypeError, LookupError, RuntimeError, AttributeError, ArithmeticError)


def interpret(
    graph: Graph, feed: Mapping[str, np.ndarray], keep: Collection[str] | None = None,
    out_of_range: OutOfRange = "error",
) -> dict[str, object]:  # fmt: skip
    """Values of the graph's outputs, and of the names in ``keep``, for the inputs in ``feed``.

    A value is freed after its last use. Sequences are lists, an empty optional is None. Raises InputError for missing
    or unknown inputs, and for indices outside their range unless ``out_of_range`` clamps them; ModelError, naming the
    node, where an operator refuses its inputs.
    """
    missing = [n for n in graph.inputs if n not in feed]
    unknown = [n for n in feed if n not in graph.inputs]
    if missing or unknown:
        raise InputError(f"graph '{graph.name}': expected inputs {sorted(graph.inputs)}, got {sorted(feed)}")
    wanted = set(graph.outputs) | set(keep or ())
    env = _run(graph, dict(feed), {}, wanted, out_of_range)
    absent = [n for n in wanted if n not in env]
    if absent:
        raise InputError(f"graph '{graph.name}': expected names of values to keep, got {sorted(absent)}")
    return {n: env[n] for n in (*graph.outputs, *sorted(wanted - set(graph.outputs)))}


def _run(
    graph: Graph, local: dict[str, object], outer: Mapping[str, object], wanted: Collection[str], mode: OutOfRange
) -> dict[str, object]:
    """Evaluate one graph; the result holds the values in ``wanted`` (at least)."""
    for name, c in graph.constants.items():
        local[name] = c.array
    scope: MutableMapping[str, object] = _Scope(local, outer)
    last = {name: i for i, node in enumerate(graph.nodes) for name in node_reads(node)}
    for i, node in enumerate(graph.nodes):
        outputs = evaluate_node(node, scope, mode)
        for name, value in zip(node.outputs, outputs, strict=True):
            if name and (name in last or name in wanted):
                local[name] = value
        for name in set(node_reads(node)):
            if last[name] == i and name not in wanted and name in local:
                del local[name]
    for name in wanted:
        if name not in local and name in scope:
            local[name] = scope[name]
    return local


class _Scope(dict[str, object]):
    """Names of this graph first, then of the graphs around it; a view, nothing is copied."""

    def __init__(self, local: dict[str, object], outer: Mapping[str, object]) -> None:
        super().__init__()
        self._local = local
        self._outer = outer

    def __getitem__(self, key: str) -> object:
        return self._local[key] if key in self._local else self._outer[key]

    def __contains__(self, key: object) -> bool:
        return key in self._local or key in self._outer


def evaluate_node(node: Node, scope: Mapping[str, object], mode: OutOfRange = "error") -> list[object]:
    """Outputs of one node whose inputs (and what its subgraphs capture) are in ``scope``."""
    for name in node.inputs:
        if name and name not in scope:
            raise ModelError(f"node '{node.name}' ({node.op}): expected a value of input '{name}', got none")
    inputs = [scope[i] if i else None for i in node.inputs]
    try:
        if node.op in _CONTROL and node.domain == "":
            return _CONTROL[node.op](node, inputs, scope, mode)
        where = f"node {node.name!r} ({node.op})"
        inputs = [*checked_operands(where, mode, node.op, node.domain, dict(node.attrs), inputs)]
        out = reference.evaluate(
            node.op, node.domain, dict(node.attrs), inputs, len(node.outputs), op_def(node).evaluate
        )
    except _FAILURES as e:
        shown = ", ".join(_describe(x) for x in inputs)
        raise ModelError(f"node '{node.name}' ({node.op}): failed on ({shown}): {e}") from e
    if len(out) < len(node.outputs):
        raise ModelError(f"node '{node.name}' ({node.op}): expected {len(node.outputs)} outputs, got {len(out)}")
    return out


def _describe(x: object) -> str:
    return f"{x.dtype}{list(x.shape)}" if isinstance(x, np.ndarray) else type(x).__name__


def _flag(x: object) -> bool:
    return bool(np.asarray(x).reshape(-1)[0])


def _call(graph: Graph, args: Sequence[object], scope: Mapping[str, object], mode: OutOfRange) -> list[object]:
    env = _run(graph, dict(zip(graph.inputs, args, strict=True)), scope, graph.outputs, mode)
    return [env[o] for o in graph.outputs]


def _subgraph(node: Node, key: str) -> Graph:
    g = node.attr(key)
    if not isinstance(g, Graph):
        raise ModelError(f"node '{node.name}' ({node.op}): expected a subgraph as attribute {key}, got {g!r}")
    return g


def _run_if(node: Node, inputs: Sequence[object], scope: Mapping[str, object], mode: OutOfRange) -> list[object]:
    return _call(_subgraph(node, "then_branch" if _flag(inputs[0]) else "else_branch"), (), scope, mode)


def _run_loop(node: Node, inputs: Sequence[object], scope: Mapping[str, object], mode: OutOfRange) -> list[object]:
    body = _subgraph(node, "body")
    trips = None if inputs[0] is None else int(np.asarray(inputs[0]).reshape(-1)[0])
    going = True if inputs[1] is None else _flag(inputs[1])
    carried = list(inputs[2:])
    n = len(carried)
    scans: list[list[object]] = [[] for _ in body.outputs[1 + n :]]
    i = 0
    while going and (trips is None or i < trips):
        out = _call(body, [np.array(i, np.int64), np.array(going), *carried], scope, mode)
        going, carried = _flag(out[0]), out[1 : 1 + n]
        for collected, value in zip(scans, out[1 + n :], strict=True):
            collected.append(value)
        i += 1
    sizes = _sizes(body, [None, None, *inputs[2:]])
    return [*carried, *(_stack(body, 1 + n + k, c, 0, sizes) for k, c in enumerate(scans))]


def _run_scan(node: Node, inputs: Sequence[object], scope: Mapping[str, object], mode: OutOfRange) -> list[object]:
    body = _subgraph(node, "body")
    attrs = {k: v for k, v in node.attrs if isinstance(v, (int, tuple))}
    n_scan = int(attrs["num_scan_inputs"])  # type: ignore[arg-type]
    n_state = len(inputs) - n_scan
    state, xs = list(inputs[:n_state]), [np.asarray(x) for x in inputs[n_state:]]
    n_out = len(body.outputs) - n_state

    def listed(key: str, n: int) -> tuple[int, ...]:
        v = attrs.get(key)
        return tuple(int(x) for x in v) if isinstance(v, tuple) and v else (0,) * n

    in_axes, in_back = listed("scan_input_axes", n_scan), listed("scan_input_directions", n_scan)
    out_axes, out_back = listed("scan_output_axes", n_out), listed("scan_output_directions", n_out)
    length = xs[0].shape[in_axes[0]]
    scans: list[list[object]] = [[] for _ in range(n_out)]
    for t in range(length):
        slices = [np.take(x, length - 1 - t if d else t, a) for x, a, d in zip(xs, in_axes, in_back, strict=True)]
        out = _call(body, [*state, *slices], scope, mode)
        state = out[:n_state]
        for collected, value in zip(scans, out[n_state:], strict=True):
            collected.append(value)
    ordered = [c[::-1] if d else c for c, d in zip(scans, out_back, strict=True)]
    sizes = _sizes(body, inputs[:n_state])
    return [*state, *(_stack(body, n_state + k, c, out_axes[k], sizes) for k, c in enumerate(ordered))]


def _sizes(body: Graph, args: Sequence[object]) -> dict[str, int]:
    """The symbols that are dims of the body's inputs, for the first ``args`` of it."""
    sizes: dict[str, int] = {}
    for name, x in zip(body.inputs, args, strict=False):
        t = body.values[name].type
        if isinstance(x, np.ndarray) and isinstance(t, TensorType) and t.shape is not None:
            sizes.update((str(d), n) for d, n in zip(t.shape, x.shape, strict=False) if d.free_vars() == {str(d)})
    return sizes


def _stack(body: Graph, k: int, values: Sequence[object], axis: int, sizes: Mapping[str, int]) -> np.ndarray:
    """A scan output from its slices; without any, an empty one of the inferred type (unknown sizes are 0)."""
    if values:
        return np.stack([np.asarray(v) for v in values], axis=axis)
    value = body.values.get(body.outputs[k])
    if value is None or not isinstance(value.type, TensorType):
        return np.zeros((0,), np.float32)
    dims = [d.evaluate(sizes) if d.free_vars() <= sizes.keys() else 0 for d in value.type.shape or ()]
    dims.insert(axis if axis >= 0 else axis + len(dims) + 1, 0)
    return np.zeros(dims, value.type.dtype.numpy)


_CONTROL = {"If": _run_if, "Loop": _run_loop, "Scan": _run_scan}
