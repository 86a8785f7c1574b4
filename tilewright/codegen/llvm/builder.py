"""A small writer of LLVM IR text: one function, its blocks, and the module's shared declarations and helpers.

Text rather than objects because emission time counts: an instruction is one formatted line. Every method that makes a
value works on scalars and on vectors alike; a scalar operand is splat when the other side is a vector.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tilewright.codegen.llvm.types import bits_of, float_literal, full_type, suffix
from tilewright.machine.target import Target


class Value(NamedTuple):
    """An SSA value or constant: LLVM scalar type, lanes (0: scalar) and operand text."""

    type: str
    lanes: int
    text: str

    @property
    def full(self) -> str:
        """The LLVM type."""
        return f"<{self.lanes} x {self.type}>" if self.lanes else self.type

    @property
    def typed(self) -> str:
        """Type and operand, as instructions write their first operand."""
        return f"{self.full} {self.text}"

    @property
    def is_const(self) -> bool:
        return self.text[0] != "%"


class BasicBlock:
    """A labelled block. Lines may still be appended in front of the terminator after it is set."""

    __slots__ = ("label", "lines", "terminator")

    def __init__(self, label: str) -> None:
        self.label = label
        self.lines: list[str] = []
        self.terminator: str | None = None


class ModuleText:
    """What the functions of one module share: intrinsic declarations, helper functions, facts about loops."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.loops: list[str] = []
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}
        self.functions: list[str] = []

    def declare(self, name: str, result: str, args: Sequence[str]) -> None:
        """Declare an external function or intrinsic once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(args)})"

    def declare_text(self, line: str) -> None:
        """As :meth:`declare`, for a whole line: ``declare i32 @f(i32)``, or ``@x = constant i8 0``."""
        name = line[line.index("@") + 1 :]
        self.declarations.setdefault(re.split(r"[ (]", name, maxsplit=1)[0], line)

    def rolled(self) -> str:
        """What the branch back of a loop says that LLVM shall not write out."""
        place = len(self.loops)
        self.loops.append(f'!{place} = distinct !{{!{place}, !{{!"llvm.loop.unroll.disable"}}}}')
        return f", !llvm.loop !{place}"

    def text(self) -> str:
        """The module."""
        parts = [f'target triple = "{self.target.triple}"', *self.declarations.values(), *self.helpers.values()]
        return "\n".join([*parts, *self.functions, *self.loops, ""])


_PREDICATES: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq, "ne": operator.ne, "slt": operator.lt, "sle": operator.le, "sgt": operator.gt,
    "sge": operator.ge,
}  # fmt: skip
_BITS: dict[str, Callable[[bool, bool], bool]] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}
_TRUTH = {"true": True, "false": False}
_LITERAL = {True: "true", False: "false"}


def _decided_comparison(predicate: str, a: str, b: str) -> str | None:
    """The result of comparing two integer literals. Where loops are written out, most conditions are decided so, and
    neither the branches nor what they skip need to be emitted."""
    if predicate not in _PREDICATES or not (a.lstrip("-").isdigit() and b.lstrip("-").isdigit()):
        return None
    return _LITERAL[_PREDICATES[predicate](int(a), int(b))]


def _decided_bits(op: str, a: str, b: str) -> str | None:
    """The result of a bit operation on two truth values that are literals."""
    if op not in _BITS or a not in _TRUTH or b not in _TRUTH:
        return None
    return _LITERAL[_BITS[op](_TRUTH[a], _TRUTH[b])]


class Code:
    """The body of one function under construction."""

    def __init__(self, module: ModuleText) -> None:
        self.module = module
        self.target = module.target
        self.entry = BasicBlock("entry")
        self.blocks: list[BasicBlock] = [self.entry]
        self.block = self.entry
        self._count = 0
        self._splats: dict[tuple[str, str, int], Value] = {}

    # -- blocks --------------------------------------------------------------------------------------------------
    def new_block(self, hint: str) -> BasicBlock:
        """A fresh block, not yet placed."""
        self._count += 1
        return BasicBlock(f"{hint}{self._count}")

    def start(self, block: BasicBlock) -> None:
        """Continue in ``block``."""
        self.blocks.append(block)
        self.block = block
        self._splats = {}

    def branch(self, to: BasicBlock) -> None:
        self.block.terminator = f"br label %{to.label}"

    def branch_if(self, condition: str, then: BasicBlock, otherwise: BasicBlock, remark: str = "") -> None:
        self.block.terminator = f"br i1 {condition}, label %{then.label}, label %{otherwise.label}{remark}"

    def text(self) -> str:
        """The blocks of the body."""
        out: list[str] = []
        for b in self.blocks:
            out.append(f"{b.label}:")
            out.extend(b.lines)
            out.append("  " + (b.terminator or "unreachable"))
        return "\n".join(out)

    # -- instructions --------------------------------------------------------------------------------------------
    def name(self) -> str:
        self._count += 1
        return f"%v{self._count}"

    def line(self, text: str) -> None:
        self.block.lines.append("  " + text)

    def emit(self, type_: str, lanes: int, text: str) -> Value:
        """Append ``%name = text`` and return the value."""
        self._count += 1
        name = f"%v{self._count}"
        self.block.lines.append(f"  {name} = {text}")
        return Value(type_, lanes, name)

    def splat(self, v: Value, lanes: int) -> Value:
        """``v`` in every lane (itself if it is a vector, or if no lanes are asked for)."""
        if v.lanes or not lanes:
            return v
        if v.is_const:
            return Value(v.type, lanes, f"splat ({v.type} {v.text})")
        key = (v.type, v.text, lanes)
        if key not in self._splats:
            t = full_type(v.type, lanes)
            one = self.emit(v.type, lanes, f"insertelement {t} poison, {v.type} {v.text}, i64 0")
            self._splats[key] = self.emit(
                v.type, lanes, f"shufflevector {t} {one.text}, {t} poison, <{lanes} x i32> zeroinitializer"
            )
        return self._splats[key]

    def splat_in(self, v: Value, lanes: int, block: BasicBlock) -> Value:
        """``v`` in every lane, computed at the end of ``block``; values of the current block are not used for it."""
        saved = self.block, self._splats
        self.block, self._splats = block, {}
        out = self.splat(v, lanes)
        self.block, self._splats = saved
        return out

    def const(self, x: float | int | bool, like: Value) -> Value:
        """A constant of the type and lanes of ``like``."""
        if like.type in ("float", "double"):
            text = float_literal(float(x), like.type)
        elif like.type == "i1":
            text = "true" if x else "false"
        else:
            text = str(int(x))
        return self.splat(Value(like.type, 0, text), like.lanes)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """``op a, b``: an arithmetic or bit instruction."""
        if a.lanes != b.lanes:
            lanes = a.lanes or b.lanes
            a, b = self.splat(a, lanes), self.splat(b, lanes)
        if a.type == "i1" and (known := _decided_bits(op, a.text, b.text)) is not None:
            return Value("i1", 0, known)
        return self.emit(a.type, a.lanes, f"{op} {a.full} {a.text}, {b.text}")

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """``fcmp`` or ``icmp`` by the type of the operands; a literal where both are integer literals."""
        if a.lanes != b.lanes:
            lanes = a.lanes or b.lanes
            a, b = self.splat(a, lanes), self.splat(b, lanes)
        if (known := _decided_comparison(predicate, a.text, b.text)) is not None:
            return Value("i1", 0, known)
        op = "fcmp" if a.type in ("float", "double", "half") else "icmp"
        return self.emit("i1", a.lanes, f"{op} {predicate} {a.full} {a.text}, {b.text}")

    def select(self, c: Value, a: Value, b: Value) -> Value:
        """``c ? a : b``, lane by lane where ``c`` is a vector."""
        lanes = a.lanes or b.lanes or c.lanes
        a, b = self.splat(a, lanes), self.splat(b, lanes)
        return self.emit(a.type, lanes, f"select {c.full} {c.text}, {a.full} {a.text}, {b.full} {b.text}")

    def convert(self, op: str, a: Value, to: str) -> Value:
        """``op a to type``: zext, sext, trunc, fpext, fptrunc, sitofp, uitofp, fptosi, fptoui, bitcast."""
        return self.emit(to, a.lanes, f"{op} {a.full} {a.text} to {full_type(to, a.lanes)}")

    def resize(self, a: Value, to: str, signed: bool) -> Value:
        """An integer in another width."""
        have, want = bits_of(a.type), bits_of(to)
        if have == want:
            return a
        return self.convert("trunc" if want < have else ("sext" if signed and a.type != "i1" else "zext"), a, to)

    def call(self, name: str, result: str, lanes: int, *args: Value) -> Value:
        """Call a declared function."""
        return self.emit(result, lanes, f"call {full_type(result, lanes)} @{name}({', '.join(a.typed for a in args)})")

    def intrinsic(self, name: str, *args: Value, extra: Sequence[str] = ()) -> Value:
        """An intrinsic overloaded on the type of its arguments, which is its result type: ``llvm.fma``."""
        lanes = max(a.lanes for a in args)
        args = tuple(self.splat(a, lanes) for a in args)
        first = args[0]
        full = f"llvm.{name}.{suffix(first.type, lanes)}"
        tail = [e.split()[0] for e in extra]
        self.module.declare(full, first.full, [*(a.full for a in args), *tail])
        operands = ", ".join([*(a.typed for a in args), *extra])
        return self.emit(first.type, lanes, f"call {first.full} @{full}({operands})")

    # -- arithmetic of float values ------------------------------------------------------------------------------
    def fadd(self, a: Value, b: Value | float) -> Value:
        return self.binary("fadd", a, b if isinstance(b, Value) else self.const(b, a))

    def fsub(self, a: Value | float, b: Value | float) -> Value:
        x = a if isinstance(a, Value) else self.const(a, b)  # type: ignore[arg-type]
        return self.binary("fsub", x, b if isinstance(b, Value) else self.const(b, x))

    def fmul(self, a: Value, b: Value | float) -> Value:
        return self.binary("fmul", a, b if isinstance(b, Value) else self.const(b, a))

    def fdiv(self, a: Value | float, b: Value) -> Value:
        return self.binary("fdiv", a if isinstance(a, Value) else self.const(a, b), b)

    def fneg(self, a: Value) -> Value:
        return self.emit(a.type, a.lanes, f"fneg {a.full} {a.text}")

    def copysign(self, magnitude: Value, sign: Value) -> Value:
        """``magnitude``, which is not negative, with the sign of ``sign``; both are doubles.

        LLVM moves a later conversion to half before a ``copysign``, and converts ``sign`` too: by a function of the
        compiler's library, on a CPU without half arithmetic. It knows no ``copysign`` in this exclusive or.
        """
        bits, other = self.convert("bitcast", magnitude, "i64"), self.convert("bitcast", sign, "i64")
        taken = self.binary("and", other, self.const(-(1 << 63), other))
        return self.convert("bitcast", self.binary("xor", bits, taken), "double")

    def fma(self, a: Value, b: Value | float, c: Value | float) -> Value:
        """``a * b + c`` with one rounding where the CPU has it, else with two."""
        b = b if isinstance(b, Value) else self.const(b, a)
        c = c if isinstance(c, Value) else self.const(c, a)
        if self.target.has_fma:
            return self.intrinsic("fma", a, b, c)
        return self.fadd(self.fmul(a, b), c)

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Horner's rule; the highest power comes first."""
        acc = self.const(coefficients[0], x)
        for c in coefficients[1:]:
            acc = self.fma(acc, x, c)
        return acc

    # -- lanes ---------------------------------------------------------------------------------------------------
    def any_lane(self, mask: Value) -> Value:
        """True where at least one lane of ``mask`` is on."""
        name = f"llvm.vector.reduce.or.{suffix('i1', mask.lanes)}"
        self.module.declare(name, "i1", (mask.full,))
        return self.call(name, "i1", 0, mask)

    def extract(self, v: Value, lane: int) -> Value:
        return self.emit(v.type, 0, f"extractelement {v.full} {v.text}, i64 {lane}") if v.lanes else v

    def gather_lanes(self, parts: Sequence[Value]) -> Value:
        """A vector made of scalars."""
        t = full_type(parts[0].type, len(parts))
        if all(p.is_const for p in parts):
            return Value(parts[0].type, len(parts), "<" + ", ".join(f"{p.type} {p.text}" for p in parts) + ">")
        acc = "poison"
        for i, p in enumerate(parts):
            acc = self.emit(p.type, len(parts), f"insertelement {t} {acc}, {p.type} {p.text}, i64 {i}").text
        return Value(parts[0].type, len(parts), acc)

    def shuffle(self, a: Value, b: Value | None, mask: Sequence[int]) -> Value:
        """Lanes picked from ``a`` followed by ``b``."""
        other = b.text if b is not None else "poison"
        picks = ", ".join(f"i32 {m}" for m in mask)
        text = f"shufflevector {a.full} {a.text}, {a.full} {other}, <{len(mask)} x i32> <{picks}>"
        return self.emit(a.type, len(mask), text)

    def concat(self, parts: Sequence[Value]) -> Value:
        """Vectors of one length, one behind another; their number is a power of two."""
        while len(parts) > 1:
            parts = [self.shuffle(a, b, range(2 * a.lanes)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def interleave(self, values: Sequence[Value]) -> Value:
        """The first lane of each of two to four vectors of one length, then the second of each, and so on."""
        n, last = values[0].lanes, len(values) - 1
        pairs = [self.concat([values[k], values[min(k + 1, last)]]) for k in range(0, len(values), 2)]
        order = [k * n + lane for lane in range(n) for k in range(len(values))]
        return self.shuffle(pairs[0], pairs[1] if len(pairs) > 1 else None, order)

    def view(self, v: Value, type_: str, lanes: int) -> Value:
        """The bits of a vector as ``lanes`` elements of ``type_``."""
        return self.emit(type_, lanes, f"bitcast {v.full} {v.text} to {full_type(type_, lanes)}")

    def lane_numbers(self, lanes: int, type_: str = "i32", first: int = 0) -> Value:
        """``<first, first + 1, ...>``."""
        return Value(type_, lanes, "<" + ", ".join(f"{type_} {first + i}" for i in range(lanes)) + ">")


def helper(
    code: Code, name: str, args: Sequence[Value], result: str, body: Callable[[Code, Sequence[Value]], Value],
    inlined: bool = True,
) -> Value:  # fmt: skip
    """Call helper ``name`` of this type and lane count; its body is written into the module on first use.

    Helpers are always inlined by LLVM; they only keep the text small and its generation quick. Not ``inlined``: a body
    with a loop, many copies of which take LLVM longer than all else, and beside which a call costs nothing.
    """
    lanes = max(a.lanes for a in args)
    args = [code.splat(a, lanes) for a in args]
    full = f"tw.{name}.{suffix(args[0].type, lanes)}"
    if full not in code.module.helpers:
        code.module.helpers[full] = ""  # reserves the place: helpers may use helpers
        inner = Code(code.module)
        params = [Value(a.type, lanes, f"%a{i}") for i, a in enumerate(args)]
        out = body(inner, params)
        inner.block.terminator = f"ret {out.typed}"
        head = f"define internal {full_type(result, lanes)} @{full}({', '.join(p.typed for p in params)})"
        head += " alwaysinline" if inlined else " noinline nounwind"
        code.module.helpers[full] = f"{head} {{\n{inner.text()}\n}}"
    return code.call(full, result, lanes, *args)
