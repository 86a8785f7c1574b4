"""The oracle: runs a function one scalar at a time, exactly as it is written.

Loops of every kind run serially and in order. Each operation is computed in its own element type, by
:mod:`tilewright.tensor_ir.scalar_eval`. Every index is checked against its buffer, reading an element that nothing has
written is an error, and so is an output element that the function leaves unwritten.

The tree is turned into Python source once, so that fuzzing with thousands of tiny nests stays quick; the source has one
line for one statement and one expression for one value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.core.arith.broadcast import Broadcast
from tilewright.core.arith.expr import Atom, FloorDiv, IntExpr, Mod, Var
from tilewright.core.arith.minmax import Max, Min
from tilewright.core.dtypes import DType, int64
from tilewright.core.errors import InputError, InternalError, TilewrightError
from tilewright.tensor_ir.empty_reductions import store_empty_inits
from tilewright.tensor_ir.ir import (
    Alloc,
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
    Op,
    Select,
    Seq,
    Stmt,
    Store,
    walk_index,
)
from tilewright.tensor_ir.scalar_eval import caster, literal, operation, to_values

_MAX_NESTING = 12  # Python allows 20 nested blocks and some 200 nested parentheses
_MAX_DEPTH = 25
_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=",
    "greater": ">", "greater_equal": ">=",
}  # fmt: skip
_WRAPPED = ("add", "sub", "mul")


class InterpreterError(TilewrightError):
    """The function did something that has no meaning: an index out of bounds, a read before any write."""


def interpret(func: Func, args: Sequence[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
    """Run ``func`` on the arrays ``args`` (its inputs) and return fresh output arrays.

    Raises InputError for arrays that do not fit the parameters, InterpreterError for an index out of bounds, a read
    of memory that was never written, an output element that was not written (0 in outputs of which the function says
    that it writes a part), or an integer division by zero.
    """
    return prepare(func).run(args, dims)


@dataclass(frozen=True, slots=True)
class Program:
    """A function as Python: ``source`` for the eye, ``call(dims, inputs, outputs)`` to run it."""

    func: Func
    source: str
    call: Callable[[Sequence[int], Sequence[Any], Sequence[Any]], None]

    def run(self, args: Sequence[np.ndarray], dims: Mapping[str, int]) -> list[np.ndarray]:
        """As :func:`interpret`."""
        func = self.func
        missing = [d for d in func.dims if d not in dims]
        if missing:
            raise InputError(f"{func.name}: no value for dimension {missing[0]}")
        inputs, outputs = func.params[: len(func.params) - func.outputs], func.params[len(func.params) - func.outputs :]
        if len(args) != len(inputs):
            raise InputError(f"{func.name}: expected {len(inputs)} arrays, got {len(args)}")
        env = {d: int(dims[d]) for d in func.dims}
        memory = [_input_memory(func, b, a, env) for b, a in zip(inputs, args, strict=True)]
        results = [_Memory(b.name, tuple(s.evaluate(env) for s in b.shape)) for b in outputs]
        with np.errstate(all="ignore"):
            try:
                self.call([env[d] for d in func.dims], memory, results)
            except ZeroDivisionError as e:
                raise InterpreterError(f"{func.name}: integer division by zero") from e
        return [_output_array(func, b, m) for b, m in zip(outputs, results, strict=True)]


def prepare(func: Func) -> Program:
    """``func`` compiled to Python, to be run more than once."""
    writer = _Writer(store_empty_inits(func))
    source = writer.write()
    namespace: dict[str, Any] = dict(writer.globals)
    exec(compile(source, f"<interpreted {func.name}>", "exec"), namespace)
    return Program(func, source, namespace["run"])


# -- memory ------------------------------------------------------------------------------------------------------
class _Memory:
    """Elements of one buffer; None marks what was never written. Whoever uses ``cells`` checks every index."""

    __slots__ = ("cells", "name", "shape")

    def __init__(self, name: str, shape: tuple[int, ...], cells: list[Any] | None = None) -> None:
        self.name, self.shape = name, shape
        self.cells: list[Any] = cells if cells is not None else [None] * _size(name, shape)

    def read(self, *index: int) -> Any:
        """The element at ``index``."""
        flat = 0
        for i, s in zip(index, self.shape, strict=True):
            if not 0 <= i < s:
                self.fail(index)
            flat = flat * s + i
        value = self.cells[flat]
        return self.fail(index) if value is None else value

    def fail(self, index: tuple[int, ...], writing: bool = False) -> None:
        """Raises the InterpreterError of a read or write that cannot be."""
        text = f"{self.name}[{', '.join(map(str, index))}]"
        if any(not 0 <= i < s for i, s in zip(index, self.shape, strict=True)):
            verb = "written" if writing else "read"
            raise InterpreterError(f"{text}: index out of bounds of shape {list(self.shape)} ({verb})")
        raise InterpreterError(f"{text}: read before it was written")


def _size(name: str, shape: tuple[int, ...]) -> int:
    n = 1
    for s in shape:
        if s < 0:
            raise InterpreterError(f"{name}: negative extent in shape {list(shape)}")
        n *= s
    return n


def _input_memory(func: Func, buffer: Buffer, array: np.ndarray, env: Mapping[str, int]) -> _Memory:
    shape = tuple(s.evaluate(env) for s in buffer.shape)
    if tuple(array.shape) != shape:
        raise InputError(f"{func.name}: {buffer.name} expects shape {list(shape)}, got {list(array.shape)}")
    if array.dtype != buffer.dtype.numpy:
        raise InputError(f"{func.name}: {buffer.name} expects {buffer.dtype}, got {array.dtype}")
    return _Memory(buffer.name, shape, to_values(array, buffer.dtype))


def _output_array(func: Func, buffer: Buffer, memory: _Memory) -> np.ndarray:
    if buffer.name in func.partial:
        zero = 0.0 if buffer.dtype.is_float else 0
        memory.cells[:] = [zero if v is None else v for v in memory.cells]
    for flat, v in enumerate(memory.cells):
        if v is None:
            where = ", ".join(str(int(i)) for i in np.unravel_index(flat, memory.shape)) if memory.shape else ""
            raise InterpreterError(f"{func.name}: output {buffer.name}[{where}] was never written")
    plain = buffer.dtype.kind in "biu" and buffer.dtype.bits >= 8
    if plain or buffer.dtype.name in ("float32", "float64"):
        return np.array(memory.cells, dtype=buffer.dtype.numpy).reshape(memory.shape)
    # the values are exact in the narrow type, so a plain conversion of them is too
    wide = np.array(memory.cells, dtype=np.float32 if buffer.dtype.kind == "f" else np.int64)
    return wide.astype(buffer.dtype.numpy).reshape(memory.shape)


# -- texts ------------------------------------------------------------------------------------------------------
def _extents(name: str, rank: int) -> list[str]:
    """The variables with the shape of a buffer."""
    return [f"s{d}_{name}" for d in range(rank)]


def _inside(name: str, index: Sequence[str]) -> str:
    """Whether an index is in the buffer."""
    return " and ".join(f"0 <= {i} < {s}" for i, s in zip(index, _extents(name, len(index)), strict=True)) or "True"


def _flat(name: str, index: Sequence[str]) -> str:
    """The place of an element."""
    text = ""
    for i, s in zip(index, _extents(name, len(index)), strict=True):
        text = f"({text})*{s} + {i}" if text else i
    return text or "0"


def _tuple(index: Sequence[str]) -> str:
    return f"({''.join(i + ', ' for i in index)})"


def _checked_load(name: str, index: Sequence[str]) -> str:
    """An element by a call, which computes its index once: there are loads in it."""
    return f"m_{name}.read({', '.join(index)})"


def _wrapped(text: str, dtype: DType) -> str:
    """An integer modulo two to the width of its type."""
    mask = (1 << dtype.bits) - 1
    if dtype.kind == "u":
        return f"({text} & {mask})"
    half = 1 << (dtype.bits - 1)
    return f"(({text} + {half} & {mask}) - {half})"


def _broadcast(*extents: int) -> int:
    return next((n for n in extents if n != 1), 1)


# -- source ------------------------------------------------------------------------------------------------------
class _Writer:
    """Writes the Python source of a function."""

    def __init__(self, func: Func) -> None:
        self.func = func
        self.lines: list[str] = []
        self.globals: dict[str, Any] = {"_Memory": _Memory, "_broadcast": _broadcast}
        self.shared: dict[tuple[object, ...], str] = {}
        self.counter = 0

    def write(self) -> str:
        func = self.func
        variables = {d: self.fresh("d") for d in func.dims}
        buffers: dict[str, str] = {}
        self.line(0, "def run(dims, inputs, outputs):")
        for i, d in enumerate(func.dims):
            self.line(1, f"{variables[d]} = dims[{i}]")
        split = len(func.params) - func.outputs
        for i, b in enumerate(func.params):
            source = f"inputs[{i}]" if i < split else f"outputs[{i - split}]"
            self.bind_buffer(1, b, source, buffers)
        self.stmt(func.body, 1, 1, variables, buffers)
        return "\n".join(self.lines) + "\n"

    def fresh(self, stem: str) -> str:
        self.counter += 1
        return f"{stem}{self.counter}"

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def bind_buffer(self, depth: int, b: Buffer, source: str, buffers: dict[str, str]) -> None:
        name = self.fresh("b")
        buffers[b.name] = name
        self.line(depth, f"m_{name} = {source}")
        self.line(depth, f"c_{name} = m_{name}.cells")
        if b.shape:
            self.line(depth, f"{', '.join(_extents(name, len(b.shape)))}, = m_{name}.shape")

    def share(self, key: tuple[object, ...], make: Callable[[], Any], stem: str) -> str:
        """The global name of an object that the source uses, made once."""
        if key not in self.shared:
            self.shared[key] = self.fresh(stem)
            self.globals[self.shared[key]] = make()
        return self.shared[key]

    # statements: `depth` is indentation, `nesting` counts blocks within the current Python function
    def stmt(self, s: Stmt, depth: int, nesting: int, variables: Mapping[str, str], buffers: dict[str, str]) -> None:
        if nesting > _MAX_NESTING and isinstance(s, (Loop, Guard)):
            name = self.fresh("part")
            self.line(depth, f"def {name}():")
            self.stmt(s, depth + 1, 1, variables, buffers)
            self.line(depth, f"{name}()")
            return
        match s:
            case Seq(stmts):
                if not stmts:
                    self.line(depth, "pass")
                for c in stmts:
                    self.stmt(c, depth, nesting, variables, buffers)
            case Loop(name, extent, body):
                v = self.fresh("v")
                self.line(depth, f"for {v} in range({self.index(extent, depth, variables, buffers)}):")
                self.stmt(body, depth + 1, nesting + 1, {**variables, name: v}, buffers)
            case Alloc(buffer, body):
                inner = dict(buffers)
                shape = "".join(self.index(x, depth, variables, buffers) + ", " for x in buffer.shape)
                self.bind_buffer(depth, buffer, f"_Memory({buffer.name!r}, ({shape}))", inner)
                self.stmt(body, depth, nesting, variables, inner)
            case Guard(condition, body):
                self.line(depth, f"if {self.value(condition, depth, variables, buffers)[0]}:")
                self.stmt(body, depth + 1, nesting + 1, variables, buffers)
            case Store(buffer, indices, value):
                self.store(buffer, indices, value, depth, variables, buffers)
            case Block():
                self.block(s, depth, variables, buffers)

    def block(self, b: Block, depth: int, variables: Mapping[str, str], buffers: dict[str, str]) -> None:
        inner = dict(variables)
        for axis, binding in zip(b.axes, b.bindings, strict=True):
            v = self.fresh("a")
            self.line(depth, f"{v} = {self.index(binding, depth, variables, buffers)}")
            inner[axis.name] = v
        if b.init is not None:
            first = " and ".join(f"{inner[a.name]} == 0" for a in b.axes if a.kind == "reduce") or "True"
            self.line(depth, f"if {first}:")
            self.store(b.buffer, b.indices, b.init, depth + 1, inner, buffers)
        self.store(b.buffer, b.indices, b.value, depth, inner, buffers)

    def store(
        self,
        buffer: str,
        indices: tuple[IntExpr, ...],
        value: Expr,
        depth: int,
        variables: Mapping[str, str],
        buffers: dict[str, str],
    ) -> None:
        name, index = buffers[buffer], [self.fresh("i") for _ in indices]
        for i, expr in zip(index, indices, strict=True):
            self.line(depth, f"{i} = {self.index(expr, depth, variables, buffers)}")
        self.line(depth, f"x = {self.value(value, depth, variables, buffers)[0]}")
        self.line(depth, f"if {_inside(name, index)}: c_{name}[{_flat(name, index)}] = x")
        self.line(depth, f"else: m_{name}.fail({_tuple(index)}, True)")

    # values: source text and its nesting of parentheses
    def value(self, e: Expr, depth: int, variables: Mapping[str, str], buffers: dict[str, str]) -> tuple[str, int]:
        text, nested = self._value(e, depth, variables, buffers)
        if nested < _MAX_DEPTH:
            return text, nested
        name = self.fresh("e")  # a function, not a temporary: the value may stand in a branch that is not taken
        self.line(depth, f"def {name}():")
        self.line(depth + 1, f"return {text}")
        return f"{name}()", 1

    def _value(self, e: Expr, depth: int, variables: Mapping[str, str], buffers: dict[str, str]) -> tuple[str, int]:
        match e:
            case Const():
                return self.share(("const", repr(e.value), e.dtype), lambda: literal(e.value, e.dtype), "c"), 0
            case Load(buffer, indices):
                idx = [self.index(i, depth, variables, buffers) for i in indices]
                plain = all(next(walk_index(i), None) is None for i in indices)
                return (self.load if plain else _checked_load)(buffers[buffer], idx), 5
            case Index(expr, dtype):
                return f"{self.cast(int64, dtype)}({self.index(expr, depth, variables, buffers)})", 4
            case Cast(value, dtype):
                text, nested = self.value(value, depth, variables, buffers)
                if dtype == value.dtype:
                    return text, nested
                return f"{self.cast(value.dtype, dtype)}({text})", nested + 1
            case Select(condition, then, otherwise):
                parts = [self.value(x, depth, variables, buffers) for x in (condition, then, otherwise)]
                text = f"({parts[1][0]} if {parts[0][0]} else {parts[2][0]})"
                return text, 1 + max(n for _, n in parts)
            case Op(name, args):
                parts = []
                for a in args:  # no comprehension: values are deep, and it would cost a frame a level
                    parts.append(self.value(a, depth, variables, buffers))
                return self.op(name, args, parts)
        raise InternalError(f"interpreter: unknown value {e!r}")

    def load(self, name: str, index: list[str]) -> str:
        """An element of a buffer. What is there costs no call; else the index is computed again for the message."""
        known = [i if i.isidentifier() or i.isdigit() else self.fresh("i") for i in index]
        tested = [k if k == i else f"({k} := {i})" for k, i in zip(known, index, strict=True)]
        x = self.fresh("x")
        found = f"({x} := c_{name}[{_flat(name, known)}]) is not None"
        return f"({x} if {_inside(name, tested)} and {found} else m_{name}.fail({_tuple(index)}))"

    def op(self, name: str, args: tuple[Expr, ...], parts: list[tuple[str, int]]) -> tuple[str, int]:
        dtype = args[0].dtype
        nested = 1 + max(n for _, n in parts)
        comparison = name in _INFIX and name not in ("add", "sub", "mul", "div")
        if name in _INFIX and (comparison or dtype.name in ("float32", "float64")):
            return f"({parts[0][0]} {_INFIX[name]} {parts[1][0]})", nested
        if name in ("logical_and", "logical_or"):
            return f"({parts[0][0]} {name[8:]} {parts[1][0]})", nested
        if name in _WRAPPED and dtype.is_integer:
            return _wrapped(f"{parts[0][0]} {_INFIX[name]} {parts[1][0]}", dtype), nested + 1
        f = self.share(("op", name, dtype), lambda: operation(name, dtype), "f")
        return f"{f}({', '.join(t for t, _ in parts)})", nested

    def cast(self, source: DType, to: DType) -> str:
        return self.share(("cast", source, to), lambda: caster(source, to), "cast")

    def index(self, e: IntExpr, depth: int, variables: Mapping[str, str], buffers: dict[str, str]) -> str:
        parts = []
        for mono, c in e.terms:
            factors = [self.atom(a, depth, variables, buffers) for a in mono]
            parts.append("*".join(factors if c == 1 else [f"({c})", *factors]))
        if e.const or not parts:
            parts.append(f"({e.const})" if e.const < 0 else str(e.const))
        return parts[0] if len(parts) == 1 and len(e.terms) <= 1 and "*" not in parts[0] else f"({' + '.join(parts)})"

    def atom(self, a: Atom, depth: int, variables: Mapping[str, str], buffers: dict[str, str]) -> str:
        if isinstance(a, Var):
            return variables[a.name]
        if isinstance(a, Dyn):
            return self.value(a.value, depth, variables, buffers)[0]
        args = [self.index(x, depth, variables, buffers) for x in a.children()]
        if isinstance(a, (FloorDiv, Mod)):
            return f"({args[0]} {a.symbol} {args[1]})"
        if isinstance(a, (Min, Max)):
            return f"{a.symbol}({', '.join(args)})"
        if isinstance(a, Broadcast):
            return f"_broadcast({', '.join(args)})"
        raise InternalError(f"interpreter: unknown index {a}")
