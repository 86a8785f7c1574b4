"""transform_layout: another order and shape of an intermediate buffer in memory."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tilewright.core.arith.bounds import Ranges, is_nonneg, loop_range, simplify
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod
from tilewright.core.arith.minmax import maximum
from tilewright.core.arith.parse import from_ast
from tilewright.core.errors import ParseError
from tilewright.schedule.base import Primitive, find_buffer, refuse, require_intrinsics
from tilewright.schedule.stage_motion import alloc_of
from tilewright.tensor_ir.analysis.dependence import is_injective
from tilewright.tensor_ir.analysis.sweeps import bounds
from tilewright.tensor_ir.ir import Alloc, Block, Buffer, Expr, Func, Guard, Load, Loop, Stmt, Store, map_children
from tilewright.tensor_ir.loads import map_index_loads, map_loads


@dataclass(frozen=True, slots=True)
class TransformLayout(Primitive):
    """Store an intermediate buffer in another layout: element ``[i, j]`` stands at the indices that a map gives.

    The map is text: names for the old indices, ``->``, the new ones, which may use the dims of the function. The new
    shape is the smallest that holds every element; what a map leaves free of it is padding, which nothing reads.

    Rewrite:
        alloc B[N, 4] global: ... B[i, j] ...
        --> transform_layout("B", index_map="i, j -> i // 8, j, i % 8")
        alloc B[ceildiv(N, 8), 4, 8] global: ... B[i // 8, j, i % 8] ...

    Keeps: every value, bit for bit; loops stay as they are, and so does what is computed.
    Refuses:
        - the buffer is not there
        - the buffer is a parameter
        - the map does not read as names, an arrow, and index expressions
        - the map does not have one name for each dimension
        - a new index uses what is neither a name of the map nor a dim
        - a divisor in the map is not a positive constant
        - a new index has no bounds, or may be below 0
        - two elements are not proved to stay apart
        - the new shape of a local buffer is not constant, though the old one is
        - a nest would no longer be what the intrinsic that runs it computes
    Cost: divisions and remainders in the indices, unless the loops are split as the map splits; strides change.
    """

    name: ClassVar[str] = "transform_layout"
    buffer: str
    index_map: str

    def apply(self, func: Func) -> Func:
        old = find_buffer(func, self.buffer, self)
        alloc = alloc_of(func, self.buffer)
        if alloc is None:
            raise refuse(self, f"expected an intermediate buffer, but {self.buffer} is a parameter of {func.name}")
        names, indices = self._parse()
        extents = self._require_names(func, old, names, indices)
        points: Ranges = {n: loop_range(d) for n, d in extents.items()}
        indices = [simplify(i, points) for i in indices]
        shape = tuple(self._extent(i, list(extents), points) for i in indices)
        if not is_injective(indices, extents):
            raise refuse(self, f"the elements of {self.buffer} are not proved to stay apart under {self.index_map!r}")
        if old.scope == "local" and all(d.is_const for d in old.shape) and not all(d.is_const for d in shape):
            raise refuse(self, f"expected a constant shape for local scope, got ({', '.join(map(str, shape))})")
        layout = _Layout(func, self.buffer, names, indices)
        new = dataclasses.replace(old, shape=shape)
        result = dataclasses.replace(func, body=layout.stmt(func.body, alloc, new, {}))
        require_intrinsics(self, func, result)
        return result

    def _parse(self) -> tuple[list[str], list[IntExpr]]:
        left, arrow, right = self.index_map.partition("->")
        names = [n.strip() for n in left.split(",")] if left.strip() else []
        wrong = f"expected a map such as 'i, j -> j, i', got {self.index_map!r}"
        if not arrow or not all(n.isidentifier() for n in names) or len(set(names)) != len(names):
            raise refuse(self, wrong)
        try:
            tree = ast.parse(f"({right.strip().rstrip(',')},)", mode="eval").body
            indices = [from_ast(e) for e in tree.elts] if isinstance(tree, ast.Tuple) else []
        except (SyntaxError, ParseError) as e:
            raise refuse(self, wrong) from e
        if not indices:
            raise refuse(self, wrong)
        return names, indices

    def _require_names(
        self, func: Func, old: Buffer, names: Sequence[str], indices: Sequence[IntExpr]
    ) -> dict[str, IntExpr]:
        """The extent that each name of the map runs over."""
        if len(names) != len(old.shape):
            raise refuse(self, f"expected {len(old.shape)} names for the dimensions of {self.buffer}, got {len(names)}")
        for n in names:
            if n in func.dims:
                raise refuse(self, f"expected names that are not dims, but {n} is a dim of {func.name}")
        for i in indices:
            for n in sorted(i.free_vars() - {*names, *func.dims}):
                raise refuse(self, f"index {i} uses {n}, which is neither a name of the map nor a dim")
            for divisor in _divisors(i):
                if (divisor.value() or 0) < 1:
                    raise refuse(self, f"expected positive constants as divisors, got {divisor} in {i}")
        return dict(zip(names, old.shape, strict=True))

    def _extent(self, index: IntExpr, names: Sequence[str], points: Ranges) -> IntExpr:
        """One more than the greatest value of an index."""
        box = bounds(index, names, points)
        if box is None or not is_nonneg(box[0], {}):
            raise refuse(self, f"index {index} is not proved to have bounds and to be at least 0")
        extent = box[1] + 1
        return extent if is_nonneg(extent, {}) else simplify(maximum(0, extent), {})


def _divisors(e: IntExpr) -> list[IntExpr]:
    out: list[IntExpr] = []
    for a in e.atoms():
        if isinstance(a, (FloorDiv, Mod)):
            out.append(a.args[1])
        for c in a.children():
            out += _divisors(c)
    return out


class _Layout:
    """Rewrites every access of one buffer."""

    def __init__(self, func: Func, buffer: str, names: Sequence[str], indices: Sequence[IntExpr]) -> None:
        self.func, self.buffer, self.names, self.indices = func, buffer, names, indices

    def stmt(self, s: Stmt, alloc: Alloc, new: Buffer, ranges: Ranges) -> Stmt:
        """``s`` under loops with these ``ranges``; the same object where nothing changes."""
        if isinstance(s, Block):
            new_block = self._block(s, ranges)
            return s if new_block == s else new_block
        if isinstance(s, Store):
            return Store(s.buffer, self._place(s.buffer, s.indices, ranges), self._value(s.value, ranges))
        if isinstance(s, Guard):
            return Guard(self._value(s.condition, ranges), self.stmt(s.body, alloc, new, ranges))
        if s is alloc:
            return Alloc(new, self.stmt(alloc.body, alloc, new, ranges))
        inside = {**ranges, s.var: loop_range(s.extent)} if isinstance(s, Loop) else ranges
        return map_children(s, lambda c: self.stmt(c, alloc, new, inside))

    def _block(self, block: Block, ranges: Ranges) -> Block:
        axes: Ranges = {a.name: loop_range(a.extent) for a in block.axes}
        return dataclasses.replace(
            block,
            bindings=tuple(map_index_loads(b, lambda x: self._load(x, ranges)) for b in block.bindings),
            indices=self._place(block.buffer, block.indices, axes),
            value=self._value(block.value, axes),
            init=None if block.init is None else self._value(block.init, axes),
        )

    def _value(self, e: Expr, ranges: Ranges) -> Expr:
        return map_loads(e, lambda x: self._load(x, ranges))

    def _load(self, x: Load, ranges: Ranges) -> Load:
        return dataclasses.replace(x, indices=self._mapped(x.indices, ranges)) if x.buffer == self.buffer else x

    def _place(self, buffer: str, indices: tuple[IntExpr, ...], ranges: Ranges) -> tuple[IntExpr, ...]:
        indices = tuple(map_index_loads(i, lambda x: self._load(x, ranges)) for i in indices)
        return self._mapped(indices, ranges) if buffer == self.buffer else indices

    def _mapped(self, indices: tuple[IntExpr, ...], ranges: Ranges) -> tuple[IntExpr, ...]:
        env: Mapping[str, IntExpr] = dict(zip(self.names, indices, strict=True))
        return tuple(simplify(i.substitute(env), ranges) for i in self.indices)
