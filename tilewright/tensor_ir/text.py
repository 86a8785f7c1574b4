"""The text of the tensor IR, read back: ``parse_func(str(f)) == f``.

The text is Python syntax, so that Python's own ``ast`` reads it::

    @attrs(parts="C")
    def matmul(m: dim, A: float32[m, 8], B: float32[8, 3], C: out(float32[m, 3])):
        for C_i in range(m):
            for C_j in range(3):
                for k in range(8):
                    with block("C", C_i_=spatial(m, C_i), C_j_=spatial(3, C_j), k_=reduce(8, k)):
                        init(float32(0.0))
                        C[C_i_, C_j_] = add(C[C_i_, C_j_], mul(A[C_i_, k_], B[k_, C_j_]))

- A loop's kind is what it ranges over: ``range``, ``parallel``, ``vectorized``, ``unrolled``, ``opaque``; hints
  (:mod:`tilewright.tensor_ir.hints`) come last.
- ``@attrs(parts="C, D")`` names the outputs of which the function writes a part.
- ``@intrinsic("def f(A: float32[8], ...): ...", dense=("A",), code=(("llvm ir", features, declares),))`` gives an
  intrinsic of the function's own; ``setup`` and ``teardown`` follow where it has them.
- Each block axis is ``kind(extent, binding)``; ``init`` is what the first point of a reduction stores beforehand.
- ``acc = local(float32[4, 8])`` (or ``shared``, for scope global; ``stack`` and ``workspace`` in functions that are
  ready to be emitted) allocates for the rest of the suite it stands in;
  ``with local(float32[4, 8]) as acc:`` for the statements under it. ``align=`` follows if it is not 64.
- ``if condition:`` is a guard; a statement ``A[i] = value`` outside a block is a store.
- Values: literals ``float32(1.0)``, ``cast(value, dtype)``, ``index(expression, dtype)``, ``select(c, a, b)`` and
  operations by name. In an index, a value is read from memory; ``value(min(...))`` is that of the scalar ``min``.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from typing import NoReturn

from tilewright.core import dtypes
from tilewright.core.arith.expr import IntExpr, of_atom
from tilewright.core.arith.parse import from_ast
from tilewright.core.dtypes import DType
from tilewright.core.errors import ModelError, ParseError
from tilewright.tensor_ir.hints import (
    WORDS,
    Hint,
    Interleaved,
    Intrinsic,
    Joined,
    ParallelIf,
    Prefetch,
    Rolled,
    Stream,
    Trails,
)
from tilewright.tensor_ir.ir import (
    LOOP_WORDS,
    SCOPE_WORDS,
    Alloc,
    Axis,
    Block,
    Buffer,
    Cast,
    Const,
    Dyn,
    Expr,
    Func,
    Guard,
    Index,
    Load,
    Loop,
    MachineCode,
    Op,
    Scope,
    Select,
    Stmt,
    Storage,
    Store,
    TensorIntrin,
    seq,
)
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_LOOP_KINDS = {word: kind for kind, word in LOOP_WORDS.items()}
_SCOPES = {word: scope for scope, word in SCOPE_WORDS.items()}
_AXIS_KINDS = ("spatial", "reduce", "ordered")


# -- parsing -----------------------------------------------------------------------------------------------------
def parse_func(text: str) -> Func:
    """Read the text of a function back. Raises ParseError with the line."""
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise ParseError(f"tensor IR text: line {e.lineno}: {e.msg}") from e
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise ParseError("tensor IR text: expected one function")
    return _function(tree.body[0])


def _refuse(node: ast.AST, expected: str) -> NoReturn:
    line = getattr(node, "lineno", "?")
    raise ParseError(f"tensor IR text: line {line}: expected {expected}, got {ast.unparse(node)!r}")


def _function(node: ast.FunctionDef) -> Func:
    partial: tuple[str, ...] = ()
    intrinsics: list[TensorIntrin] = []
    for d in node.decorator_list:
        match d:
            case ast.Call(func=ast.Name(id="attrs"), keywords=[ast.keyword("parts", ast.Constant(str(names)))]):
                partial = tuple(names.split(", "))
            case ast.Call(func=ast.Name(id="intrinsic"), args=[description], keywords=[dense, code, *more]) if [
                ast.unparse(k) for k in more
            ] in ([], ["resumes=True"]):
                of_text = parse_func(ast.literal_eval(description))
                codes = tuple(MachineCode(*c) for c in ast.literal_eval(code.value))
                intrinsics.append(TensorIntrin(of_text, ast.literal_eval(dense.value), codes, bool(more)))
            case _:
                _refuse(d, "@attrs(parts=...) or @intrinsic(...)")
    dims: list[str] = []
    inputs: list[Buffer] = []
    outputs: list[Buffer] = []
    for a in node.args.args:
        if isinstance(a.annotation, ast.Name) and a.annotation.id == "dim":
            dims.append(a.arg)
        elif _called(a.annotation) == "out":
            outputs.append(_read_buffer(a.arg, a.annotation.args[0]))  # type: ignore[union-attr]
        elif a.annotation is None or outputs:
            _refuse(a, "inputs with a type before outputs")
        else:
            inputs.append(_read_buffer(a.arg, a.annotation))
    types = {b.name: b.dtype for b in (*inputs, *outputs)}
    body = _suite(node.body, types)
    return Func(node.name, (*inputs, *outputs), len(outputs), tuple(dims), body, partial, tuple(intrinsics))


def _called(node: ast.AST | None) -> str | None:
    """The name of the function, if ``node`` is a call of a named one."""
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _read_hint(node: ast.keyword, types: Mapping[str, DType]) -> Hint:
    match node.arg, node.value:
        case "if_", value:
            return ParallelIf(_read_index(value, types))
        case "intrinsic", ast.Constant(str(name)):
            return Intrinsic(name)
        case "prefetch", ast.Constant(str(name)):
            return Prefetch.parse(name)
        case "stream", ast.Constant(str(name)):
            return Stream(name)
        case "joined", ast.Constant(int(most)) if most is not True:
            return Joined(most)
        case "interleaved", ast.Constant(True):
            return Interleaved()
        case "rolled", ast.Constant(True):
            return Rolled()
        case "trails", ast.Constant(int(slices)) if slices is not True:
            return Trails(slices)
    _refuse(node, f"one of the hints {', '.join(WORDS)} with its value")


def _read_dtype(node: ast.AST) -> DType:
    if not isinstance(node, ast.Name):
        _refuse(node, "an element type")
    try:
        return dtypes.from_name(node.id)
    except ModelError as e:
        raise ParseError(f"tensor IR text: line {node.lineno}: {e}") from e


def _read_buffer(name: str, node: ast.expr) -> Buffer:
    """``float32[4, m]``, that with ``.align(n)``, or either in the word of a scope, like ``local(...)``."""
    scope: Scope | Storage = "global"
    align = 64
    word = _called(node)
    if word in _SCOPES:
        scope = _SCOPES[word]
        node = node.args[0]  # type: ignore[attr-defined]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "align":
        align = ast.literal_eval(node.args[0])
        node = node.func.value
    if not isinstance(node, ast.Subscript):
        _refuse(node, "a buffer type such as float32[4, m]")
    shape = tuple(_read_index(i, {}) for i in _subscripts(node))
    return Buffer(name, _read_dtype(node.value), shape, scope, align)


def _subscripts(node: ast.Subscript) -> list[ast.expr]:
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def _suite(nodes: list[ast.stmt], types: Mapping[str, DType]) -> Stmt:
    out: list[Stmt] = []
    for i, n in enumerate(nodes):
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name):
            b = _read_buffer(n.targets[0].id, n.value)
            out.append(Alloc(b, _suite(nodes[i + 1 :], {**types, b.name: b.dtype})))
            break
        if not isinstance(n, ast.Pass):
            out.append(_stmt(n, types))
    return seq(*out)


def _stmt(node: ast.stmt, types: Mapping[str, DType]) -> Stmt:
    match node:
        case ast.For(target=ast.Name(id=name), iter=ast.Call(args=[extent], keywords=notes), body=body):
            word = _called(node.iter)
            if word not in _LOOP_KINDS:
                _refuse(node.iter, "range, parallel, vectorized, unrolled or opaque")
            hints = tuple(_read_hint(k, types) for k in notes)
            return Loop(name, _read_index(extent, types), _suite(body, types), _LOOP_KINDS[word], hints)
        case ast.If(test=test, body=body, orelse=[]):
            return Guard(_read_value(test, types), _suite(body, types))
        case ast.With(items=[ast.withitem(context_expr=e, optional_vars=ast.Name(id=name))], body=body):
            b = _read_buffer(name, e)
            return Alloc(b, _suite(body, {**types, name: b.dtype}))
        case ast.With(items=[ast.withitem(context_expr=ast.Call() as call, optional_vars=None)], body=body):
            return _block(call, body, types)
        case ast.Assign(targets=[ast.Subscript() as target], value=value):
            buffer, indices = _read_element(target, types)
            return Store(buffer, indices, _read_value(value, types))
    _refuse(node, "a statement of the tensor IR")


def _read_element(node: ast.Subscript, types: Mapping[str, DType]) -> tuple[str, tuple[IntExpr, ...]]:
    if not isinstance(node.value, ast.Name):
        _refuse(node, "buffer[indices]")
    return node.value.id, tuple(_read_index(i, types) for i in _subscripts(node))


def _block(call: ast.Call, body: list[ast.stmt], types: Mapping[str, DType]) -> Block:
    if _called(call) != "block" or len(call.args) != 1 or not isinstance(call.args[0], ast.Constant):
        _refuse(call, 'block("name", axis=kind(extent, binding), ...)')
    axes: list[Axis] = []
    bindings: list[IntExpr] = []
    for k in call.keywords:
        kind = _called(k.value)
        if k.arg is None or kind not in _AXIS_KINDS or len(k.value.args) != 2:  # type: ignore[attr-defined]
            _refuse(k.value, "axis=kind(extent, binding)")
        extent, binding = (_read_index(x, types) for x in k.value.args)  # type: ignore[attr-defined]
        axes.append(Axis(k.arg, extent, kind))  # type: ignore[arg-type]
        bindings.append(binding)
    init = None
    if len(body) == 2 and isinstance(body[0], ast.Expr) and _called(body[0].value) == "init":
        init = _read_value(body[0].value.args[0], types)  # type: ignore[attr-defined]
        body = body[1:]
    store = _stmt(body[0], types) if len(body) == 1 else None
    if not isinstance(store, Store):
        _refuse(call, "an optional init(...) and one store in a block")
    name = str(call.args[0].value)
    return Block(name, tuple(axes), tuple(bindings), store.buffer, store.indices, store.value, init)


def _read_index(node: ast.expr, types: Mapping[str, DType]) -> IntExpr:
    def from_memory(node: ast.expr) -> IntExpr:
        match node:
            case ast.Call(func=ast.Name(id="value"), args=[value]):
                return of_atom(Dyn(_read_value(value, types)))
            case ast.Call() | ast.Subscript():
                return of_atom(Dyn(_read_value(node, types)))
        _refuse(node, "an index expression")

    return from_ast(node, from_memory)


def _read_value(node: ast.expr, types: Mapping[str, DType]) -> Expr:
    match node:
        case ast.Subscript():
            buffer, indices = _read_element(node, types)
            if buffer not in types:
                _refuse(node, "a buffer in scope")
            return Load(buffer, indices, types[buffer])
        case ast.Call(func=ast.Name(id="cast"), args=[value, dtype]):
            return Cast(_read_value(value, types), _read_dtype(dtype))
        case ast.Call(func=ast.Name(id="index"), args=[expr, dtype]):
            return Index(_read_index(expr, types), _read_dtype(dtype))
        case ast.Call(func=ast.Name(id="select"), args=[condition, then, otherwise]):
            return Select(*(_read_value(x, types) for x in (condition, then, otherwise)))
        case ast.Call(func=ast.Name(id=name), args=args) if name in SCALAR_OPS:
            values = tuple(_read_value(a, types) for a in args)
            if len(values) != SCALAR_OPS[name].arity:
                _refuse(node, f"{SCALAR_OPS[name].arity} arguments")
            return Op(name, values, SCALAR_OPS[name].result_type(values[0].dtype))
        case ast.Call(func=ast.Name() as dtype, args=[literal]):
            return Const(_read_literal(literal), _read_dtype(dtype))
    _refuse(node, "a value")


def _read_literal(node: ast.expr) -> int | float | bool:
    sign, inner = (-1, node.operand) if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) else (1, node)
    match inner:
        case ast.Name(id="inf"):
            return sign * math.inf
        case ast.Name(id="nan"):
            return math.nan
        case ast.Constant(value=bool(x)) if sign == 1:
            return x
        case ast.Constant(value=int(x) | float(x)):
            return sign * x
    _refuse(node, "a number")
