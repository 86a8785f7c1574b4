"""The verifier: what every function of the tensor IR must satisfy, as numbered invariants, each with its check.

 1. names are identifiers; functions, dims, loops, blocks and buffers are unique, and dims are neither loops nor axes
 2. every variable and buffer that is used is in scope; blocks use only their own axes and dims
 3. an access has as many indices as its buffer has dimensions
 4. element types agree: loads with buffers, operands with each other, stored values with buffers, conditions are bool
 5. operations exist, with their number of arguments and for that kind of element type
 6. a block has one binding for each axis, and its axis names are unique
 7. a reduction block loads the element that it stores; only reduction blocks have an init
 8. vectorized and unrolled loops have a constant upper bound
 9. only serial loops, sequences and allocations of global buffers stand around parallel loops
10. allocations of global buffers stand at the root; allocations inside parallel loops are local
11. a sequence holds no sequence directly and is not of length 1
12. indices are not provably out of bounds, bindings not provably outside their axes (what is not decided is allowed)
13. outputs are counted by ``outputs``, inputs are never written, outputs are
14. shapes, axis extents and loop extents do not read memory and are not negative; shapes and axis extents use only dims
15. an ordered or reduce axis is not driven by a parallel or vectorized loop (unless a spatial axis is as well)
16. an intrinsic is known, its loop is opaque and not vectorized, and the nest is what the intrinsic describes
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterator
from typing import NoReturn

from tilewright.core.arith.bounds import Ranges, extremes, interval, is_nonneg, loop_range, simplify, upper_bound
from tilewright.core.arith.expr import FloorDiv, IntExpr, Mod
from tilewright.core.arith.minmax import Max, Min
from tilewright.core.errors import VerifyError
from tilewright.tensor_ir.analysis.intrinsic_match import broken_intrinsics
from tilewright.tensor_ir.ir import (
    Alloc,
    Block,
    Buffer,
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
    expr_children,
    expr_free_vars,
    expr_indices,
    print_stmt,
    stmt_children,
    walk,
    walk_expr,
    walk_index,
)
from tilewright.tensor_ir.scalar_ops import SCALAR_OPS

_MAX_LINES = 20


def verify(func: Func) -> None:
    """Check every invariant. Raises VerifyError with the invariant's number, the name at fault and some IR."""
    for check in CHECKS.values():
        check(func)


def unproved_accesses(func: Func) -> tuple[str, ...]:
    """The accesses whose indices are neither proved inside their buffers nor proved outside, as text."""
    out: list[str] = []
    for buffer, indices, ranges, certain in _bounded_accesses(func):
        for i, extent in zip(indices, buffer.shape, strict=True):
            inside = is_nonneg(i, ranges) and is_nonneg(extent - 1 - i, ranges)
            if not inside:
                out.append(f"{buffer.name}[{', '.join(map(str, indices))}]" + ("" if certain else " (guarded)"))
                break
    return tuple(dict.fromkeys(out))


def _fail(number: int, func: Func, who: str, what: str, where: Stmt | None = None) -> NoReturn:
    try:
        lines = print_stmt(where if where is not None else func.body).splitlines()
    except (ValueError, KeyError, TypeError):
        lines = ["(the statement cannot be printed)"]
    if len(lines) > _MAX_LINES:
        lines = [*lines[: _MAX_LINES - 1], "..."]
    raise VerifyError(f"invariant {number}: {func.name}: {who}: {what}\n" + "\n".join(lines))


# -- walking -----------------------------------------------------------------------------------------------------
def _paths(s: Stmt, above: tuple[Stmt, ...] = ()) -> Iterator[tuple[Stmt, tuple[Stmt, ...]]]:
    """Every statement with the statements around it, outermost first."""
    yield s, above
    for c in stmt_children(s):
        yield from _paths(c, (*above, s))


def _values(s: Stmt) -> tuple[Expr, ...]:
    """Values that stand directly in one statement."""
    if isinstance(s, Block):
        return (s.value,) if s.init is None else (s.init, s.value)
    if isinstance(s, Store):
        return (s.value,)
    return (s.condition,) if isinstance(s, Guard) else ()


def _indices(s: Stmt) -> tuple[IntExpr, ...]:
    """Index expressions that stand directly in one statement, outside its values."""
    if isinstance(s, Block):
        return (*s.bindings, *s.indices)
    return s.indices if isinstance(s, Store) else ()


def _all_values(s: Stmt) -> Iterator[Expr]:
    """Every value in one statement, those inside indices included."""
    for i in _indices(s):
        yield from walk_index(i)
    for e in _values(s):
        yield from walk_expr(e)


def _scope(func: Func, above: tuple[Stmt, ...]) -> dict[str, Buffer]:
    out = {b.name: b for b in func.params}
    out.update({s.buffer.name: s.buffer for s in above if isinstance(s, Alloc)})
    return out


def _accesses(s: Stmt) -> Iterator[tuple[str, tuple[IntExpr, ...]]]:
    """Every (buffer, indices) in one statement, stores first."""
    if isinstance(s, (Block, Store)):
        yield s.buffer, s.indices
    for e in _all_values(s):
        if isinstance(e, Load):
            yield e.buffer, e.indices


# -- checks ------------------------------------------------------------------------------------------------------
def check_names(func: Func) -> None:
    """1. names are identifiers and unique."""
    statements = list(walk(func.body))
    loops = [s.var for s in statements if isinstance(s, Loop)]
    blocks = [s.name for s in statements if isinstance(s, Block)]
    buffers = [b.name for b in func.params] + [s.buffer.name for s in statements if isinstance(s, Alloc)]
    axes = {a.name for s in statements if isinstance(s, Block) for a in s.axes}
    kinds = {"function": [func.name], "dim": list(func.dims), "loop": loops, "block": blocks, "buffer": buffers}
    for kind, names in kinds.items():
        seen: set[str] = set()
        for n in names:
            if n in seen:
                _fail(1, func, n, f"the name of a {kind} must be unique")
            if not n.isidentifier() or keyword.iskeyword(n):
                _fail(1, func, n, f"the name of a {kind} must be an identifier")
            seen.add(n)
    for n in sorted(axes):
        if not n.isidentifier() or keyword.iskeyword(n):
            _fail(1, func, n, "the name of an axis must be an identifier")
    for n in func.dims:
        if n in loops or n in axes:
            _fail(1, func, n, "the name of a dim must not be that of a loop or an axis")


def check_scopes(func: Func) -> None:
    """2. everything that is used is in scope."""
    dims = set(func.dims)
    for s, above in _paths(func.body):
        variables = dims | {a.var for a in above if isinstance(a, Loop)}
        inside = dims | {a.name for a in s.axes} if isinstance(s, Block) else variables
        used = [(i, variables) for i in (s.bindings if isinstance(s, Block) else ())]
        used += [(i, inside) for i in (s.indices if isinstance(s, (Block, Store)) else ())]
        used += [(s.extent, variables)] if isinstance(s, Loop) else []
        free = [(i.free_vars(), allowed) for i, allowed in used] + [(expr_free_vars(e), inside) for e in _values(s)]
        for names, allowed in free:
            for n in sorted(names - allowed):
                _fail(2, func, n, f"the variable is not in scope{_in_block(s)}", s)
        buffers = _scope(func, above)
        for name, _ in _accesses(s):
            if name not in buffers:
                _fail(2, func, name, f"the buffer is not in scope{_in_block(s)}", s)


def _in_block(s: Stmt) -> str:
    return f" in block {s.name}" if isinstance(s, Block) else ""


def check_ranks(func: Func) -> None:
    """3. an access has as many indices as its buffer has dimensions."""
    for s, above in _paths(func.body):
        buffers = _scope(func, above)
        for name, indices in _accesses(s):
            rank = len(buffers[name].shape)
            if len(indices) != rank:
                _fail(3, func, name, f"expected {rank} indices, got {len(indices)}{_in_block(s)}", s)


def check_types(func: Func) -> None:
    """4. element types agree."""
    for s, above in _paths(func.body):
        buffers = _scope(func, above)
        for e in _all_values(s):
            if isinstance(e, Load) and e.dtype != buffers[e.buffer].dtype:
                _fail(4, func, e.buffer, f"loaded as {e.dtype}, but it holds {buffers[e.buffer].dtype}", s)
            if isinstance(e, Op):
                for a in e.args:
                    if a.dtype != e.args[0].dtype:
                        _fail(4, func, e.name, f"operands are {e.args[0].dtype} and {a.dtype}", s)
                if e.args and e.name in SCALAR_OPS:
                    wanted = SCALAR_OPS[e.name].result_type(e.args[0].dtype)
                    if e.dtype != wanted:
                        _fail(4, func, e.name, f"the result is {wanted}, not {e.dtype}", s)
            if isinstance(e, Select) and e.condition.dtype.kind != "b":
                _fail(4, func, "select", f"the condition must be bool, got {e.condition.dtype}", s)
            if isinstance(e, Select) and e.then.dtype != e.otherwise.dtype:
                _fail(4, func, "select", f"branches are {e.then.dtype} and {e.otherwise.dtype}", s)
            if isinstance(e, Index) and e.dtype.kind not in "iuf":
                _fail(4, func, "index", f"an index value must be a number, got {e.dtype}", s)
            if isinstance(e, Const) and isinstance(e.value, float) and e.dtype.kind != "f":
                _fail(4, func, "literal", f"{e.value} is not of type {e.dtype}", s)
        for d in _memory_reads(s):
            if not d.value.dtype.is_integer:
                _fail(4, func, str(d), f"an index must be an integer, got {d.value.dtype}", s)
        if isinstance(s, Guard) and s.condition.dtype.kind != "b":
            _fail(4, func, "guard", f"the condition must be bool, got {s.condition.dtype}", s)
        if isinstance(s, (Block, Store)):
            for e in _values(s):
                if e.dtype != buffers[s.buffer].dtype:
                    _fail(4, func, s.buffer, f"holds {buffers[s.buffer].dtype}, but {e.dtype} is stored", s)


def _memory_reads(s: Stmt) -> Iterator[Dyn]:
    stack = [*_indices(s), *(i for e in _all_values(s) for i in expr_indices(e))]
    while stack:
        for a in stack.pop().atoms():
            if isinstance(a, Dyn):
                yield a
            stack.extend(a.children())


def check_operations(func: Func) -> None:
    """5. operations exist and are applied as their table says."""
    for s in walk(func.body):
        for e in _all_values(s):
            if not isinstance(e, Op):
                continue
            if e.name not in SCALAR_OPS:
                _fail(5, func, e.name, "no such scalar operation", s)
            info = SCALAR_OPS[e.name]
            if len(e.args) != info.arity:
                _fail(5, func, e.name, f"expected {info.arity} arguments, got {len(e.args)}", s)
            if not info.accepts(e.args[0].dtype):
                _fail(5, func, e.name, f"not defined for {e.args[0].dtype}", s)


def check_bindings(func: Func) -> None:
    """6. a block has one binding for each axis."""
    for s in walk(func.body):
        if isinstance(s, Block):
            if len(s.axes) != len(s.bindings):
                _fail(6, func, s.name, f"expected {len(s.axes)} bindings, got {len(s.bindings)}")
            if len({a.name for a in s.axes}) != len(s.axes):
                _fail(6, func, s.name, "axis names are not unique")


def check_reductions(func: Func) -> None:
    """7. a reduction block loads the element that it stores."""
    for s in walk(func.body):
        if isinstance(s, Block):
            reduces = any(a.kind == "reduce" for a in s.axes)
            loads = (e for e in walk_expr(s.value) if isinstance(e, Load))
            if reduces and not any(e.buffer == s.buffer and e.indices == s.indices for e in loads):
                _fail(7, func, s.name, "a reduction block must load the element that it stores", s)
            if s.init is not None and not reduces:
                _fail(7, func, s.name, "a block without reduce axes must not have an init", s)


def check_constant_bounds(func: Func) -> None:
    """8. vectorized and unrolled loops have a constant upper bound."""
    for s, above in _paths(func.body):
        if isinstance(s, Loop) and s.kind in ("vectorized", "unrolled"):
            ranges = {a.var: loop_range(a.extent) for a in above if isinstance(a, Loop)}
            if upper_bound(s.extent, ranges) is None:
                _fail(8, func, s.var, f"a {s.kind} loop needs a constant upper bound, got {s.extent}", s)


def check_parallel(func: Func) -> None:
    """9. only serial loops and allocations of global buffers stand around parallel loops."""
    for s, above in _paths(func.body):
        if isinstance(s, Loop) and s.kind == "parallel":
            for a in above:
                if not isinstance(a, (Seq, Alloc)) and not (isinstance(a, Loop) and a.kind == "serial"):
                    inside = f"{a.kind} loop {a.var}" if isinstance(a, Loop) else "a guard"
                    _fail(9, func, s.var, f"only serial loops may stand around a parallel loop, not {inside}", s)
                if isinstance(a, Alloc) and a.buffer.scope != "global":
                    _fail(9, func, s.var, f"a parallel loop must not stand inside local buffer {a.buffer.name}", s)


def check_allocations(func: Func) -> None:
    """10. allocations of global buffers stand at the root."""
    for b in func.params:
        if b.scope != "global":
            _fail(10, func, b.name, f"a parameter must be global, got {b.scope}")
    for s, above in _paths(func.body):
        root = all(isinstance(a, (Seq, Alloc)) for a in above)
        if isinstance(s, Alloc) and s.buffer.scope == "global" and not root:
            _fail(10, func, s.buffer.name, "a global buffer must be allocated at the root", s)


def check_sequences(func: Func) -> None:
    """11. a sequence holds no sequence directly and is not of length 1."""
    for s in walk(func.body):
        if isinstance(s, Seq):
            if any(isinstance(c, Seq) for c in s.stmts):
                _fail(11, func, "sequence", "a sequence stands directly in a sequence", s)
            if len(s.stmts) == 1:
                _fail(11, func, "sequence", "a sequence of length 1", s)


def check_bounds(func: Func) -> None:
    """12. indices and bindings are not provably out of bounds."""
    for s, above in _paths(func.body):
        if isinstance(s, Block) and not any(isinstance(a, Guard) for a in above):
            ranges = {a.var: loop_range(a.extent) for a in above if isinstance(a, Loop)}
            for axis, binding in zip(s.axes, s.bindings, strict=True):
                if wrong := _violation(binding, axis.extent, ranges):
                    _fail(12, func, s.name, f"axis {axis.name} = {binding} {wrong} of extent {axis.extent}", s)
    for buffer, indices, known, certain in _bounded_accesses(func):
        for i, extent in zip(indices, buffer.shape, strict=True):
            if certain and (wrong := _violation(i, extent, known)):
                text = f"{buffer.name}[{', '.join(map(str, indices))}]"
                _fail(12, func, text, f"index {i} {wrong} of extent {extent}")


def _bounded_accesses(func: Func) -> Iterator[tuple[Buffer, tuple[IntExpr, ...], Ranges, bool]]:
    """Every access in loop variables, with their ranges, and whether it happens in every iteration."""
    for s, above in _paths(func.body):
        if not isinstance(s, (Block, Store, Guard)):
            continue
        buffers = _scope(func, above)
        ranges = {a.var: loop_range(a.extent) for a in above if isinstance(a, Loop)}
        env = {a.name: b for a, b in zip(s.axes, s.bindings, strict=True)} if isinstance(s, Block) else {}
        always = not any(isinstance(a, Guard) for a in above)
        found = [(s.buffer, s.indices, always)] if isinstance(s, (Block, Store)) else []
        found += [x for e in _values(s) for x in _loads(e, always)]
        for name, indices, certain in found:
            yield buffers[name], tuple(simplify(i.substitute(env), ranges) for i in indices), ranges, certain


def _loads(e: Expr, certain: bool) -> Iterator[tuple[str, tuple[IntExpr, ...], bool]]:
    if isinstance(e, Load):
        yield e.buffer, e.indices, certain
    for i in expr_indices(e):
        for x in walk_index(i):
            if isinstance(x, Load):
                yield x.buffer, x.indices, False
    for k, c in enumerate(expr_children(e)):
        yield from _loads(c, certain and not (isinstance(e, Select) and k > 0))


def _violation(index: IntExpr, extent: IntExpr, ranges: Ranges) -> str | None:
    """Why an index leaves ``0 .. extent-1`` for certain, if it does; only where its extremes are attained."""
    names = index.free_vars() & ranges.keys()
    if any(isinstance(a, (FloorDiv, Mod, Min, Max, Dyn)) for a in index.atoms()):
        return None
    rectangular = {n: ranges[n] for n in ranges if n in names}
    if any(x.free_vars() & ranges.keys() for r in rectangular.values() for x in r):
        return None
    if any(interval(high, ranges)[1] is not None and not is_nonneg(high, ranges) for _, high in ranges.values()):
        return None  # in a loop that may not run at all
    if extent == 0 and not all(high.is_const for _, high in ranges.values()):
        return None  # in one that does not, or there would be something to index
    ends = extremes(index, rectangular)
    if ends is None:
        return None
    if is_nonneg(-ends[0] - 1, {}):
        return f"reaches {ends[0]}, below 0,"
    return f"reaches {ends[1]}, beyond the end" if is_nonneg(ends[1] - extent, {}) else None


def check_outputs(func: Func) -> None:
    """13. inputs are never written, outputs are."""
    if not 0 <= func.outputs <= len(func.params):
        _fail(13, func, "outputs", f"expected 0 to {len(func.params)}, got {func.outputs}")
    split = len(func.params) - func.outputs
    written = {s.buffer for s in walk(func.body) if isinstance(s, (Block, Store))}
    for i, b in enumerate(func.params):
        if i < split and b.name in written:
            _fail(13, func, b.name, "an input is written")
        if i >= split and b.name not in written:
            _fail(13, func, b.name, "an output is never written")


def check_extents(func: Func) -> None:
    """14. extents do not read memory, are not negative, and those of shapes and axes use only dims."""
    dims = set(func.dims)
    statements = list(walk(func.body))
    buffers = [*func.params, *(s.buffer for s in statements if isinstance(s, Alloc))]
    fixed = [(f"shape of {b.name}", x) for b in buffers for x in b.shape]
    fixed += [(f"axis {a.name} of {s.name}", a.extent) for s in statements if isinstance(s, Block) for a in s.axes]
    loops = [(s.var, s.extent) for s in statements if isinstance(s, Loop)]
    for who, x in [*fixed, *loops]:
        if any(True for _ in walk_index(x)):
            _fail(14, func, who, f"the extent {x} reads memory")
        if (n := x.value()) is not None and n < 0:
            _fail(14, func, who, f"the extent {n} is negative")
    for who, x in fixed:
        for name in sorted(x.free_vars() - dims):
            _fail(14, func, who, f"the extent {x} uses {name}, which is not a dim")


def check_order(func: Func) -> None:
    """15. ordered and reduce axes run in order."""
    for s, above in _paths(func.body):
        if not isinstance(s, Block):
            continue
        for loop in above:
            if not isinstance(loop, Loop) or loop.kind not in ("parallel", "vectorized"):
                continue
            driven = {a.kind: a.name for a, b in zip(s.axes, s.bindings, strict=True) if loop.var in b.free_vars()}
            if "ordered" in driven or ("reduce" in driven and "spatial" not in driven):
                name = driven.get("ordered", driven.get("reduce", ""))
                _fail(15, func, s.name, f"axis {name} must run in order, but loop {loop.var} is {loop.kind}", s)


def check_intrinsics(func: Func) -> None:
    """16. what an intrinsic's code runs is what it describes."""
    for loop, name, reason in broken_intrinsics(func):
        _fail(16, func, loop, f"the loop is not intrinsic {name}: {reason}")


CHECKS: dict[int, Callable[[Func], None]] = {
    1: check_names,
    11: check_sequences,
    6: check_bindings,
    2: check_scopes,
    3: check_ranks,
    5: check_operations,
    4: check_types,
    7: check_reductions,
    8: check_constant_bounds,
    9: check_parallel,
    10: check_allocations,
    12: check_bounds,
    13: check_outputs,
    14: check_extents,
    15: check_order,
    16: check_intrinsics,
}
