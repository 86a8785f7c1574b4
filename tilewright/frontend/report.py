"""Everything that a model needs and this build lacks, found before anything is converted, in one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx

from tilewright.core import dtypes
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, UnsupportedError, one_line
from tilewright.frontend.schemas import (
    NEWEST_OPSET,
    FunctionKey,
    function_key,
    normal_domain,
    output_dtypes,
    plain_body,
    signature,
)
from tilewright.frontend.table import find_rule
from tilewright.graph_ir.user_operators import NO_OPERATORS, Operators, qualified

_SHOWN = 5
_FIRST_OPSET = 7  # older models work where the form of their operators is the same or has a converter
_MAX_DEPTH = 64
_NOT_IMPORTED = -1


@dataclass(frozen=True, slots=True)
class Missing:
    """One operator (in one version, for one set of element types) that is not supported, and where it is used."""

    op: str
    domain: str
    version: int
    dtypes: tuple[str, ...]
    nodes: tuple[str, ...]
    count: int
    reason: str

    def __str__(self) -> str:
        name = f"{self.domain}.{self.op}" if self.domain else self.op
        more = ", ..." if self.count > len(self.nodes) else ""
        types = f" on {', '.join(self.dtypes)}" if self.dtypes else ""
        nodes = f"{self.count} node{'s' if self.count > 1 else ''}"
        return f"{name} (version {self.version}){types}: {self.reason}; {nodes}: {', '.join(self.nodes)}{more}"


@dataclass(slots=True)
class _Search:
    native: Callable[[str], bool]
    functions: dict[FunctionKey, onnx.FunctionProto]
    operators: Operators = field(default_factory=dict)
    found: dict[tuple[str, str, int, tuple[str, ...], str], list[str]] = field(default_factory=dict)
    seen: set[FunctionKey] = field(default_factory=set)
    bodies: dict[tuple[str, int], bool] = field(default_factory=dict)


def require_supported(
    model: onnx.ModelProto, native: Callable[[str], bool], operators: Operators = NO_OPERATORS
) -> None:
    """Raises UnsupportedError with the whole list if the model needs anything that is not there."""
    missing = find_unsupported(model, native, operators)
    notes = list(_unsupported_types(model.graph))
    if missing or notes:
        total = len(missing) + len(notes)
        lines = "\n".join(f"  {one_line(str(m))}" for m in (*missing, *notes))
        raise UnsupportedError(f"not supported ({total} finding{'s' if total > 1 else ''}):\n{lines}")


def require_known_opsets(model: onnx.ModelProto) -> None:
    """Raises for a version of the standard that the installed onnx package does not know."""
    if model.ir_version < 1 or model.ir_version > onnx.IR_VERSION:
        raise ModelError(f"model: expected ir_version 1 to {onnx.IR_VERSION}, got {model.ir_version}")
    if not model.HasField("graph"):
        raise ModelError("model: expected a graph, got none")
    imports = [(o.domain, o.version) for o in model.opset_import]
    for f in model.functions:
        imports.extend((o.domain, o.version) for o in f.opset_import)
    if not imports:
        raise ModelError("model: expected an opset import, got none")
    for domain, version in imports:
        if normal_domain(domain):
            continue
        if version > NEWEST_OPSET or version < 1:
            raise ModelError(f"model: expected an ONNX opset of 7 to {NEWEST_OPSET}, got {version}")


def find_unsupported(
    model: onnx.ModelProto, native: Callable[[str], bool], operators: Operators = NO_OPERATORS
) -> tuple[Missing, ...]:
    """What the model's graph, its subgraphs and the functions that they call need and lack."""
    functions = {function_key(f.domain, f.name, f.overload): f for f in model.functions}
    search = _Search(native, functions, operators)
    opsets = {normal_domain(o.domain): o.version for o in model.opset_import}
    _graph(model.graph, opsets, {}, search, 0)
    return tuple(
        Missing(op, domain, version, types, tuple(names[:_SHOWN]), len(names), reason)
        for (domain, op, version, types, reason), names in sorted(search.found.items())
    )


def refusal(op: str, domain: str, version: int, native: Callable[[str], bool]) -> str:
    """Why an operator cannot be imported at an opset version, "" if it can; ``native``: what a plan can hold."""
    return _reason(op, domain, version, _Search(native, {}))


def _unsupported_types(graph: onnx.GraphProto) -> Iterator[str]:
    for i in (*graph.input, *graph.output):
        kind = i.type.WhichOneof("value")
        if kind not in (None, "tensor_type", "sequence_type", "optional_type"):
            yield f"value {i.name!r}: type {kind.removesuffix('_type')} is not supported"


def _graph(
    graph: onnx.GraphProto, opsets: Mapping[str, int], outer: Mapping[str, DType], search: _Search, depth: int
) -> None:
    known = dict(outer)
    for v in (*graph.value_info, *graph.input):
        _note(known, v.name, v.type.tensor_type.elem_type)
    for t in graph.initializer:
        _note(known, t.name, t.data_type)
    _nodes(graph.node, opsets, known, search, depth, "")


def _note(known: dict[str, DType], name: str, code: int) -> None:
    if any(t.onnx == code for t in dtypes.ALL):
        known[name] = dtypes.from_onnx(code)


def _nodes(
    nodes: Sequence[onnx.NodeProto], opsets: Mapping[str, int], known: dict[str, DType], search: _Search, depth: int,
    prefix: str,
) -> None:  # fmt: skip
    if depth > _MAX_DEPTH:
        raise ModelError(f"model: subgraphs and functions are nested deeper than {_MAX_DEPTH}")
    for node in nodes:
        domain = normal_domain(node.domain)
        version = opsets.get(domain, _NOT_IMPORTED)
        _node(node, domain, version, known, search, depth, prefix)
        for a in node.attribute:
            if a.type == onnx.AttributeProto.GRAPH:
                _graph(a.g, opsets, known, search, depth + 1)
        sig = signature(node.op_type, domain, version)
        if sig is not None:
            given = [known.get(i) for i in node.input]
            for name, dtype in zip(node.output, output_dtypes(sig, given, len(node.output)), strict=True):
                if dtype is not None:
                    known[name] = dtype
        for a in node.attribute:
            if a.name in ("to", "dtype") and a.type == onnx.AttributeProto.INT and node.output:
                _note(known, node.output[0], a.i)


def _node(
    node: onnx.NodeProto, domain: str, version: int, known: dict[str, DType], search: _Search, depth: int, prefix: str
) -> None:
    if qualified(domain, node.op_type) in search.operators:
        return
    key = function_key(domain, node.op_type, node.overload)
    if key in search.functions:
        if key not in search.seen:
            search.seen.add(key)
            f = search.functions[key]
            opsets = {normal_domain(o.domain): o.version for o in f.opset_import}
            _nodes(f.node, opsets, {}, search, depth + 1, f"{f.name}/")
        return
    reason = _reason(node.op_type, domain, version, search)
    if reason:
        types = tuple(str(known.get(i, "?")) for i in node.input if i)
        entry = (domain, node.op_type, version, types, reason)
        search.found.setdefault(entry, []).append(prefix + (node.name or f"(unnamed, makes {', '.join(node.output)})"))


def _reason(op: str, domain: str, version: int, search: _Search) -> str:
    """Why an operator cannot be imported, "" if it can."""
    if version == _NOT_IMPORTED or (domain == "" and op == "Constant"):
        return ""  # the first is an error of the model, which conversion reports
    rule = find_rule(op, domain, version)
    if rule is not None:
        lacking = [m for m in rule.makes if not _is_available(m, NEWEST_OPSET, search)]
        return f"it becomes {', '.join(lacking)}, not supported" if lacking else ""
    if _is_available(op, version, search) if domain == "" else False:
        sig = signature(op, domain, version)
        if sig is not None:
            return old_form(op, version)
    sig = signature(op, domain, version)
    if sig is None:
        return "unknown operator" if domain == "" else "unknown operator or domain"
    if sig.has_body and domain:
        return ""
    return "not implemented"


def old_form(op: str, version: int) -> str:
    """Why the form of an operator in an old version is not supported, where it has no converter."""
    if op == "Scan" and version < 9:
        return "its form before version 9 has a batch axis"
    old, first = signature(op, "", version), signature(op, "", _FIRST_OPSET)
    changed = version < _FIRST_OPSET and old is not None and first is not None and old.since != first.since
    return f"its form before opset {_FIRST_OPSET} is not supported" if changed else ""


def _is_available(op: str, version: int, search: _Search) -> bool:
    """True for a native operator and for one that the standard defines by operators that are available."""
    if search.native(op):
        return True
    key = (op, version)
    if key not in search.bodies:
        search.bodies[key] = False  # while its own body is looked at
        search.bodies[key] = _has_available_body(op, version, search)
    return search.bodies[key]


def _has_available_body(op: str, version: int, search: _Search) -> bool:
    sig = signature(op, "", version)
    if sig is None or not sig.has_body:
        return False
    body = plain_body(sig, version)
    if body is None:
        return True  # depends on attributes and types: decided where it is expanded
    opsets = {"": version} | {normal_domain(o.domain): o.version for o in body.opset_import}
    return all(not _reason(n.op_type, normal_domain(n.domain), opsets.get(normal_domain(n.domain), 1), search)
               for n in body.node)  # fmt: skip
