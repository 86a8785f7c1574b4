"""One node alone: what the reference says, what onnxruntime says, and who is right where they differ."""

from __future__ import annotations

import multiprocessing
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.printer
from onnx import helper

from tilewright.core import dtypes
from tilewright.core.errors import InputError, ModelError, TilewrightError, UnsupportedError
from tilewright.frontend import from_onnx
from tilewright.inspect.ort import OnnxRuntimeError, is_installed, translated_errors
from tilewright.tests.fuzz_graphs.differences import explain_difference
from tilewright.tests.fuzz_graphs.protos import DOMAINS, IR_VERSION, model_of, operators_within, reads, value_info
from tilewright.tests.fuzz_graphs.tolerance import allowed, interpret_perturbed, mismatch


class Stage:
    """Who is running now, in memory that the parent process sees, for those who find this one dead."""

    def __init__(self) -> None:
        self.shared = multiprocessing.RawArray("c", 32)

    def set(self, name: bytes) -> None:
        self.shared.value = name


STAGE = Stage()


@dataclass(frozen=True, slots=True)
class NodeRun:
    """The outputs by the reference. ``rejected``: why the node is not valid. ``finding``: the two sides disagree."""

    op: str
    outputs: tuple[object, ...] = ()
    rejected: str = ""
    finding: str = ""
    rule: str = ""
    """The name of the rule that says who is right, where the two differ."""


def run_node(
    node: onnx.NodeProto, arrays: Mapping[str, object], opset: int, alone: bool = False,
    explained: Collection[str] = (),
) -> NodeRun:  # fmt: skip
    """Evaluate ``node`` on these values by name; without onnxruntime if ``alone``.

    ``explained``: operators of this graph for which a rule said who is right; in a body of ``node`` they explain it.
    """
    try:
        onnx.checker.check_node(node, _checker_context(opset))
    except onnx.checker.ValidationError as e:
        return NodeRun(node.op_type, rejected=f"checker: {' '.join(str(e).split())[:120]}")
    model = single_node_model(node, arrays, opset)
    feed = {i.name: arrays[i.name] for i in model.graph.input}
    theirs = None if alone else run_onnxruntime(model, feed)
    try:
        graph = from_onnx(model)
        samples = interpret_perturbed(graph, feed, 3 if isinstance(theirs, dict) else 0)
    except (InputError, ModelError, UnsupportedError) as e:
        if not isinstance(theirs, dict):
            return NodeRun(node.op_type, rejected=f"both refuse: {e}")
        if rule := explain_difference(node, arrays, str(e), {}, theirs):
            return NodeRun(node.op_type, rejected=f"refused by rule {rule}", rule=rule)
        return NodeRun(node.op_type, rejected=str(e), finding=f"reference refuses what onnxruntime runs: {e}")
    ours = samples[0]
    outputs = tuple(ours[o] for o in node.output if o)
    if isinstance(theirs, TilewrightError):
        return NodeRun(node.op_type, outputs, rejected=f"onnxruntime: {theirs}" if _is_invalid(str(theirs)) else "")
    if theirs is not None:
        for name in (o for o in node.output if o):
            got = theirs[name]
            wrong = mismatch(got, ours[name], allowed(samples, name))
            if wrong:
                rule = explain_difference(node, arrays, wrong, ours, theirs)
                rule = rule or next((f"{op} in its body" for op in explained if op in operators_within(node)), "")
                finding = "" if rule else f"onnxruntime differs from the reference, output {name!r}: {wrong}"
                told = f"{finding}; {described(node, arrays, opset)}" if finding else ""
                return NodeRun(node.op_type, outputs, finding=told, rule=rule)
    return NodeRun(node.op_type, outputs)


def described(node: onnx.NodeProto, arrays: Mapping[str, object], opset: int) -> str:
    """A node on one line with the types of what it reads."""
    text = " ".join(onnx.printer.to_text(node).split())
    kinds = [f"{n}: {x.dtype}{list(x.shape)}" for n, x in arrays.items() if isinstance(x, np.ndarray)]
    return f"{text} at opset {opset} with {', '.join(kinds)}"


def _is_invalid(message: str) -> bool:
    """Whether onnxruntime's refusal is of an invalid node, and not of one that it lacks a kernel for."""
    return not any(sign in message.lower() for sign in _LACKS)


_LACKS = ("not_implemented", "notimplemented", "could not find an implementation", "not supported", "not implemented",
          "unsupported", "type error", "is invalid", "no op registered", "not a registered function/op")  # fmt: skip


def single_node_model(node: onnx.NodeProto, arrays: Mapping[str, object], opset: int) -> onnx.ModelProto:
    """A model of one node with everything it reads as an input."""
    inputs = [n for n in reads(node) if n in arrays]
    graph = helper.make_graph(
        [node], "one", [value_info(n, arrays[n]) for n in inputs],
        [helper.make_empty_tensor_value_info(o) for o in node.output if o],
    )  # fmt: skip
    return model_of(graph, opset)


def run_onnxruntime(model: onnx.ModelProto, feed: Mapping[str, object]) -> dict[str, object] | OnnxRuntimeError | None:
    """Outputs by name; the error it raises; or None where it is not installed or its Python side lacks a type."""
    if not is_installed():
        return None
    if not all(_is_plain(x) for v in feed.values() for x in (v if isinstance(v, list) else [v])):
        return None
    import onnxruntime

    STAGE.set(b"onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        with translated_errors():
            data = model.SerializeToString()
            session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            names = [o.name for o in session.get_outputs()]
            if any(t in o.type for o in session.get_outputs() for t in ("bfloat16", "float8", "int4")):
                return None
            return dict(zip(names, session.run(names, dict(feed)), strict=True))
    except OnnxRuntimeError as e:
        return e
    finally:
        STAGE.set(b"")


def _is_plain(x: object) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind in "fiubO" and dtypes.from_numpy(x.dtype).bits != 4 and (
        x.dtype.name in _PLAIN)  # fmt: skip


_PLAIN = frozenset(("float16", "float32", "float64", "bool", "object",
                    *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64))))  # fmt: skip


def _checker_context(opset: int) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = IR_VERSION
    context.opset_imports = {d: 1 if d else opset for d in DOMAINS}
    return context
